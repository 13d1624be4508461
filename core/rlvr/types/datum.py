"""One training sequence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from rlvr.types.distribution import Distribution
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
