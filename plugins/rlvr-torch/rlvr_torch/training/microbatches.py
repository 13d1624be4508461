"""Training data before use: checked, and cut into micro-batches."""

from __future__ import annotations

from collections.abc import Sequence

import rlvr
from rlvr import Datum
from rlvr_torch.training.prefix_packing import Extent


def check_data(
    data: Sequence[Datum], vocab_size: int, positions: int, needs: frozenset[str] = frozenset()
) -> None:
    """Refuse data that would train on nonsense, before any of it is used (`rlvr.check_data`)."""
    rlvr.check_data(data, needs=needs, vocab_size=vocab_size, positions=positions)


def microbatches(data: Sequence[Datum], budget: int) -> list[list[int]]:
    """
    Indices of the data that one forward pass each holds: at most `budget` tokens, or one.

    Data with equal prompts stay together, for their prompt is computed, and counted, once; those
    with pictures share nothing. Similar lengths are near. The cut depends on the data, not on their
    order: equal sets of data give equal micro-batches. Data without a supervised token are left
    out.
    """
    extents = [Extent.of(datum) for datum in data]
    leads = [_lead(d, e) for d, e in zip(data, extents, strict=True)]
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
        whole = extents[i].end
        is_known = (  # equal prompts: neighbours
            bool(batches) and leads[batches[-1][-1]] == leads[i] and not data[i].pictures
        )
        more = whole - extents[i].prompt if is_known else whole
        if batches and tokens + more <= budget:
            batches[-1].append(i)
            tokens += more
        else:
            batches.append([i])
            tokens = whole
    return batches


def _lead(datum: Datum, extent: Extent) -> bytes:
    """The bytes by which prompts are told apart."""
    shown = repr(datum.pictures).encode() if datum.pictures else b""
    return datum.tokens[: extent.prompt].tobytes() + shown
