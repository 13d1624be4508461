"""Next-token distributions of a teacher, and what is asked of it."""

from __future__ import annotations

from typing import Any, TypeAlias

import attrs
from attrs import field, frozen

from rlvr.types.frozen import EQUAL, FloatArray, IntArray, as_tuple, floats, ints


@frozen(kw_only=True)
class TopK:
    """
    The likeliest tokens at n positions, and the one that stands there.

    Attributes:
        ids: (n, k), each at most once a row, in any order; -1: none.
        logprobs: (n, k) nats, at the temperature asked for; -inf where `ids` is -1.
        actual: (n,) nats, of the token that stands at the position.
        is_whole: Whether nothing is left over: k is the vocabulary.
    """

    ids: IntArray = field(converter=ints, eq=EQUAL)
    logprobs: FloatArray = field(converter=floats, eq=EQUAL)
    actual: FloatArray = field(converter=floats, eq=EQUAL)
    is_whole: bool = False

    def rows(self, chosen: Any) -> TopK:
        """The same at some of the positions."""
        return attrs.evolve(
            self, ids=self.ids[chosen], logprobs=self.logprobs[chosen], actual=self.actual[chosen]
        )


@frozen(kw_only=True)
class States:
    """A model's states before its output head at n positions, (n, C)."""

    states: FloatArray = field(converter=floats, eq=EQUAL)


Distribution: TypeAlias = TopK | States


@frozen(kw_only=True)
class Question:
    """
    One sequence that a teacher is to score.

    Attributes:
        ids: (S,) token ids.
        start: First position wanted, at least 1: the answer has rows for `start` to S - 1. The row
            of position t is the distribution that `ids[t]` was drawn from, given `ids[:t]`.
        k: Likeliest tokens a position, at least 1.
        temperature: That the logits are divided by.
        pictures: As `Trajectory.pictures`.
    """

    ids: IntArray = field(converter=ints, eq=EQUAL)
    start: int
    k: int
    temperature: float = 1.0
    pictures: tuple[Any, ...] = field(default=(), converter=as_tuple, repr=False)


@frozen(kw_only=True)
class Ask:
    """
    Whole next-token distributions that a loss wants of a teacher.

    Attributes:
        k: Likeliest tokens a position; 0: the whole distribution.
        temperature: The teacher's logits are divided by it.
    """

    k: int
    temperature: float = 1.0
