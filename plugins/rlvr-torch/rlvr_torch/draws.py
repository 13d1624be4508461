"""How the next token is drawn: temperature, top-k, top-p, greedy; one random number a token.

Each request has a counter-based generator of its own (NumPy's Philox, keyed by the request's seed)
and the token is the inverse of the cumulative distribution at its next number. So a request draws
the same tokens whatever batch it sits in.

Shapes: R rows, V vocabulary, W numbers kept a row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from rlvr.types import GenerateRequest
from rlvr_torch.leaders import leaders, likeliest

_OFF = 2.0  # a nucleus mass that keeps everything, rounding included
_BLOCK = 128  # tokens whose probabilities are added up before any is looked at
_CACHED = 1 << 18  # numbers that stay in a core's cache


@frozen(kw_only=True)
class _Kinds:
    """How some rows draw."""

    has_greedy: bool  # some take the likeliest token
    is_greedy: bool  # all do
    has_whole: bool  # some draw from the whole distribution
    has_hot: bool  # some have a temperature other than 0 and 1
    cut: slice | Tensor | None  # which of them draw from the top only
    top_k: Tensor  # (cut rows, 1)
    top_p: Tensor  # (cut rows, 1)
    most: int  # the largest top_k


class Draws:
    """The sampling settings of at most `rows` rows, and their random numbers."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._device = device
        self._numbers = torch.zeros(rows, 0, device=device)  # (R, W)
        self._count = torch.zeros(rows, 1, dtype=torch.int64, device=device)  # drawn before
        self._greedy = torch.zeros(rows, 1, dtype=torch.bool, device=device)
        self._heat = torch.ones(rows, 1, device=device)
        self._top_k = torch.zeros(rows, dtype=torch.int64, device=device)
        self._top_p = torch.zeros(rows, device=device)
        self._is_greedy = [False] * rows
        self._is_cut = [False] * rows
        self._is_hot = [False] * rows
        self._kinds: dict[int, _Kinds] = {}  # of the first n rows, until any of them changes
        self._room = torch.empty(0, 0, device=device)

    def seat(
        self, rows: Sequence[int], requests: Sequence[GenerateRequest], lengths: Sequence[int]
    ) -> None:
        """Requests take rows; each may draw so many tokens."""
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
        self._greedy[at, 0] = self._index([p.temperature == 0 for p in params])
        self._heat[at, 0] = self._index([p.temperature or 1.0 for p in params])
        self._top_k[at] = self._index([p.top_k or 2**31 for p in params])
        self._top_p[at] = self._index([p.top_p if p.top_p < 1 else _OFF for p in params])
        for row, one in zip(rows, params, strict=True):
            self._is_greedy[row] = one.temperature == 0
            self._is_hot[row] = one.temperature not in (0, 1)
            self._is_cut[row] = one.is_truncated and one.temperature > 0
        self._kinds.clear()

    def move(self, source: int, target: int) -> None:
        """A row's request goes to another row."""
        for name in ("numbers", "count", "greedy", "heat", "top_k", "top_p"):
            values = getattr(self, f"_{name}")
            values[target] = values[source]
        for flags in (self._is_greedy, self._is_cut, self._is_hot):
            flags[target] = flags[source]
        self._kinds.clear()

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
        kinds = self._kinds_of(rows)
        if kinds.is_greedy:
            peak, tokens = likeliest(logits)
            return tokens[:, 0], -_sums(logits, peak).log_()[:, 0]
        at = slice(0, len(rows)) if isinstance(rows, range) else self._index(rows)
        count = self._count[at]
        numbers = self._numbers[at].gather(1, count.clamp(max=self._numbers.shape[1] - 1))
        self._count[at] = count + 1
        scaled = logits
        if kinds.has_hot:
            scaled = torch.div(logits, self._heat[at], out=self._buffer(logits))
        peak = scaled.amax(dim=1, keepdim=True)
        if kinds.has_whole:
            tokens, total = _invert((scaled - peak).exp_(), numbers)  # of (R, V), not normalised
        else:
            total = _sums(scaled, peak)
            tokens = torch.empty_like(numbers, dtype=torch.int64)
        if kinds.has_greedy:
            tokens = torch.where(self._greedy[at], likeliest(logits)[1], tokens)
        log_total = total.log()
        if kinds.cut is not None:
            some = kinds.cut
            whole = (peak + log_total)[some]
            tokens[some] = _draw_cut(scaled[some], whole, numbers[some], kinds)
        logprobs = scaled.gather(1, tokens) - peak - log_total
        return tokens[:, 0], logprobs[:, 0]

    def _buffer(self, logits: Tensor) -> Tensor:
        """Room for as many numbers, the same at each call: fresh memory costs more than they do."""
        if self._room.shape[1:] != logits.shape[1:] or len(self._room) < len(logits):
            self._room = torch.empty_like(logits, memory_format=torch.contiguous_format)
        return self._room[: len(logits)]

    def _kinds_of(self, rows: Sequence[int]) -> _Kinds:
        """Looked up for the first n rows, which most passes draw."""
        if isinstance(rows, range) and len(rows) in self._kinds:
            return self._kinds[len(rows)]
        cut = [i for i, row in enumerate(rows) if self._is_cut[row]]
        whose = torch.tensor([rows[i] for i in cut], dtype=torch.int64, device=self._device)
        some: slice | Tensor | None = slice(0, len(rows)) if len(cut) == len(rows) else None
        if cut and some is None:
            some = self._index(cut)
        kinds = _Kinds(
            has_greedy=any(self._is_greedy[row] for row in rows),
            is_greedy=all(self._is_greedy[row] for row in rows),
            has_whole=not all(self._is_greedy[row] or self._is_cut[row] for row in rows),
            has_hot=any(self._is_hot[row] for row in rows),
            cut=some,
            top_k=self._top_k[whose, None],
            top_p=self._top_p[whose, None],
            most=int(self._top_k[whose].max()) if cut else 0,
        )
        if isinstance(rows, range):
            self._kinds[len(rows)] = kinds
        return kinds

    def _index(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, device=self._device)


def _invert(mass: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
    """
    The first index whose cumulative mass exceeds `numbers` (R, 1) of the whole; and the whole.

    First the block of tokens is found, then the token in it: most of a large vocabulary is only
    added up.
    """
    vocab = mass.shape[1]
    blocks = vocab // _BLOCK
    whole, rest = mass[:, : blocks * _BLOCK], mass[:, blocks * _BLOCK :]
    sums = torch.cat(
        [whole.unflatten(1, (blocks, _BLOCK)).sum(dim=2), rest.sum(dim=1, keepdim=True)], dim=1
    )  # (R, blocks + 1)
    upto = sums.cumsum(dim=1)
    total = upto[:, -1:]
    target = _below(numbers * total, total)
    block = torch.searchsorted(upto, target, right=True).clamp_(max=blocks)
    before = torch.where(block > 0, upto.gather(1, (block - 1).clamp(min=0)), 0.0)
    index = block * _BLOCK + torch.arange(_BLOCK, device=mass.device)  # (R, _BLOCK)
    inside = mass.gather(1, index.clamp(max=vocab - 1)).masked_fill_(index >= vocab, 0.0)
    inner = inside.cumsum(dim=1)
    found = torch.searchsorted(inner, _below(target - before, inner[:, -1:]), right=True)
    return (block * _BLOCK + found).clamp_(max=vocab - 1), total


def _below(target: Tensor, total: Tensor) -> Tensor:
    """The target, or the largest number below the total."""
    return torch.minimum(target, torch.nextafter(total, torch.zeros_like(total)))


def _sums(values: Tensor, peak: Tensor) -> Tensor:
    """Of each row's exponentials after its peak (R, 1) was subtracted: (R, 1)."""
    rows = max(1, _CACHED // values.shape[1])
    if rows >= len(values):
        return (values - peak).exp_().sum(dim=1, keepdim=True)
    room = torch.empty_like(values[:rows], memory_format=torch.contiguous_format)
    sums = []
    for i in range(0, len(values), rows):
        part = values[i : i + rows]
        mass = torch.sub(part, peak[i : i + rows], out=room[: len(part)]).exp_()
        sums.append(mass.sum(dim=1, keepdim=True))
    return torch.cat(sums)


def _draw_cut(scaled: Tensor, whole: Tensor, numbers: Tensor, kinds: _Kinds) -> Tensor:
    """`whole` (R, 1): logarithm of the sum of all exponentials."""
    ordered, index = leaders(scaled, kinds.most)
    ordered = (ordered - whole).exp_()  # probabilities
    before = ordered.cumsum(dim=1).sub_(ordered)
    is_kept = before < kinds.top_p
    rank = torch.arange(ordered.shape[1], device=scaled.device)
    is_kept &= rank < kinds.top_k
    is_kept[:, 0] = True
    # Whole blocks: a row's sums are then the same beside rows of another top-k.
    kept = F.pad(ordered.mul_(is_kept), (0, -ordered.shape[1] % _BLOCK))
    if kept.shape[1] > _BLOCK:
        return index.gather(1, _invert(kept, numbers)[0])
    total = kept.unflatten(1, (1, _BLOCK)).sum(dim=2)  # (R, 1)
    inner = kept.cumsum(dim=1)
    target = _below(_below(numbers * total, total), inner[:, -1:])
    found = torch.searchsorted(inner, target, right=True)
    return index.gather(1, found.clamp_(max=index.shape[1] - 1))
