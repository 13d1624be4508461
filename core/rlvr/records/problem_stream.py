"""Position in the order of problems: batches are chosen one by one and taken a few ids at a time.

It is a value in the state of the run: a resumed run first takes the problems that were under way
when it stopped, and then those that the uninterrupted run would have taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import attrs
from attrs import field, frozen

from rlvr.types import Problem, as_tuple


@frozen(kw_only=True)
class ProblemStream:
    """
    Position in the order of problems.

    Attributes:
        drawn: Batches of problems that were chosen so far.
        begun: Groups that were begun so far: the ticket of the next one, which seeds its draws.
        waiting: Ids of problems that were chosen and are not trained on yet, in order.
    """

    drawn: int = 0
    begun: int = 0
    waiting: tuple[str, ...] = field(default=(), converter=as_tuple)

    def take(
        self, count: int, choose: Callable[[int], Sequence[Problem]]
    ) -> tuple[tuple[str, ...], ProblemStream]:
        """
        Ids of the next `count` problems, and the position after them.

        `choose(i)` gives the problems of batch i (0-based); it is asked only as far as needed.
        """
        waiting, drawn = self.waiting, self.drawn
        while len(waiting) < count:
            waiting += tuple(problem.id for problem in choose(drawn))
            drawn += 1
        after = attrs.evolve(self, drawn=drawn, begun=self.begun + count, waiting=waiting[count:])
        return waiting[:count], after

    def without_unknown(self, known: Collection[str]) -> ProblemStream:
        """The same position, without waiting problems that are not in the data set any more."""
        return attrs.evolve(self, waiting=[name for name in self.waiting if name in known])
