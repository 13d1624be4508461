"""Which problems sampling takes next: batches chosen one after another, handed out in pieces.

A value, kept in the state of the run: a resumed run hands out the problems that were under way
when it stopped, and then what the uninterrupted run would have handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import attrs
from attrs import field, frozen

from rlvr.types import Problem


def _tuple(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@frozen(kw_only=True)
class Feed:
    """
    Where the handing out stands.

    Attributes:
        drawn: Batches of problems that were chosen so far.
        calls: Times that sampling was begun; the seed of the next one follows from it.
        waiting: Ids of problems that were chosen and are not trained on yet, in order.
    """

    drawn: int = 0
    calls: int = 0
    waiting: tuple[str, ...] = field(default=(), converter=_tuple)

    def take(
        self, count: int, choose: Callable[[int], Sequence[Problem]]
    ) -> tuple[tuple[str, ...], Feed]:
        """
        Ids of the next `count` problems, and the feed after them.

        `choose(i)` gives the problems of batch i (0-based); it is asked only as far as needed.
        """
        waiting, drawn = self.waiting, self.drawn
        while len(waiting) < count:
            waiting += tuple(problem.id for problem in choose(drawn))
            drawn += 1
        after = attrs.evolve(self, drawn=drawn, calls=self.calls + 1, waiting=waiting[count:])
        return waiting[:count], after

    def without_unknown(self, known: Collection[str]) -> Feed:
        """The feed without problems that waited and are not there any more."""
        return attrs.evolve(self, waiting=[name for name in self.waiting if name in known])
