"""Second opinions: a share of the answers that were called right is judged again beside the run.

Training neither waits for them nor depends on them. `opinions.jsonl` gets a line when an answer is
drawn and another one when it is judged; both name the step of the answer and its line in
`trajectories/`. A resumed run forgets the lines of steps that it does again, and asks again about
answers that were drawn and not judged.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from attrs import define, evolve, field

from rlvr.assembly.recipe import Recipe
from rlvr.log import get
from rlvr.parts import RewardFn
from rlvr.progress.status import RunStatus
from rlvr.records.run_directory import RunDir
from rlvr.records.trajectories import trajectory_from_json
from rlvr.seeds import seed_of
from rlvr.types import Problem, Reward, ScoredGroup, Trajectory
from rlvr.verification.slots import LAST, Slots
from rlvr.verification.trust import Trust, by_answer
from rlvr.verification.verdict import opinion_of

log = get(__name__)

FILE = "opinions.jsonl"
ALARM = 0.1
"""The alarm is raised when the share of false accepts is surely above this."""
_NAMED = 20
"""False accepts that an alarm names; `rlvr runs show` lists all."""
_A_WORKER = 4
"""Opinions at a time during training: one for so many workers, at least one."""

Verdict = Mapping[str, Any]


@define
class Opinions:
    """
    The second opinions of one run (`async with` ends those under way; they count as waiting).

    Attributes:
        reward: Nothing is drawn where it has no second judge (`has_second_opinion`).
        share: Share of the answers called right that is drawn.
        slots: Those of the verifications. An opinion queues behind the verifications that wait,
            and gives the slot back before it begins: no verification ever waits for an opinion.
        trust: The count so far.
    """

    reward: RewardFn
    share: float
    seed: int
    directory: RunDir
    status: RunStatus
    slots: Slots
    deadline_s: float = 900.0
    trust: Trust = field(factory=Trust)
    _rejected: list[str] = field(factory=list, init=False)
    _running: set[asyncio.Task[None]] = field(factory=set, init=False)
    _known: dict[str, asyncio.Task[Verdict]] = field(factory=dict, init=False)
    _few: asyncio.Semaphore = field(init=False)
    _is_draining: bool = field(default=False, init=False)

    @classmethod
    def of(cls, recipe: Recipe, directory: RunDir, status: RunStatus) -> Opinions:
        """The second opinions of a run. Only answers of the policy are drawn, no references."""
        verify = recipe.verify
        return cls(
            reward=recipe.reward,
            share=verify.second_opinion if recipe.sampler.draws_from_policy else 0.0,
            seed=recipe.seed,
            directory=directory,
            status=status,
            slots=recipe.runner.slots,
            deadline_s=verify.deadline_s,
        )

    @property
    def is_on(self) -> bool:
        """Whether second opinions are drawn at all."""
        return self.share > 0 and self.reward.has_second_opinion

    async def __aenter__(self) -> Opinions:
        """Ready to be asked."""
        self._few = asyncio.Semaphore(max(1, self.slots.count // _A_WORKER))
        return self

    async def __aexit__(self, *error: object) -> None:
        """End what is under way; `opinions.jsonl` says what was drawn and not judged."""
        tasks = [*self._running, *self._known.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def ask(self, step: int, groups: Sequence[ScoredGroup]) -> None:
        """Draw among the answers of a step that were called right, and begin to judge them."""
        records: list[Verdict] = []
        if not self.is_on:
            return
        for line, problem, trajectory in drawn(groups, step, share=self.share, seed=self.seed):
            where = f"trajectories/step-{step:06d}.jsonl:{line}"
            record = {"step": step, "id": problem.id, "trajectory": where, "opinion": "asked"}
            records.append(record)
            self._begin(record, problem, trajectory)
        self._write(records)

    def resume(self, problems: Mapping[str, Problem]) -> None:
        """Read `opinions.jsonl` of the steps so far; ask again about answers not judged yet."""
        if not self.is_on:
            return
        records = self.directory.read_lines(FILE)
        self.trust = evolve(Trust.of(records), waiting=0)
        last = by_answer(records)
        self._rejected = [_name(r) for r in last.values() if r.get("opinion") == "rejected"]
        for record in last.values():
            if record.get("opinion") != "asked":
                continue
            try:
                problem = problems[record["id"]]
                trajectory = self._trajectory(record["trajectory"])
            except (OSError, LookupError, TypeError, ValueError) as error:
                why = f"the trajectory cannot be read again: {error!r}"
                self._settle(record, {"opinion": "failed", "why": why, "seconds": 0.0})
            else:
                self._begin(record, problem, trajectory)
        self._alarm_if_due(self.status.step)

    async def drain(self) -> None:
        """Wait for all that was asked; so many at a time as there are workers."""
        if not self._running:
            return
        self._is_draining = True
        for _ in range(self.slots.count - max(1, self.slots.count // _A_WORKER)):
            self._few.release()
        with self.status.during("second opinions"):
            while self._running:
                await asyncio.wait(self._running)

    def numbers(self) -> dict[str, float]:
        """`trust/...` as it is known now, counted from the start; nothing where it is off."""
        return self.trust.metrics() if self.is_on else {}

    def _begin(self, record: Verdict, problem: Problem, trajectory: Trajectory) -> None:
        self.trust = evolve(self.trust, waiting=self.trust.waiting + 1)
        task = asyncio.create_task(self._one(record, problem, trajectory))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _one(self, record: Verdict, problem: Problem, trajectory: Trajectory) -> None:
        key = self._key(problem, trajectory)
        task = self._known.get(key) if key else None
        is_first = task is None
        if task is None:
            task = asyncio.create_task(self._judged(record["step"], problem, trajectory))
            if key:
                self._known[key] = task
        verdict = await (task if key is None else asyncio.shield(task))
        if verdict["opinion"] == "failed" and key:
            self._known.pop(key, None)
        self.trust = evolve(self.trust, waiting=self.trust.waiting - 1)
        self._settle(record, verdict if is_first else {**verdict, "seconds": 0.0})

    def _key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """Equal answers get one opinion, where the reward can tell that they are equal."""
        try:
            return self.reward.verdict_key(problem, trajectory)
        except Exception:  # the plugin's; the verifier has met it before us
            return None

    async def _judged(self, step: int, problem: Problem, trajectory: Trajectory) -> Verdict:
        async with self._few:
            if not self._is_draining:
                async with self.slots.taken(LAST):
                    pass  # those verifications that waited have begun
            begun = time.monotonic()
            with self.status.trace.span(problem.id, "second opinion", step=step):
                verdict = await opinion_of(
                    self.reward, problem, trajectory, deadline_s=self.deadline_s
                )
            return {**verdict, "seconds": round(time.monotonic() - begun, 3)}

    def _settle(self, record: Verdict, verdict: Verdict) -> None:
        """Count a verdict, write it down, and raise the alarm where it is time."""
        settled = {**record, **verdict, "arrived": max(self.status.step, record["step"])}
        trust, kind = self.trust, verdict["opinion"]
        self.trust = evolve(
            trust,
            confirmed=trust.confirmed + (kind == "confirmed"),
            rejected=trust.rejected + (kind == "rejected"),
            unsure=trust.unsure + (kind == "none"),
            failed=trust.failed + (kind == "failed"),
            cost_s=trust.cost_s + verdict["seconds"],
        )
        self._write([settled])
        if kind == "rejected":
            self._rejected.append(_name(settled))
        self._alarm_if_due(settled["arrived"])

    def _alarm_if_due(self, step: int) -> None:
        if self.trust.has_alarmed or not self.trust.is_past(ALARM):
            return
        self.trust = evolve(self.trust, has_alarmed=True)
        self._write([{"step": step, "opinion": "alarm", **self.trust.metrics()}])
        log.warning(
            "false_accepts_alarm",
            step=step,
            found=self.trust.sentence(),
            threshold=ALARM,
            answers=self._rejected[-_NAMED:],
            do=f"rlvr runs show {self.directory.path}; then mend the reward: "
            "it pays for answers that its second judge rejects",
        )

    def _write(self, records: Sequence[Mapping[str, Any]]) -> None:
        try:
            if records:
                self.directory.append(FILE, *records)
        except (OSError, ValueError, TypeError) as error:
            log.warning("second_opinion_not_written", reason=str(error))

    def _trajectory(self, where: str) -> Trajectory:
        name, _, line = where.rpartition(":")
        text = (self.directory.path / name).read_text(encoding="utf-8").split("\n")[int(line) - 1]
        return trajectory_from_json(json.loads(text))


def drawn(
    groups: Iterable[ScoredGroup], step: int, *, share: float, seed: int
) -> Iterator[tuple[int, Problem, Trajectory]]:
    """
    A share of a step's answers that were called right, with their lines in `trajectories/`.

    Called right: a full verdict (no proxy's) with `score01` 1. The draw is a function of (seed,
    step, line), one number a trajectory whatever it earned, so that a resumed run draws the same.
    """
    numbers = random.Random(seed_of(seed, "second opinion", step))
    line = 0
    for group in groups:
        for trajectory, outcome in zip(group.trajectories, group.outcomes, strict=True):
            line += 1
            is_drawn = numbers.random() < share
            is_right = isinstance(outcome, Reward) and outcome.score01 == 1.0
            if is_drawn and is_right:
                yield line, group.problem, trajectory


def _name(record: Mapping[str, Any]) -> str:
    return f"{record.get('id')} at step {record['step']} ({record['trajectory']})"
