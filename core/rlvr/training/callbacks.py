"""Write the files of a run, call its observers, save its checkpoints. Decides nothing."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from attrs import define, field

from rlvr.assembly.recipe import Recipe
from rlvr.border.abilities import warnings_of
from rlvr.border.calls import Border, label
from rlvr.border.promises import check_saved
from rlvr.errors import counted
from rlvr.evaluation.contamination import marked
from rlvr.log import get
from rlvr.parts import Callback, LearningPart
from rlvr.plugins.author_error import log_traceback, passes, said
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.training.best_checkpoint import best_step
from rlvr.types import Checkpoint, EvalReport, RunInfo, ScoredGroup

log = get(__name__)
T = TypeVar("T")

_IDLE = 10
"""So many steps in a row that reward nothing are worth a warning."""


@define
class Callbacks:
    """
    Calls the observers one at a time and writes the run's files.

    Observers are the plugins with announcement hooks, then `parts`. A failing one is logged and
    the run goes on. `state` is that of the last finished step, `last_checkpoint` the newest good
    one. `idle` counts the last steps in which no reward changed a weight, as far as it is known.
    """

    host: PluginHost
    run: RunInfo
    directory: RunDir
    status: RunStatus
    parts: tuple[Callback, ...] = ()
    state: RunState = field(factory=RunState)
    last_checkpoint: Checkpoint | None = None
    reports: dict[int, EvalReport] = field(factory=dict)
    idle: int = 0
    _steps: int = 0
    _warned: dict[str, int] = field(factory=dict)
    _zero: set[str] = field(factory=set)
    _passed: float = 1.0
    _verified_before: int = 0
    _is_stopping: bool = False

    def announce(self, hook: str, **facts: Any) -> None:
        """Tell every observer, one at a time; the run's log keeps that it happened."""
        kept = {name: facts[name] for name in ("step", "outcome") if name in facts}
        log.debug(hook.removeprefix("rlvr_"), **kept)
        for name, error in self.host.announce(hook, run=self.run, **facts):
            self._failed(hook, name, error)
        method = hook.removeprefix("rlvr_")
        for part in self.parts:
            try:
                said = getattr(part, method)(self.run, **facts)
                if inspect.iscoroutine(said):
                    said.close()
                    raise TypeError(f"{method} is async; it is a plain method, never awaited")
            except BaseException as error:  # the plugin border: the run goes on
                if passes(error):
                    raise
                who = label(part, "callback")
                self._failed(hook, who, error)

    def _failed(self, hook: str, observer: str, error: BaseException) -> None:
        log_traceback(error)
        log.error("observer_failed", hook=hook, observer=observer, error=said(error))

    def groups_scored(
        self, step: int, groups: Sequence[ScoredGroup], *, are_recorded: bool = False
    ) -> None:
        """Keep the trajectories of a step, or which ones they were, and announce them."""
        self.directory.write_trajectories("step", step, groups, are_recorded=are_recorded)
        self.announce("rlvr_groups_scored", step=step, groups=groups)

    def step_finished(
        self, state: RunState, metrics: Mapping[str, float], *, has_teachers: bool = False
    ) -> None:
        """Add times and rates, write the line of metrics, announce."""
        self.state = state
        has_gradient = metrics.get("grad/norm", float("loss" in metrics)) > 0
        has_gradient |= metrics.get("update/skipped", 0.0) > 0  # which the backend has told
        # an entropy or KL term moves weights alone, too; what teachers say is no advantage
        has_credit = has_teachers or any(
            metrics.get(f"advantage/{name}", 1.0) for name in ("mean", "std")
        )
        if has_gradient and has_credit:
            self.idle, self._zero = 0, set()
        else:
            self.idle += 1
            self._zero.add("the gradient" if has_credit else "every advantage")
        self._steps += 1
        self._passed = metrics.get("reward/pass", 1.0)
        seconds = self.status.take_seconds()
        sample_s, verify_s = seconds.get("sample", 0.0), seconds.get("verify", 0.0)
        verified = self.status.verified - self._verified_before
        self._verified_before = self.status.verified
        sampled, self.status.sampled = self.status.sampled, 0
        numbers = {
            **metrics,
            **{f"time/{phase}_s": value for phase, value in seconds.items()},
            "time/total_s": state.seconds,
            "rate/tokens_per_s": sampled / sample_s if sample_s else 0.0,
            "rate/verifications_per_s": verified / verify_s if verify_s else 0.0,
        }
        rounded = {name: float(f"{value:.6g}") for name, value in numbers.items()}
        self.directory.append("metrics.jsonl", {"step": state.step, **rounded})
        self.keep_trace()
        self.announce("rlvr_step_finished", step=state.step, metrics=rounded)
        if self.idle >= _IDLE:
            self.say_if_idle()

    def keep_trace(self) -> None:
        """Write the spans that ended since the last call, where there is a run to keep them."""
        if self.directory.path.is_dir() and (spans := self.status.trace.take()):
            self.directory.append("trace.jsonl", *spans)

    def notice(self, parts: Sequence[LearningPart], metrics: Mapping[str, float]) -> None:
        """Warnings that the parts see in a step's metrics."""
        for part in parts:
            for text in warnings_of(part, metrics):
                log.warning("part_notice", step=self.state.step, notice=text)

    def say_if_idle(self, *, is_over: bool = False) -> None:
        """Warn that the last steps rewarded nothing: once in a run, and at its end."""
        found = f"{' or '.join(sorted(self._zero))} was zero in"
        if self._steps and self.idle == self._steps:
            event, found = "nothing_was_learnt", f"{found} all {counted(self.idle, 'step')}"
            do = (
                "take easier problems, larger groups, or a model that is right at times: for an "
                "untrained one --algo sft first (docs/which-algorithm.md), or a short "
                "sampler.max_tokens and a train.lr such as 2e-3"
            )
        elif self.idle >= _IDLE and self._passed < 1:
            event, found = "learning_has_stopped", f"{found} {self.idle} steps in a row"
            found += f", and {self._passed:.0%} of the last one's answers pass"
            do = (
                "where answers have become alike: a smaller train.lr, an entropy_coef of the "
                "loss (0.01, for an untrained model 0.1), or --algo sft first "
                "(docs/which-algorithm.md)"
            )
        else:
            return
        if event not in self._warned or (is_over and self._warned[event] != self.state.step):
            self._warned[event] = self.state.step
            look_at = "reward/groups_equal in metrics.jsonl: equal rewards teach nothing"
            log.warning(event, step=self.state.step, found=found, look_at=look_at, do=do)

    def evaluated(self, step: int, report: EvalReport, groups: Sequence[ScoredGroup]) -> None:
        """Keep an evaluation, marked as held-out or not, and announce it."""
        report = marked(report, [group.problem for group in groups], self.state.lineage)
        self.reports[step] = report
        if not report.measures:  # recorded ones are where they were recorded
            self.directory.write_trajectories("eval", step, groups)
        self.directory.append_eval(step, report)
        self.announce("rlvr_evaluated", step=step, report=report)

    async def keep_best(self, recipe: Recipe, state: RunState) -> None:
        """Write a checkpoint where the evaluation of this step is the best; it is kept from now."""
        last = self.last_checkpoint
        if best_step(self.reports) == state.step and (last is None or last.step != state.step):
            await self.checkpoint(recipe, state)
        else:
            self._pin_best(recipe)

    async def checkpoint(self, recipe: Recipe, state: RunState) -> Checkpoint:
        """Write a checkpoint and announce it; that of the best evaluation stays."""
        if best_step(self.reports) != state.step:  # else the one before goes when this is there
            self._pin_best(recipe)
        at = Border(recipe.checkpointer, "checkpointer", "save", promised="a Checkpoint")
        with at:
            checkpoint: Checkpoint = await self.unbroken(
                recipe.checkpointer.save(state.step, state.to_json(), recipe.backend)
            )
        check_saved(recipe.checkpointer, checkpoint, state.step)
        self.last_checkpoint = checkpoint
        self._pin_best(recipe)
        self.announce("rlvr_checkpoint_saved", checkpoint=checkpoint)
        return checkpoint

    def _pin_best(self, recipe: Recipe) -> None:
        with Border(recipe.checkpointer, "checkpointer", "pin", promised="nothing"):
            recipe.checkpointer.pin(best_step(self.reports))

    async def unbroken(self, work: Coroutine[Any, Any, T]) -> T:
        """
        Finish `work` and give back its result even when the run is cancelled meanwhile.

        The cancellation is kept for `stop_if_asked`, so that a Ctrl-C never leaves weights half
        updated or ahead of the state.
        """
        task = asyncio.ensure_future(_settled(work))
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                self._is_stopping = True
                current = asyncio.current_task()
                if current is not None:
                    current.uncancel()
        settled = task.result()
        if settled[1] is not None:
            raise settled[1]
        return settled[0]

    def stop_if_asked(self) -> None:
        """Raise the cancellation that arrived during unbroken work."""
        if self._is_stopping:
            raise asyncio.CancelledError


async def _settled(work: Coroutine[Any, Any, T]) -> tuple[T, None] | tuple[None, SystemExit]:
    """Result of the work, or the `SystemExit` of a part, which would end the loop if raised."""
    try:
        return await work, None
    except SystemExit as leaving:
        return None, leaving
