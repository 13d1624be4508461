"""Bounded queue of the rollouts between sampling and training.

Holds no part. Sampling waits for room, verified groups arrive, training takes them. At most
`(staleness + 1) * per_step` groups are under way, so sampling waits (back-pressure) when training
falls behind, and with staleness 0 it begins only when the last step is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

import attrs
from attrs import define, field, frozen

from rlvr.records.run_state import ProblemStream, RunState
from rlvr.types import PassRate, Problem, ScoredGroup


@frozen(kw_only=True)
class RolloutRequest:
    """Problems that sampling shall begin now, and what is known at that moment."""

    tickets: range
    problem_ids: tuple[str, ...]
    step: int
    history: Mapping[str, PassRate]


@define
class RolloutQueue:
    """
    Bounded queue of the rollouts of one run that are in flight.

    Attributes:
        per_step: Groups that training takes a step.
        steps: Steps of the run; no rollout is begun that no step could train on.
        staleness: Steps that training may be ahead of what sampled a group.
        problem_stream: Position in the order of problems (`ProblemStream`).
        step, history: Of the newest state that was published.
        updating: Held while weights change, and while something relies on their not changing.
        updates: Grows by one when weights begin to change, and when they have changed.
        recent: Problems under way, which `history` cannot know yet.
    """

    per_step: int
    staleness: int
    steps: int
    problem_stream: ProblemStream
    step: int = 0
    history: Mapping[str, PassRate] = field(factory=dict)
    updating: asyncio.Lock = field(factory=asyncio.Lock)
    updates: int = 0
    recent: set[str] = field(factory=set)
    _keeping: int = 0  # blocks of `keeping_weights` under way
    _stale: int = 0
    _under_way: dict[int, tuple[str, int]] = field(factory=dict)  # id: problem, step sampled
    _ready: dict[int, ScoredGroup] = field(factory=dict)
    _allowed: int = 0
    _owed: int = 0
    _error: BaseException | None = None
    _moved: asyncio.Event = field(factory=asyncio.Event)

    def publish(self, state: RunState) -> None:
        """Begin the step after `state`, and drop the groups that are too old for it."""
        self.step, self.history = state.step, state.history
        for ticket in [t for t in self._ready if self._age(t) > self.staleness]:
            del self._ready[ticket], self._under_way[ticket]
            self._stale += 1
        most = min(self.staleness + 1, self.steps - state.step) * self.per_step
        self._allowed = self._begun + max(0, most - len(self._under_way))
        self._owed = 0
        self.recent = {name for name, _ in self._under_way.values()}
        self._moved.set()

    async def has_room(self) -> None:
        """Wait until sampling may begin."""
        await self._until(lambda: self._allowed > self._begun)

    @property
    def needs_choice(self) -> bool:
        """Whether the next `room` must choose new problems: fewer wait than it takes."""
        return len(self.problem_stream.waiting) < min(self.per_step, self._allowed - self._begun)

    async def room(self, choose: Callable[[int], Sequence[Problem]]) -> RolloutRequest:
        """Wait until sampling may begin, then take at most as many problems as one step has."""
        await self.has_room()
        count = min(self.per_step, self._allowed - self._begun)
        ids, self.problem_stream = self.problem_stream.take(count, choose)
        self.recent.update(ids)
        tickets = range(self._begun - count, self._begun)
        self._under_way.update({t: (name, self.step) for t, name in zip(tickets, ids, strict=True)})
        return RolloutRequest(
            tickets=tickets,
            problem_ids=ids,
            step=self.step,
            history=self.history,
        )

    def arrive(self, ticket: int, group: ScoredGroup) -> None:
        """Add a verified group, which training may take."""
        if self._age(ticket) > self.staleness:
            del self._under_way[ticket]
            self._stale += 1
            self._owed += 1
            self._settle()
        else:
            self._ready[ticket] = group
        self._moved.set()

    async def next(self) -> tuple[ScoredGroup, int] | None:
        """
        The next group to train on, and its age in steps; None when no other one will come.

        With staleness 0 groups come in the order they were handed out, else the oldest of those
        that are ready: a slow verification holds up nobody.
        """
        self._settle()
        await self._until(lambda: bool(self._choice()) or self._is_idle())
        if self._is_idle():
            return None
        ticket = min(self._choice())
        age = self._age(ticket)
        del self._under_way[ticket]
        return self._ready.pop(ticket), age

    def refill(self) -> None:
        """Ask for one more group in place of one that taught nothing."""
        self._owed += 1
        self._settle()

    def fail(self, error: BaseException) -> None:
        """Raise the error of sampling or verification in every coroutine that waits here."""
        self._error = self._error or error
        self._moved.set()

    @asynccontextmanager
    async def keeping_weights(self) -> AsyncIterator[None]:
        """Keep the weights unchanged in the block: an update waits for its end, and vice versa."""
        async with self.updating:
            self._keeping += 1
        try:
            yield
        finally:
            self._keeping -= 1
            self._moved.set()

    @asynccontextmanager
    async def changing_weights(self) -> AsyncIterator[None]:
        """Hold `updating` while weights change in the block, and count the change in `updates`."""
        async with self.updating:  # those who come to keep them wait behind us
            await self._until(lambda: not self._keeping)
            self.updates += 1
            try:
                yield
            finally:
                self.updates += 1  # also for whoever began while they changed

    def take_stale(self) -> int:
        """Number of groups dropped for their age since the last call."""
        taken, self._stale = self._stale, 0
        return taken

    def snapshot(self) -> ProblemStream:
        """Position in the order of problems for a resumed run: those under way come first again."""
        lost = tuple(self._under_way[t][0] for t in sorted(self._under_way))
        return attrs.evolve(self.problem_stream, waiting=lost + self.problem_stream.waiting)

    def _choice(self) -> Sequence[int]:
        if self.staleness:
            return tuple(self._ready)
        first = min(self._under_way, default=-1)
        return (first,) if first in self._ready else ()

    @property
    def _begun(self) -> int:
        return self.problem_stream.begun

    def _is_idle(self) -> bool:
        return not self._under_way and self._allowed <= self._begun

    def _age(self, ticket: int) -> int:
        return self.step - self._under_way[ticket][1]

    def _settle(self) -> None:
        """Let what is owed begin: all at once, so that it is sampled in one batch."""
        if self._owed and (not self._under_way or self._owed >= self.per_step):
            self._allowed, self._owed = max(self._allowed, self._begun) + self._owed, 0
            self._moved.set()

    async def _until(self, is_true: Callable[[], bool]) -> None:
        while not is_true():
            if self._error is not None:
                raise self._error
            self._moved.clear()
            await self._moved.wait()
