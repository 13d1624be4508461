"""Memory of an engine for the run: the buffers of a decoding pass, and the captured passes.

A pass reads the rows' last tokens, settings and random numbers from buffers and leaves the next
tokens in another one. So it is the same work each time, and the next batch replays what the batch
before has captured.

Shapes: R rows, B rows there is room for, V vocabulary.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence, Set

import numpy as np
import torch
from torch import Tensor

from rlvr import GenerateRequest
from rlvr_torch.generation.captured.attention import power
from rlvr_torch.generation.captured.cache import AttentionOf, StaticCache
from rlvr_torch.generation.captured.graphs import Capture, StepGraphs
from rlvr_torch.generation.captured.philox import keys_of, uniforms
from rlvr_torch.generation.captured.sampling import Draw, Kind, Rows
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.interface import RunningBatch
from rlvr_torch.models.interface import Net

_AHEAD = 64  # random numbers a row that are made at once
_OFF = 2.0  # a nucleus mass that keeps everything, rounding included
_MANY = 1 << 31  # more tokens than any vocabulary has
_SEED, _TOP_K, _ROOM, _GREEDY, _CUT = slice(0, 2), 2, 3, 4, 5  # columns of the whole numbers


class DecodeMemory:
    """
    Buffers of the batches of one engine, one batch after the other.

    Attributes:
        cache: Keys and values.
        graphs: The captured passes.
        drawn: The last token of each row, (B, 1); a pass reads it.
        found: What a pass draws, (B, 3) int32: tokens, the bits of their logprobs, and whether a
            completion may end with it (a token that ends it, no more room, a logprob that is not
            finite).
        is_whole: False once room was lacking: some buffers may have grown, others not.
    """

    def __init__(
        self,
        net: Net,
        weights: DecodeWeights,  # as decoding reads them
        *,
        dtype: torch.dtype,  # type keys and values are kept in
        capture: Capture,
        attention: AttentionOf,
        draw: Draw,
    ) -> None:
        self._net, self.weights, self._draw = net, weights, draw
        self.is_whole = True
        self._device = net.head.device
        self._batch: Callable[[], RunningBatch | None] = lambda: None
        self._values: tuple[int, ...] = ()
        self.graphs = StepGraphs(capture)
        self.cache = StaticCache(
            net.heads, dtype=dtype, device=self._device, attention=attention, send=capture.send
        )
        self._whole = np.zeros((0, 6), np.int64)  # settings of rows on the host
        self._broken = np.zeros((0, 2), np.float32)  # temperature, top-p
        self._is_changed = True
        self._kind = Kind()
        self._base = 0  # clock of the first of the random numbers
        self._base_at = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._ends = self._base_at.new_zeros(0)
        self._known_ends: Set[int] = frozenset()
        self._make(0)

    def _make(self, rows: int) -> None:
        numbers = torch.zeros(rows, _AHEAD, device=self._device)
        self.drawn = torch.zeros(rows, 1, dtype=torch.int64, device=self._device)
        self.found = torch.zeros(rows, 3, dtype=torch.int32, device=self._device)
        self._settings = torch.zeros(rows, 6, dtype=torch.int64, device=self._device)
        self._shares = torch.zeros(rows, 2, device=self._device)
        self._numbers = numbers

    # Whose it is

    @property
    def is_free(self) -> bool:
        batch = self._batch()
        return batch is None or batch.is_done

    def lend(self, batch: RunningBatch) -> None:
        """Give the memory, without rows, to this batch until it is done."""
        self._batch = weakref.ref(batch)
        self.cache.restart()
        self.look_for_weights()

    def belongs_to(self, batch: RunningBatch) -> bool:
        return self._batch() is batch

    def look_for_weights(self) -> None:
        """Forget what was captured for weights that lie elsewhere now."""
        values = tuple(value.data_ptr() for value in self._net.module.parameters())
        if values != self._values:
            self.graphs.clear()
            self._values = values

    # Rows

    def reserve(self, rows: int) -> None:
        self.cache.reserve(rows)
        if rows > len(self.drawn):
            drawn = self.drawn
            self._make(rows)
            self.drawn[: len(drawn)] = drawn
            more = rows - len(self._whole)
            self._whole = np.concatenate([self._whole, np.zeros((more, 6), np.int64)])
            self._broken = np.concatenate([self._broken, np.ones((more, 2), np.float32)])
            self._is_changed = True

    def know_ends(self, ends: Set[int]) -> None:
        """Tokens that may end a completion, beside those known already."""
        if ends <= self._known_ends:
            return
        self._known_ends = self._known_ends | ends
        known = sorted(self._known_ends)
        if len(known) > len(self._ends):
            self._ends = self._base_at.new_full((power(len(known)),), -1)
        self._ends[: len(known)] = torch.tensor(known)

    def seat(
        self, rows: Sequence[int], requests: Sequence[GenerateRequest], lengths: Sequence[int]
    ) -> None:
        """Give rows to requests; each may draw as many tokens as `lengths` says."""
        for row, request, length in zip(rows, requests, lengths, strict=True):
            params = request.params
            is_greedy = not params.temperature
            is_cut = params.is_truncated and not is_greedy
            top_k, top_p = params.top_k or _MANY, params.top_p if params.top_p < 1 else _OFF
            self._whole[row] = (*keys_of(request.seed), top_k, length, is_greedy, is_cut)
            self._broken[row] = params.temperature or 1.0, top_p
        self._is_changed = True

    def move(self, source: int, target: int) -> None:
        self._whole[target], self._broken[target] = self._whole[source], self._broken[source]
        self._is_changed = True

    # Passes

    def first(self, logits: Tensor, rows: Sequence[int]) -> Tensor:
        """Draw the first tokens of these rows, from logits (R, V); gives what was found, (R, 3)."""
        at = torch.tensor(list(rows), device=self._device)
        whole = torch.from_numpy(self._whole[rows]).to(self._device)
        shares = torch.from_numpy(self._broken[rows]).to(self._device)
        numbers = uniforms(whole[:, _SEED], torch.zeros_like(at)[:, None])
        found = self._drawn_from(logits, numbers, whole, shares, self._kind_of(rows), 1)
        self.drawn[at] = found[:, :1].long()
        return found

    def advance(self) -> None:
        """Draw the next token of each row; what was found lies in `found`."""
        cache = self.cache
        cache.advance()
        if self._is_changed:
            self._settings.copy_(torch.from_numpy(self._whole))
            self._shares.copy_(torch.from_numpy(self._broken))
            self._kind = self._kind_of(cache.living)
        clock = cache.clock - 1
        if self._is_changed or not self._base <= clock < self._base + _AHEAD:
            self._make_numbers(clock)
        self._is_changed = False
        shape = (*cache.shape, self._kind, len(self._ends))
        self.graphs.run(shape, (*cache.memory, len(self.drawn)), self._pass)
        self.drawn[: cache.rows] = self.found[: cache.rows, :1]

    def _make_numbers(self, clock: int) -> None:
        """Make random numbers for the passes from this clock on."""
        self._base = clock
        self._base_at.fill_(clock)
        ahead = torch.arange(clock + 1, clock + 1 + _AHEAD, device=self._device)
        places = (ahead - self.cache.births).clamp_(min=0)  # how many a row drew before
        self._numbers.copy_(uniforms(self._settings[:, _SEED], places))

    def _pass(self) -> None:
        cache = self.cache
        positions = cache.open_pass().clamp(max=self._net.positions - 1)
        rows = cache.rows
        hidden = self._net.hidden(self.drawn[:rows], positions, cache.attend)
        logits = self.weights.float_logits(hidden[:, 0])
        numbers = self._numbers[:rows].index_select(1, cache.clock_at - self._base_at)
        whole, shares = self._settings[:rows], self._shares[:rows]
        count = cache.clock_at - cache.births[:rows] + 2  # tokens drawn, the prompt's own too
        found = self._drawn_from(logits, numbers, whole, shares, self._kind, count)
        self.found[:rows] = found

    def _drawn_from(
        self,
        logits: Tensor,
        numbers: Tensor,
        whole: Tensor,
        shares: Tensor,
        kind: Kind,
        count: Tensor | int,
    ) -> Tensor:
        rows = Rows(
            heat=shares[:, :1],
            is_greedy=whole[:, _GREEDY, None] > 0,
            is_cut=whole[:, _CUT, None] > 0,
            top_k=whole[:, _TOP_K, None],
            top_p=shares[:, 1:],
        )
        tokens, logprobs = self._draw(logits, numbers, rows, kind)
        may_end = (tokens[:, None] == self._ends).any(dim=1, keepdim=True)  # (R, 1)
        may_end |= (whole[:, _ROOM, None] <= count) | ~logprobs[:, None].isfinite()
        bits = logprobs.float().view(torch.int32)
        return torch.cat([tokens.int()[:, None], bits[:, None], may_end.int()], dim=1)

    def _kind_of(self, rows: Sequence[int]) -> Kind:
        whole, heat = self._whole[rows], self._broken[rows, 0]
        cut = whole[whole[:, _CUT] > 0, _TOP_K]
        most = int(cut.max(initial=0))
        return Kind(
            is_hot=bool((heat != 1).any()),
            has_greedy=bool(whole[:, _GREEDY].any()),
            most=min(power(most), power(self._net.vocab_size)) if most else 0,
        )
