"""The order of a model's requests.

A client numbers the requests of each model from 1, and may send them in any order; they are done in
that order. A number that was used before is the same request sent again, or the mistake of two
clients that work on one model. A request that is refused uses up its number too, else all that
follow would wait for it without end; those that wait for a number that never comes are failed.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

from attrs import define, field, frozen

from rlvr_tinker_server.refusal import Refusal

_MOST_AHEAD = 4096  # requests that may wait for one with a lower number


@frozen(kw_only=True)
class Numbered:
    """A request's place in line, whatever else is wrong with it."""

    model_id: str
    number: int
    is_pass: bool = False


Start = Callable[[Refusal | None], None]
"""Starts a request whose turn it is; with a refusal, fails it instead."""


@define(eq=False)
class Line:
    """The requests of one model, in the order of their numbers."""

    following: int = 1  # the number whose turn it is
    seen: dict[int, bytes] = field(factory=dict)  # what each number was used for
    waiting: dict[int, Start] = field(factory=dict)  # requests that wait for lower numbers
    stuck_since: float | None = (
        None  # when one began to wait with none before it being done; None: none waits
    )
    lost_until: int = 0  # nothing waits any more for missing numbers up to this one

    def knows(self, number: int, body: bytes) -> bool:
        """
        Whether the request was sent before.

        Raises:
            Refusal: Another request had this number, it is far ahead of the others, or it came too
                late: those that waited for it were failed, and later ones done.
        """
        found = self.seen.get(number)
        if found is not None and found != fingerprint(body):
            raise Refusal(
                f"request {number} of this model was another one: do two clients work on it? each "
                "needs a session of its own"
            )
        if found is None and not self.following <= number < self.following + _MOST_AHEAD:
            raise Refusal(f"request {number} was sent, but the next one is {self.following}")
        return found is not None

    def enter(self, number: int, body: bytes, start: Start) -> None:
        """Take a new request; it is started when all with lower numbers were."""
        self.seen[number] = fingerprint(body)
        self.waiting[number] = start
        is_next = not self._missing(self.lost_until + 1, number)
        if self.following <= self.lost_until < number and is_next:
            self.following = number  # what was lost is not waited for again
        self._advance()

    def give_up(self, gap_s: float) -> bool:
        """Fail requests that waited `gap_s` seconds for a number; false where there are none."""
        if self.stuck_since is None or time.monotonic() - self.stuck_since <= gap_s:
            return False
        last = max(self.waiting)
        missing = self._missing(self.following, last)
        refusal = Refusal(
            f"request {_listed(missing)} of this model did not arrive within {gap_s:g} s, and "
            f"{len(self.waiting)} later ones waited for it: they are not done; go on from the last "
            "saved state"
        )
        waiting, self.waiting = self.waiting, {}
        self.lost_until, self.stuck_since = max(self.lost_until, last), None
        for number in sorted(waiting):
            waiting[number](refusal)
        return True

    def _missing(self, first: int, end: int) -> list[int]:
        return [number for number in range(first, end) if number not in self.seen]

    def _advance(self) -> None:
        before = self.following
        while self.following in self.seen:
            start = self.waiting.pop(self.following, None)
            self.following += 1
            if start is not None:  # None: it was failed before its turn came
                start(None)
        if not self.waiting:
            self.stuck_since = None
        elif self.stuck_since is None or self.following > before:
            self.stuck_since = time.monotonic()


def _listed(numbers: list[int]) -> str:
    told = ", ".join(map(str, numbers[:5]))
    return told if len(numbers) <= 5 else f"{told} and {len(numbers) - 5} more"


def fingerprint(body: bytes) -> bytes:
    """The sha256 by which a request that is sent again is recognised."""
    return hashlib.sha256(body).digest()
