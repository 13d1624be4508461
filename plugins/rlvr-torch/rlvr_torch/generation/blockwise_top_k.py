"""The largest numbers of each row, looked for by blocks where a vocabulary is large.

What is in the blocks is looked at only where their largest numbers promise something.

Shapes: R rows, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor

_BLOCK = 128  # tokens of a block where the likeliest is wanted
_FEW = 64  # the same where several are


def likeliest(values: Tensor) -> tuple[Tensor, Tensor]:
    """
    The largest number of each row (R, V) and its index, both (R, 1); the first of equal ones.

    A row that holds NaN gives NaN.
    """
    vocab = values.shape[1]
    blocks = vocab // _BLOCK
    if blocks < _BLOCK:
        return values.max(dim=1, keepdim=True)
    whole, rest = values[:, : blocks * _BLOCK], values[:, blocks * _BLOCK :]
    peaks = whole.unflatten(1, (blocks, _BLOCK)).amax(dim=2)  # (R, blocks)
    block = peaks.max(dim=1, keepdim=True).indices
    index = block * _BLOCK + torch.arange(_BLOCK, device=values.device)  # (R, _BLOCK)
    peak, inner = values.gather(1, index).max(dim=1, keepdim=True)
    token = index.gather(1, inner)
    if rest.shape[1]:
        last, where = rest.max(dim=1, keepdim=True)
        is_last = (last > peak) | (last.isnan() & ~peak.isnan())
        token = torch.where(is_last, where + blocks * _BLOCK, token)
        peak = torch.maximum(peak, last)
    return peak, token


def leaders(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """
    The `count` largest numbers of each row, descending, and their indices; the first of equal ones.

    Selecting them first costs one pass over a vocabulary; sorting it costs many.
    """
    if count >= values.shape[1]:
        return values.sort(dim=1, descending=True, stable=True)
    best, where = _top(values, count + 1)
    rows = (best[:, 1:] == best[:, :-1]).any(dim=1).nonzero()[:, 0]  # of more than one order
    best, where = best[:, :count], where[:, :count]
    if len(rows):
        best[rows], where[rows] = _in_order(values[rows], best[rows, -1:], count)
    return best, where


def _in_order(values: Tensor, least: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of rows that hold equal numbers; `least` (R, 1) is the last of them."""
    is_leader = values >= least
    if int(is_leader.sum()) == count * len(values):  # no other token is as likely as the last
        index = is_leader.nonzero()[:, 1].view(len(values), count)  # (R, count), ascending
        ordered, order = values.gather(1, index).sort(dim=1, descending=True, stable=True)
        return ordered, index.gather(1, order)
    ordered, index = values.sort(dim=1, descending=True, stable=True)
    return ordered[:, :count], index[:, :count]


def _top(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """
    The largest numbers of each row, descending, and their indices; any of equal ones.

    In a large vocabulary only the blocks with the largest maxima are looked at: a number in another
    block has at least `count` numbers before it.
    """
    vocab = values.shape[1]
    blocks = vocab // _FEW
    if blocks < 4 * count:
        return values.topk(count, dim=1)
    whole = blocks * _FEW
    peaks = values[:, :whole].unflatten(1, (blocks, _FEW)).amax(dim=2)  # (R, blocks)
    chosen = peaks.topk(count, dim=1, sorted=False).indices[:, :, None]
    inside = (chosen * _FEW + torch.arange(_FEW, device=values.device)).flatten(1)
    rest = torch.arange(whole, vocab, device=values.device).expand(len(values), -1)
    index = torch.cat([inside, rest], dim=1)
    best, where = values.gather(1, index).topk(count, dim=1)
    return best, index.gather(1, where)
