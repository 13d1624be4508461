"""Sampling of the next token: temperature, top-k, top-p, greedy; one random number a token.

Each request has a counter-based generator of its own (NumPy's Philox, keyed by the request's seed)
and the token is the inverse of the cumulative distribution at its next number. So a request draws
the same tokens whatever batch it sits in.

Shapes: R rows, V vocabulary, W numbers kept a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from rlvr import GenerateRequest
from rlvr_torch.generation.blockwise_top_k import leaders, likeliest

How: TypeAlias = Literal["greedy", "whole", "cut"]
_OFF = 2.0  # a nucleus mass that keeps everything, rounding included
_BLOCK = 128  # tokens whose probabilities are added up before any is looked at
_CACHED = 1 << 18  # numbers that stay in a core's cache


@frozen(kw_only=True, eq=False)
class _Part:
    """Rows that draw in the same way."""

    how: How  # the likeliest token; from the whole distribution; or from its top only
    rows: slice | Tensor
    heat: Tensor | None  # their temperatures (n, 1); None where all are 1
    top_k: Tensor  # (n, 1), of rows that draw from the top; `top_p` likewise
    top_p: Tensor
    most: int  # the largest top_k


class TokenSampler:
    """The sampling settings of rows, and their random numbers."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._numbers = torch.zeros(0, 0, device=device)  # (R, W)
        self._count = torch.zeros(0, 1, dtype=torch.int64, device=device)  # drawn before
        self._heat = torch.ones(0, 1, device=device)
        self._top_k = torch.zeros(0, dtype=torch.int64, device=device)
        self._top_p = torch.zeros(0, device=device)
        self._how: list[How] = []
        self._is_hot: list[bool] = []  # at a temperature other than 0 and 1
        self._parts: dict[int, list[_Part]] = {}  # of the first n rows, until any of them changes
        self._room = torch.empty(0, 0, device=device)

    def reserve(self, rows: int) -> None:
        more = rows - len(self._how)
        for name in ("numbers", "count", "heat", "top_k", "top_p"):
            value: Tensor = getattr(self, f"_{name}")
            setattr(self, f"_{name}", torch.cat([value, value.new_ones(more, *value.shape[1:])]))
        self._how += ["whole"] * more
        self._is_hot += [False] * more
        self._parts.clear()

    def seat(
        self, rows: Sequence[int], requests: Sequence[GenerateRequest], lengths: Sequence[int]
    ) -> None:
        """Give rows to requests; each may draw as many tokens as `lengths` says."""
        have, want = self._numbers.shape[1], max(lengths)
        if want > have:
            wider = self._numbers.new_zeros(len(self._numbers), want)
            wider[:, :have] = self._numbers
            self._numbers = wider
        numbers = np.zeros((len(rows), want), np.float32)
        for target, request, length in zip(numbers, requests, lengths, strict=True):
            philox = np.random.Philox(key=request.seed & (2**128 - 1))
            target[:length] = np.random.Generator(philox).random(length)
        params = [request.params for request in requests]
        at = self._index(rows)
        self._numbers[at, :want] = torch.from_numpy(numbers).to(self._device)
        self._count[at] = 0
        self._heat[at, 0] = self._index([p.temperature or 1.0 for p in params])
        self._top_k[at] = self._index([p.top_k or 2**31 for p in params])
        self._top_p[at] = self._index([p.top_p if p.top_p < 1 else _OFF for p in params])
        for row, one in zip(rows, params, strict=True):
            self._is_hot[row] = one.temperature not in (0, 1)
            drawn: How = "cut" if one.is_truncated else "whole"
            self._how[row] = drawn if one.temperature else "greedy"
        self._parts.clear()

    def move(self, source: int, target: int) -> None:
        for name in ("numbers", "count", "heat", "top_k", "top_p", "how", "is_hot"):
            values = getattr(self, f"_{name}")
            values[target] = values[source]
        self._parts.clear()

    def draw(self, logits: Tensor, rows: Sequence[int]) -> tuple[Tensor, Tensor]:
        """
        The next token of each of these rows and its logprob.

        The logprob is the one under the whole distribution at the row's temperature, also where
        top-k or top-p restricted the choice: the trainer, which never truncates, computes the same
        number. Greedy rows (temperature 0) report it at temperature 1.

        Args:
            logits: Shape (R, V), float32, in the order of `rows`.
            rows: R rows, ascending; `range(n)` for the first n.

        Returns:
            Tokens (R,) int64 and logprobs (R,) float32, nats.
        """
        parts = self._parts_of(rows)
        if all(part.how == "greedy" for part in parts):
            return _draw_likeliest(logits)
        at = slice(0, len(rows)) if isinstance(rows, range) else self._index(rows)
        count = self._count[at]
        numbers = self._numbers[at].gather(1, count.clamp(max=self._numbers.shape[1] - 1))
        self._count[at] = count + 1
        if len(parts) == 1:
            return self._draw_part(parts[0], logits, numbers)
        tokens = torch.empty(len(logits), dtype=torch.int64, device=self._device)
        logprobs = torch.empty_like(numbers[:, 0])
        for part in parts:
            some = part.rows
            tokens[some], logprobs[some] = self._draw_part(part, logits[some], numbers[some])
        return tokens, logprobs

    def _draw_part(self, part: _Part, logits: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        if part.how == "greedy":
            return _draw_likeliest(logits)
        if part.how == "cut":
            return _draw_from_top(logits, part, numbers)
        tokens, logprobs = draw_from_all(logits, part.heat, numbers, self._buffer(logits))
        return tokens[:, 0], logprobs[:, 0]

    def _buffer(self, logits: Tensor) -> Tensor:
        """A buffer of whole blocks, always the same: new memory costs more than the arithmetic."""
        if len(self._room) < len(logits) or self._room.shape[1] != _whole(logits.shape[1]):
            self._room = room_for(logits, len(logits))
        return self._room[: len(logits)]

    def _parts_of(self, rows: Sequence[int]) -> list[_Part]:
        """The rows by the way they draw; kept for the first n rows, which most passes draw."""
        if isinstance(rows, range) and len(rows) in self._parts:
            return self._parts[len(rows)]
        parts = []
        for how in sorted({self._how[row] for row in rows}):
            some = [i for i, row in enumerate(rows) if self._how[row] == how]
            whose = torch.tensor([rows[i] for i in some], dtype=torch.int64, device=self._device)
            is_hot = any(self._is_hot[rows[i]] for i in some)
            part = _Part(
                how=how,
                rows=slice(0, len(rows)) if len(some) == len(rows) else self._index(some),
                heat=self._heat[whose] if is_hot else None,
                top_k=self._top_k[whose, None],
                top_p=self._top_p[whose, None],
                most=int(self._top_k[whose].max()),
            )
            parts.append(part)
        if isinstance(rows, range):
            self._parts[len(rows)] = parts
        return parts

    def _index(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self._device)


def _draw_likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    peak, tokens = likeliest(logits)
    return tokens[:, 0], -sums_of(logits, peak, None).log_()[:, 0]


def draw_from_all(
    logits: Tensor, heat: Tensor | None, numbers: Tensor, room: Tensor
) -> tuple[Tensor, Tensor]:
    """
    A token (R, 1) of each row's whole distribution, and its logprob (R, 1).

    `numbers` (R, 1) are uniform; `room` is overwritten, see `room_for`.
    """
    vocab = logits.shape[1]
    part = room[:, :vocab]
    scaled = logits if heat is None else torch.div(logits, heat, out=part)
    peak = scaled.amax(dim=1, keepdim=True)
    torch.sub(scaled, peak, out=part)
    tokens, total = _invert(_exp(room, vocab), numbers)  # not normalised
    tokens.clamp_(max=vocab - 1)
    chosen = logits.gather(1, tokens)
    return tokens, (chosen if heat is None else chosen / heat) - peak - total.log_()


def _draw_from_top(logits: Tensor, part: _Part, numbers: Tensor) -> tuple[Tensor, Tensor]:
    best, index = leaders(logits, part.most)
    log_total = sums_of(logits, best[:, :1], part.heat).log_()
    if part.heat is not None:
        best = best / part.heat
    peak = best[:, :1]
    place = place_of(best - (peak + log_total), part.top_k, part.top_p, numbers)
    logprobs = best.gather(1, place) - peak - log_total
    return index.gather(1, place)[:, 0], logprobs[:, 0]


def _invert(mass: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """
    The first index whose cumulative mass exceeds `numbers` (R, 1) times the total; and the total.

    The mass is in whole blocks. First the block of tokens is found, then the token in it: most of a
    large vocabulary is only added up.
    """
    blocks = mass.unflatten(1, (-1, _BLOCK))
    upto = blocks.sum(dim=2).cumsum(dim=1)  # (R, blocks)
    total = upto[:, -1:]
    target = _below(numbers * total, total)
    block = torch.searchsorted(upto, target, right=True).clamp_(max=upto.shape[1] - 1)  # (R, 1)
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), 0.0)
    inner = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].cumsum(dim=1)
    found = torch.searchsorted(inner, _below(target - before, inner[:, -1:]), right=True)
    return block * _BLOCK + found, total


def _below(target: Tensor, total: Tensor) -> Tensor:
    """The target, or the largest number below the total."""
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def sums_of(
    values: Tensor, peak: Tensor, heat: Tensor | None, *, at_once: int | None = None
) -> Tensor:
    """
    The sum (R, 1) of each row's exp((value - peak) / heat); peak (R, 1), heat (R, 1) or None.

    So many rows at once; by default as many as stay in a core's cache.
    """
    vocab = values.shape[1]
    rows = at_once or max(1, _CACHED // vocab)
    room = room_for(values, min(rows, len(values)))
    sums = []
    for i in range(0, len(values), rows):
        part = values[i : i + rows]
        mass = torch.sub(part, peak[i : i + rows], out=room[: len(part), :vocab])
        if heat is not None:
            mass.div_(heat[i : i + rows])
        blocks = _exp(room[: len(part)], vocab).unflatten(1, (-1, _BLOCK)).sum(dim=2)
        sums.append(blocks.sum(dim=1, keepdim=True))
    return torch.cat(sums) if len(sums) > 1 else sums[0]


def _exp(room: Tensor, vocab: int) -> Tensor:
    """Exponentials in place of the first numbers of each row, 0 behind them."""
    room[:, vocab:] = float("-inf")
    return room.exp_()


def room_for(values: Tensor, rows: int) -> Tensor:
    """An empty buffer of whole blocks: the end of an odd row would round differently."""
    return values.new_empty(rows, _whole(values.shape[1]))


def _whole(count: int) -> int:
    return -(-count // _BLOCK) * _BLOCK


def place_of(ordered: Tensor, top_k: Tensor, top_p: Tensor, numbers: Tensor) -> Tensor:
    """
    The rank (R, 1) of the drawn token among the likeliest, by logprobs (R, N), descending.

    Settings (R, 1) and uniform `numbers` (R, 1) are the rows'.
    """
    # Whole blocks: a row's sums are then the same beside rows of another top-k.
    count = ordered.shape[1]
    ordered = F.pad(ordered, (0, -count % _BLOCK), value=float("-inf")).exp_()  # probabilities
    before = ordered.cumsum(dim=1).sub_(ordered)
    is_kept = before < top_p
    rank = torch.arange(ordered.shape[1], device=ordered.device)
    is_kept &= rank < top_k
    is_kept[:, 0] = True
    return _invert(ordered.mul_(is_kept), numbers)[0].clamp_(max=count - 1)
