"""Present status of a run: one mutable record that the training loop writes and displays read.

It keeps the promise "what the run waits for is always visible": it holds the phase, and each
verification in flight with the time it began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field

from rlvr.heartbeat import tells
from rlvr.progress.spans import Spans


@define
class RunStatus:
    """Live facts of a run. Times are `time.monotonic()` seconds."""

    phase: str = "starting"
    phase_since: float = field(factory=time.monotonic)
    step: int = 0
    sampled: int = 0
    verified: int = 0
    cached: int = 0
    verify_total: int = 0
    verify_done: int = 0
    in_flight: dict[int, tuple[str, float]] = field(factory=dict)
    seconds: dict[str, float] = field(factory=dict)
    trace: Spans = field(factory=Spans)
    _active: list[str] = field(factory=list)
    _ticket: int = 0
    _verifying_since: float = 0.0

    def __attrs_post_init__(self) -> None:
        tells(self.text)

    def text(self) -> str:
        """The current status in words, for output without a display."""
        verified = f"{self.verify_done} of {self.verify_total} answers judged"
        waited = self.longest_wait()
        longest = f"longest {waited[0]} {waited[1]:.0f} s" if waited else ""
        phase = "" if self.phase == "starting" and self.verify_total else self.phase
        return ", ".join(filter(None, [phase, verified * bool(self.verify_total), longest]))

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """
        Show `phase` while the block runs, and add its time to `seconds[phase]`.

        Phases that overlap are shown together ("sample + train").
        """
        begun = time.monotonic()
        self._show([*self._active, phase], begun)
        try:
            with self.trace.span(phase, phase, step=self.step):
                yield
        finally:
            ended = time.monotonic()
            self.seconds[phase] = self.seconds.get(phase, 0.0) + ended - begun
            self._active.remove(phase)
            self._show(self._active, ended)

    def _show(self, active: list[str], since: float) -> None:
        self._active = active
        self.phase, self.phase_since = " + ".join(active) or "finishing", since

    @contextmanager
    def verifying(self, problem_id: str) -> Iterator[None]:
        """Show one verification as being in flight while the block runs."""
        self._ticket += 1
        ticket = self._ticket
        if not self.in_flight:
            self._verifying_since = time.monotonic()
        self.in_flight[ticket] = (problem_id, time.monotonic())
        try:
            with self.trace.span(problem_id, "verification", step=self.step):
                yield
        finally:
            del self.in_flight[ticket]
            if not self.in_flight and "verify" not in self._active:  # no phase counts this time
                spent = time.monotonic() - self._verifying_since
                self.seconds["verify"] = self.seconds.get("verify", 0.0) + spent

    def begin_verifying(self, count: int) -> None:
        """Add `count` verifications to the total; it starts anew when all others have ended."""
        if self.verify_done >= self.verify_total:
            self.verify_total = self.verify_done = 0
        self.verify_total += count

    def longest_wait(self) -> tuple[str, float] | None:
        """Problem and seconds of the verification that has been in flight longest."""
        if not self.in_flight:
            return None
        problem_id, since = min(self.in_flight.values(), key=lambda pair: pair[1])
        return problem_id, time.monotonic() - since

    def take_seconds(self) -> dict[str, float]:
        """Seconds by phase since the last call."""
        taken, self.seconds = self.seconds, {}
        return taken
