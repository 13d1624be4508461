"""One training sequence; a teacher's next-token distributions, and requests for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs
from attrs import field, frozen

from rlvr.types.frozen import (
    EQUAL,
    BoolArray,
    FloatArray,
    IntArray,
    as_tuple,
    bools,
    floats,
    frozen_map,
    ints,
)
from rlvr.types.problem import Message


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
class HiddenStates:
    """A model's states before its output head at n positions, (n, C)."""

    states: FloatArray = field(converter=floats, eq=EQUAL)


Distribution: TypeAlias = TopK | HiddenStates


@frozen(kw_only=True)
class TeacherRequest:
    """
    One sequence for a teacher to score.

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
class DistributionRequest:
    """
    Whole next-token distributions that a loss wants of a teacher.

    Attributes:
        k: Likeliest tokens a position; 0: the whole distribution.
        temperature: The teacher's logits are divided by it.
    """

    k: int
    temperature: float = 1.0


@frozen(kw_only=True)
class Datum:
    """
    One training sequence; every array has shape (T,).

    `logprobs[t]` is the sampler's logprob of `tokens[t]` given `tokens[:t]`. `mask[t]` is True
    where the policy wrote `tokens[t]`; elsewhere logprobs, advantages and weights are 0.
    `weights` carry the normalisation (they sum to 1 over the batch of an optimiser step), so that
    every loss is a plain weighted *sum* and splits exactly over micro-batches.
    `temperature` is the one it was sampled at: the trainer divides its logits by it.
    `annotations` hold per-token numbers by name: logprobs by other models ("reference",
    "teacher"), by the trainer before the step ("policy"), a critic's estimates ("value").
    `distributions` hold what teachers think of the next token, by annotation: rows are the
    supervised tokens (`mask`) in order. `labels` and `prompt` (its messages) are the problem's,
    `pictures` the trajectory's.
    """

    tokens: IntArray = field(converter=ints, eq=EQUAL)
    mask: BoolArray = field(converter=bools, eq=EQUAL)
    logprobs: FloatArray = field(converter=floats, eq=EQUAL)
    advantages: FloatArray = field(converter=floats, eq=EQUAL)
    weights: FloatArray = field(converter=floats, eq=EQUAL)
    temperature: float = 1.0
    problem_id: str = ""
    annotations: Mapping[str, FloatArray] = field(factory=dict, converter=frozen_map, eq=False)
    distributions: Mapping[str, Distribution] = field(
        factory=dict, converter=frozen_map, eq=False, repr=False
    )
    labels: Mapping[str, str] = field(factory=dict, converter=frozen_map)
    prompt: tuple[Message, ...] = field(default=(), converter=as_tuple, eq=False, repr=False)
    pictures: tuple[Any, ...] = field(default=(), converter=as_tuple, repr=False)
