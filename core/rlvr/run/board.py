"""What the run is doing right now: one mutable board that the line writes and displays read.

The run's promise "what the run waits for is always visible" is kept here: the phase, and each
verification in flight with the time it began.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define, field


@define
class Board:
    """Live facts of a run. Times are `time.monotonic()` seconds."""

    phase: str = "starting"
    phase_since: float = field(factory=time.monotonic)
    step: int = 0
    steps: int = 0
    verified: int = 0
    cached: int = 0
    verify_total: int = 0
    verify_done: int = 0
    in_flight: dict[int, tuple[str, float]] = field(factory=dict)
    seconds: dict[str, float] = field(factory=dict)
    _ticket: int = 0

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Show `phase` while the block runs, and add its time to `seconds[phase]`."""
        begun = time.monotonic()
        self.phase, self.phase_since = phase, begun
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.monotonic() - begun
            self.phase, self.phase_since = "finishing", time.monotonic()

    @contextmanager
    def verifying(self, problem_id: str) -> Iterator[None]:
        """Show one verification as being in flight while the block runs."""
        self._ticket += 1
        ticket = self._ticket
        self.in_flight[ticket] = (problem_id, time.monotonic())
        try:
            yield
        finally:
            del self.in_flight[ticket]

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
