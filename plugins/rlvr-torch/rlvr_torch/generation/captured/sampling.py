"""Draw a token for each row without asking the device for a number: what a captured pass does.

The tokens are those that `TokenSampler` draws with the same uniform numbers, which decides row by
row on the host; here all rows do the same operations, and each takes the result it asked for.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
from attrs import frozen
from torch import Tensor

from rlvr_torch.generation.blockwise_top_k import likeliest
from rlvr_torch.generation.token_sampling import draw_from_all, place_of, room_for, sums_of


@frozen(kw_only=True)
class Kind:
    """The kinds of sampling that occur among the rows; a captured pass computes these."""

    is_hot: bool = False  # some temperature is neither 0 nor 1
    has_greedy: bool = False
    most: int = 0  # tokens that any row with top-k or top-p draws from, at most; 0: no such row


@frozen(kw_only=True, eq=False)
class Rows:
    """The settings of rows, each (R, 1)."""

    heat: Tensor  # temperature; 1 where it is 0
    is_greedy: Tensor
    is_cut: Tensor  # draws from its likeliest tokens only
    top_k: Tensor  # where it is not cut by number: more than any vocabulary
    top_p: Tensor  # where it is not cut by mass: above 1


Draw: TypeAlias = Callable[[Tensor, Tensor, Rows, Kind], tuple[Tensor, Tensor]]
"""`(logits, numbers, rows, kind)`, as `draw_rows`."""


def draw_rows(logits: Tensor, numbers: Tensor, rows: Rows, kind: Kind) -> tuple[Tensor, Tensor]:
    """
    The next token of each row and its logprob under the whole distribution at its temperature.

    Args:
        logits: (R, V) float32.
        numbers: A uniform number for each row, (R, 1).
        rows: Their settings.
        kind: The settings that occur.

    Returns:
        Tokens (R,) int64 and logprobs (R,) float32, nats; greedy rows report them at temperature 1.
    """
    heat, count = rows.heat if kind.is_hot else None, len(logits)
    tokens, logprobs = draw_from_all(logits, heat, numbers, room_for(logits, count))
    if kind.most:
        best, index = _leaders(logits, min(kind.most, logits.shape[1]))
        log_total = sums_of(logits, best[:, :1], heat, at_once=count).log_()
        best = best if heat is None else best / heat
        peak = best[:, :1]
        place = place_of(best - (peak + log_total), rows.top_k, rows.top_p, numbers)
        tokens = torch.where(rows.is_cut, index.gather(1, place), tokens)
        logprobs = torch.where(rows.is_cut, best.gather(1, place) - peak - log_total, logprobs)
    if kind.has_greedy:
        peak, first = likeliest(logits)
        log_total = sums_of(logits, peak, None, at_once=count).log_()
        tokens = torch.where(rows.is_greedy, first, tokens)
        logprobs = torch.where(rows.is_greedy, -log_total, logprobs)
    return tokens[:, 0], logprobs[:, 0]


def _leaders(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """
    The `count` largest numbers of each row, descending, and their indices; the first of equal ones.

    Number and index are one integer of 64 bits, so that no two are equal. Numbers that are not
    finite come out as they went in.
    """
    bits = (values + 0.0).view(torch.int32).long()  # -0 becomes 0
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits)  # as integers in the order of floats
    index = torch.arange(values.shape[1], device=values.device)
    names = (ordered << 32) | (0xFFFFFFFF - index)
    if count < values.shape[1]:
        names = names.topk(count, dim=1).values
    else:
        names = names.sort(dim=1, descending=True).values
    where = 0xFFFFFFFF - (names & 0xFFFFFFFF)
    return values.gather(1, where), where
