"""Displays of a run's progress, and of many verifications, on standard error."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rlvr import hookimpl
from rlvr.errors import counted
from rlvr.heartbeat import harmless, is_redrawn, redraw, say
from rlvr.progress.status import RunStatus
from rlvr.types import Checkpoint, EvalReport, RunInfo

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.live import Live

    from rlvr.assembly.configured import Configured


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` below an hour."""
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    return f"{hours}:{m:02d}:{s:02d}" if hours else f"{m}:{s:02d}"


def evaluation_line(step: int, report: EvalReport) -> str:
    """An evaluation in one line, with its interval."""
    failed = f", {report.failed} could not be verified" if report.failed else ""
    seen = f", NOT held-out: {len(report.seen)}" if report.held_out is False else ""
    if report.measures:
        shown = "  ".join(f"{n.removeprefix('eval/')} {v:.4g}" for n, v in report.measures.items())
        return (
            f"eval at step {step}: {shown}  on "
            f"{counted(len(report.scores), f'recorded {report.split} trajectory')}{seen}, "
            f"{report.seconds:.0f} s"
        )
    return (
        f"eval at step {step}: pass@1 {report.pass1:.1%} "
        f"[{report.low:.1%}, {report.high:.1%}] on "
        f"{counted(len(report.scores), f'{report.split} problem')}, "
        f"{counted(report.samples, 'sample')}{failed}{seen}, {report.seconds:.0f} s"
    )


class LineProgress:
    """One plain line a step on standard error."""

    def __init__(self, status: RunStatus) -> None:
        self._status = status
        self._begun = time.monotonic()
        self._steps = 0
        self._seen = 0

    def say(self, text: str) -> None:
        """Print a line at once."""
        say(text)

    def begin(self, configured: Configured, directory: Path) -> None:
        """Say what is run, before the model is loaded."""
        run = configured.run
        task = configured.chosen.task
        name = task.name if task.name == task.provider else task.full_name
        told = f"{name} {run.algo} on {run.model}"
        self.say(f"{told}, {counted(run.steps, 'step')}, in {directory}")

    def end(self, directory: Path) -> None:
        """Take back the directory that `begin` named, where no run began in it."""
        if not (directory / "run.json").exists():
            self.say(f"no run began, and nothing of it stays in {directory}")

    @hookimpl
    def rlvr_run_started(self, run: RunInfo) -> None:
        self._steps = run.steps
        self._begun = time.monotonic()

    @hookimpl
    def rlvr_evaluated(self, step: int, report: EvalReport) -> None:
        self.say(evaluation_line(step, report))
        if not self._seen:  # it is not a part of each step
            self._begun = time.monotonic()

    @hookimpl
    def rlvr_step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        self.say(step_line(step, self._steps, metrics, self.left(step)))

    @hookimpl
    def rlvr_checkpoint_saved(self, checkpoint: Checkpoint) -> None:
        self.say(f"checkpoint {checkpoint.path}")

    def left(self, step: int) -> float:
        """Estimated seconds left after `step`, from the mean of the steps seen here."""
        self._seen += 1
        return (time.monotonic() - self._begun) / self._seen * max(self._steps - step, 0)


def step_line(step: int, steps: int, metrics: Mapping[str, float], left_s: float) -> str:
    """Step, what is known of it, time left."""
    return "  ".join([f"step {step}/{steps}", *_facts(metrics), f"left {duration(left_s)}"])


def _facts(metrics: Mapping[str, float]) -> list[str]:
    """
    Reward, pass rate, tokens/s, verifications/s, mismatch, what was dropped, second opinions.

    If only a proxy judged (recordings), the loss stands in place of the pass rate. If the policy
    drew nothing, the loss stands first: reward and pass rate are those of the references.
    """
    dropped = metrics["verify/unscorable"] + metrics["verify/failed"]
    proxy, cut = metrics.get("verify/proxy", 0.0), metrics.get("sampler/prompts_cut", 0.0)
    is_judged = "loss" not in metrics or not 0 < proxy == metrics["verify/scored"]
    judged = [f"reward {metrics['reward/mean']:.3f}", f"pass {metrics['reward/pass']:.1%}"]
    loss = f"loss {metrics['loss']:.4g}" if "loss" in metrics else ""
    if not is_judged:
        judged[1] = loss
    elif not metrics.get("sampler/drawn", 1.0):
        judged = [loss, f"references: {', '.join(judged)}"]
    facts = (
        *judged,
        f"tok/s {metrics['rate/tokens_per_s']:.0f}",
        "verdicts from the store"
        if 0 < metrics.get("verify/cached", 0.0) == metrics["verify/scored"]
        else f"verify/s {metrics['rate/verifications_per_s']:.1f}",
        _mismatch(metrics),
        f"judged by proxy {proxy:.0f}" if proxy else "",
        f"dropped {dropped:.0f}" if dropped else "",
        _false_accepts(metrics),
        f"prompts cut {cut:.0%}" if cut else "",
    )
    return [fact for fact in facts if fact]


def _mismatch(metrics: Mapping[str, float]) -> str:
    """The train-inference mismatch, if it was measured."""
    if (kl := metrics.get("mismatch/kl")) is None:
        return ""
    return f"mismatch {kl:.1e} nats (ratio to {metrics['mismatch/ratio/max']:.2f})"


def _false_accepts(metrics: Mapping[str, float]) -> str:
    """The share of accepted answers that the second judge rejected, once it was asked."""
    if "trust/false_accept" not in metrics:
        return ""
    low, high = metrics["trust/false_accept_low"], metrics["trust/false_accept_high"]
    return (
        f"false accepts {metrics['trust/rejected']:.0f}/{metrics['trust/judged']:.0f} "
        f"[{low:.1%}, {high:.1%}]" + ("  ALARM" if metrics["trust/alarm"] else "")
    )


def _packed(facts: Iterable[str], width: int) -> list[str]:
    """Lines of as many facts as fit; no fact is broken."""
    lines: list[str] = []
    for fact in (harmless(fact, keep="") for fact in facts):
        if lines and len(lines[-1]) + 2 + len(fact) <= width:
            lines[-1] += f"  {fact}"
        else:
            lines.append(fact)
    return lines


class LiveProgress(LineProgress):
    """One display, redrawn in place: bar, rates, and what the run waits for."""

    def __init__(self, status: RunStatus) -> None:
        super().__init__(status)
        self._live: Live | None = None
        self._console: Console
        self._last: Mapping[str, float] = {}
        self._left: float | None = None
        self._done = 0

    def say(self, text: str) -> None:
        """Print above the display."""
        if self._live is not None:
            self._live.console.print(harmless(text), highlight=False, markup=False)
        else:
            super().say(text)

    @hookimpl
    def rlvr_run_started(self, run: RunInfo) -> None:
        from rich.console import Console
        from rich.live import Live

        super().rlvr_run_started(run)
        self._console = Console(stderr=True, soft_wrap=True)  # lines of the log too
        self._live = Live(
            get_renderable=self._drawn,
            console=self._console,
            refresh_per_second=4,
            redirect_stdout=sys.stdout.isatty(),  # else what a callback prints stays in its file
        )
        self._live.start()

    @hookimpl
    def rlvr_step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        self._last, self._left, self._done = metrics, self.left(step), step

    @hookimpl
    def rlvr_run_finished(self, outcome: str) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _drawn(self) -> Group:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        status, metrics = self._status, self._last
        head = Table.grid(padding=(0, 2))
        for is_bar in (False, True, False):
            head.add_column(no_wrap=not is_bar)
        head.add_row(
            f"step {status.step}/{self._steps}",
            ProgressBar(total=max(self._steps, 1), completed=self._done, width=30),
            f"left {duration(self._left)}" if self._left is not None else "",
        )
        known = _facts(metrics) if metrics else []
        if "trust/cost_s" in metrics:
            known.append(f"second opinions {metrics['trust/cost_s']:.0f} s")
        doing = [f"{status.phase} {time.monotonic() - status.phase_since:.0f} s"]
        if waited := status.longest_wait():
            doing += [
                f"{status.verify_done}/{status.verify_total} verified",
                f"{len(status.in_flight)} in flight",
                f"longest: {waited[0]} {waited[1]:.0f} s",
            ]
        lines = _packed(known, self._console.width) + _packed(doing, self._console.width)
        return Group(head, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def progress_for(status: RunStatus, *, quiet: bool = False) -> LineProgress | None:
    """The display that suits standard error: live where it is redrawn, lines otherwise."""
    kind = LiveProgress if is_redrawn(sys.stderr) else LineProgress
    return None if quiet else kind(status)


@contextmanager
def scoring_progress(status: RunStatus, *, quiet: bool = False) -> Iterator[None]:
    """
    Show `done/total`, the rate and the longest verification in flight, redrawn in place.

    Shown where lines are redrawn: elsewhere the lines and the summary say it all.
    """
    if quiet or not is_redrawn(sys.stderr):
        yield
        return
    over = threading.Event()
    begun = time.monotonic()

    def draw() -> None:
        while not over.wait(0.25):
            elapsed = time.monotonic() - begun
            waiting = status.longest_wait()
            longest = f"  longest: {waiting[0]} {waiting[1]:.0f} s" if waiting else ""
            rate = status.verify_done / elapsed
            redraw(f"{status.verify_done}/{status.verify_total} judged  {rate:.1f}/s{longest}")
        redraw("")

    thread = threading.Thread(target=draw, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
