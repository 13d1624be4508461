"""Made-up teachers and their answers, for tests of losses that compare distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeVar

import attrs
import numpy as np

from rlvr.parts import LearningPart, Teacher
from rlvr.types import Datum, DistributionRequest, FloatArray, TopK

P = TypeVar("P", bound=LearningPart)
VOCABULARY = 7
"""Tokens of the made-up models, as of `random_data`."""


class MadeUp(Teacher):
    """A teacher for `LearningPart.meet`, which no test asks for anything."""

    context_length = 4096
    tokenizer: Any = SimpleNamespace(vocab_size=VOCABULARY)

    def __init__(self, name: str = "teacher") -> None:
        self.name = name

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """Never asked."""
        raise NotImplementedError


def met(part: P) -> P:
    """The loss or advantage after it met its teachers, who tell logprobs and have no states."""
    names = {*part.needs.teachers, *part.needs.distributions}
    part.meet({name: MadeUp(name) for name in sorted(names)})
    return part


def taught(
    data: Sequence[Datum],
    asks: Mapping[str, DistributionRequest],
    *,
    spread: float = 1.0,
    seed: int = 5,
) -> list[Datum]:
    """The data with what each teacher answers at their supervised tokens, logits in +-`spread`."""
    rng = np.random.default_rng(seed)
    made = []
    for datum in data:
        told = {
            name: _told(rng, datum.tokens[datum.mask], ask.k, spread) for name, ask in asks.items()
        }
        made.append(attrs.evolve(datum, distributions=told) if told else datum)
    return made


def _told(rng: np.random.Generator, tokens: np.ndarray, k: int, spread: float) -> TopK:
    logits = spread * rng.uniform(-1, 1, (len(tokens), VOCABULARY))  # (n, V)
    logprobs = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    k = min(k or VOCABULARY, VOCABULARY)
    ids = np.argsort(-logprobs, axis=1)[:, :k]
    return TopK(
        ids=ids,
        logprobs=np.take_along_axis(logprobs, ids, 1),
        actual=np.take_along_axis(logprobs, tokens[:, None], 1)[:, 0],
        is_whole=k == VOCABULARY,
    )
