"""Training data before they are sent: what a service should never see."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from rlvr.errors import BackendError, explain
from rlvr.types import Datum

PADDED = 1024
"""Ids that a model may have, and draw, beyond those of its tokenizer: rows that pad its matrix."""


def check_data(
    data: Sequence[Datum],
    *,
    vocab_size: int,
    positions: int,
    needs: Collection[str] = (),
) -> None:
    """
    Refuse data that would train on nonsense, or that a service repeats for ever.

    Args:
        data: What is to be sent.
        vocab_size: Ids go from 0 to one less.
        positions: Longest sequence that the model takes.
        needs: Annotations that the loss asks for.

    Raises:
        BackendError: Names the datum and its problem; nothing was sent.
    """
    for index, datum in enumerate(data):
        if reason := _fault(datum, vocab_size, positions, needs):
            raise BackendError(
                explain(
                    f"datum {index} of {len(data)} (problem {datum.problem_id!r}) was not sent.",
                    f"found: {reason}",
                    "check the reward and the advantage of this problem",
                )
            )


def _fault(datum: Datum, vocab_size: int, positions: int, needs: Collection[str]) -> str:
    length = len(datum.tokens)
    arrays = {
        "mask": datum.mask,
        "logprobs": datum.logprobs,
        "advantages": datum.advantages,
        "weights": datum.weights,
        **{f"annotation {name!r}": values for name, values in datum.annotations.items()},
    }
    for name, values in arrays.items():
        if np.shape(values) != (length,):
            return f"{name} has shape {np.shape(values)}, tokens ({length},)"
        if not np.isfinite(values).all():
            return f"{name} holds a number that is not finite"
    if missing := sorted(set(needs) - set(datum.annotations)):
        return f"the loss needs the annotation {missing[0]!r}, which it lacks"
    if length and (datum.tokens.min() < 0 or datum.tokens.max() >= vocab_size):
        low, high = datum.tokens.min(), datum.tokens.max()
        return f"token ids {low}..{high} leave the vocabulary 0..{vocab_size - 1}"
    if length and datum.mask[0]:
        return "its first token is supervised, but nothing comes before it"
    if datum.temperature != 1.0:
        return (
            f"it was sampled at temperature {datum.temperature:g}; the service gives the "
            "trainer's logprobs at 1 only: sampler.temperature=1"
        )
    if (end := extent(datum)) > positions:
        return f"it has {end} tokens, the model's context holds {positions}"
    return ""


def extent(datum: Datum) -> int:
    """Tokens up to the last supervised one: what comes after teaches nothing."""
    places = np.flatnonzero(datum.mask)
    return int(places[-1]) + 1 if len(places) else 0
