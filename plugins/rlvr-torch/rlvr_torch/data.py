"""Training data before use: checked, and cut into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlvr.errors import BackendError
from rlvr.types import Datum
from rlvr_torch.packed import Extent


def check_data(
    data: Sequence[Datum], vocab_size: int, positions: int, needs: frozenset[str] = frozenset()
) -> None:
    """
    Refuse data that would train on nonsense, before any of it is used.

    Raises:
        BackendError: Names the datum and its problem: arrays of unequal length, ids outside the
            vocabulary, a number that is not finite, a supervised first token, a temperature that
            is not positive, more tokens than the model has positions, or a missing annotation.
    """
    for index, datum in enumerate(data):
        reason = _fault(datum, vocab_size, positions, needs)
        if reason:
            raise BackendError(
                f"datum {index} of {len(data)} (problem {datum.problem_id!r}) cannot be used: "
                f"{reason}"
            )


def _fault(datum: Datum, vocab_size: int, positions: int, needs: frozenset[str]) -> str:
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
    missing = sorted(needs - set(datum.annotations))
    if missing:
        return f"the loss needs the annotation {missing[0]!r}, which it lacks"
    if length and (datum.tokens.min() < 0 or datum.tokens.max() >= vocab_size):
        low, high = datum.tokens.min(), datum.tokens.max()
        return f"token ids {low}..{high} leave the model's vocabulary 0..{vocab_size - 1}"
    if length and datum.mask[0]:
        return "its first token is supervised, but nothing comes before it"
    if not (datum.temperature > 0 and np.isfinite(datum.temperature)):
        return f"its temperature is {datum.temperature}, which must be positive"
    if (end := Extent.of(datum).end) > positions:
        return f"it has {end} tokens, the model {positions} positions"
    return ""


def microbatches(data: Sequence[Datum], budget: int) -> list[list[int]]:
    """
    Indices of the data that one forward pass each holds: at most `budget` tokens, or one.

    Data with equal prompts stay together, for their prompt is computed, and counted, once. Similar
    lengths are near. The cut depends on the data, not on their order: equal sets of data give equal
    micro-batches. Data without a supervised token are left out.
    """
    extents = [Extent.of(datum) for datum in data]
    leads = [d.tokens[: e.prompt].tobytes() for d, e in zip(data, extents, strict=True)]
    longest: dict[bytes, int] = {}
    for lead, extent in zip(leads, extents, strict=True):
        longest[lead] = max(longest.get(lead, 0), extent.end)
    order = sorted(
        (i for i, extent in enumerate(extents) if extent.end),
        key=lambda i: (
            longest[leads[i]],
            leads[i],
            extents[i].end,
            data[i].tokens.tobytes(),
            data[i].advantages.tobytes(),
        ),
    )
    batches: list[list[int]] = []
    tokens = 0
    for i in order:
        own = extents[i].end - extents[i].prompt
        is_known = bool(batches) and leads[batches[-1][-1]] == leads[i]  # equal prompts: neighbours
        more = own if is_known else own + extents[i].prompt
        if batches and tokens + more <= budget:
            batches[-1].append(i)
            tokens += more
        else:
            batches.append([i])
            tokens = own + extents[i].prompt
    return batches
