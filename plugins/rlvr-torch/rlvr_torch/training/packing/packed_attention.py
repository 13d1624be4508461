"""Attention of a packed row that shares prompts, without masks and without copies of a prompt.

Sequences see their own past in one call over the whole row. The completions of a prompt then see
it in a second call, as one block of queries, and the two results are merged by their log-sum-exps.
In a layer with a window, completions see the end of their prompt, at most `window - 1` tokens of
it, copied before their own.

Shapes: N tokens of the row, H query heads, K key heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr_torch.models.interface import Heads, Net
from rlvr_torch.training.packing.packed_states import PackedStates
from rlvr_torch.training.packing.prefix_packing import Row
from rlvr_torch.training.packing.varlen_attention import ChunkedAttention, Spans


@frozen(kw_only=True, eq=False)
class _Call:
    """One call of the kernel."""

    rows: slice  # of the row: the queries
    keys: slice  # of the row: the keys
    spans: Spans
    places: Tensor | None = None  # (m,) instead of `keys`: places of the row to copy them from
    is_more: bool = False  # whether an earlier call had the same queries, with other keys

    def seen(self, tokens: Tensor) -> Tensor:
        """Keys (m, K, D) of the row's (N, K, D)."""
        return tokens[self.keys] if self.places is None else tokens.index_select(0, self.places)

    def add(self, whole: Tensor, own: Tensor) -> None:
        """Add the keys' gradient (m, K, D) to the row's (N, K, D)."""
        if self.places is None:
            whole[self.keys] += own
        else:
            whole.index_add_(0, self.places, own.to(whole.dtype))


class PackedAttention:
    """
    The `Attend` of a row, equal to `prefix_packing.BlockAttention` but for rounding.

    Args:
        net: Whose layers attend.
        row: The packed tokens.
        device: Where they are.
        kernel: Computes the attention of sequences and its gradients.
    """

    def __init__(
        self,
        net: Net,
        row: Row,
        device: torch.device,
        kernel: ChunkedAttention | None = None,
    ) -> None:
        self._heads = net.heads
        self._row, self._device = row, device
        self._kernel = kernel or ChunkedAttention()
        self._calls: dict[int | None, list[_Call]] = {}

    @cached_property
    def carry(self) -> PackedStates:
        """How layers carry states."""
        row = self._row
        return PackedStates(row.leads, row.rests, row.owners, self._device)

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        heads = self._heads[layer]
        if torch.is_autocast_enabled(q.device.type):
            dtype = torch.get_autocast_dtype(q.device.type)
            q, k, v = q.to(dtype), k.to(dtype), v.to(dtype)
        rows = [x[0].transpose(0, 1) for x in (q, k, v)]  # (N, H, D), (N, K, D), (N, K, D)
        calls = self._calls_of(heads.window)
        mixed = _Mix.apply(*rows, sinks, heads, calls, self._kernel)
        return mixed.transpose(0, 1)[None]

    def _calls_of(self, window: int | None) -> list[_Call]:
        if window not in self._calls:
            longest = int(self._row.positions.max()) + 1
            is_cut = window is not None and window < longest
            self._calls[window] = self._cut(window) if is_cut else self._whole()
        return self._calls[window]

    def _whole(self) -> list[_Call]:
        """All see their own past; completions see their whole prompts as well."""
        row = self._row
        lengths = np.concatenate([row.leads, row.rests])
        lengths = lengths[lengths > 0]
        everything = slice(0, int(lengths.sum()))
        calls = [_Call(rows=everything, keys=everything, spans=self._spans(lengths, lengths))]
        if row.rests.any():
            asked = np.bincount(row.owners, weights=row.rests).astype(np.int64)
            prompts = row.leads[: len(asked)]  # shared leads come first
            calls.append(
                _Call(
                    rows=slice(int(row.leads.sum()), everything.stop),
                    keys=slice(0, int(prompts.sum())),
                    spans=self._spans(asked, prompts, is_causal=False),
                    is_more=True,
                )
            )
        return calls

    def _cut(self, window: int | None) -> list[_Call]:
        """Leads see their own past in the window; completions that, and their prompt's end."""
        assert window is not None
        row = self._row
        leads = int(row.leads.sum())
        spans = self._spans(row.leads, row.leads, window=window)
        calls = [_Call(rows=slice(0, leads), keys=slice(0, leads), spans=spans)]
        is_there = row.rests > 0
        if is_there.any():
            rests, owners = row.rests[is_there], row.owners[is_there]
            tails = np.minimum(row.leads[owners], window - 1)
            prompts, ends = row.leads.cumsum()[owners], leads + rests.cumsum()
            places = [
                np.r_[prompt - tail : prompt, end - rest : end]
                for prompt, tail, end, rest in zip(prompts, tails, ends, rests, strict=True)
            ]
            keys = torch.from_numpy(np.concatenate(places)).to(self._device)
            spans = self._spans(rests, tails + rests, window=window)
            rows = slice(leads, int(ends[-1]))
            calls.append(_Call(rows=rows, keys=rows, places=keys, spans=spans))
        return calls

    def _spans(
        self,
        queries: np.ndarray,
        keys: np.ndarray,
        *,
        is_causal: bool = True,
        window: int | None = None,
    ) -> Spans:
        return Spans(
            queries=queries, keys=keys, is_causal=is_causal, window=window, device=self._device
        )


class _Mix(torch.autograd.Function):
    """`(q (N, H, D), k (N, K, D), v, sinks (H,), heads, calls, kernel) -> (N, H, D)`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        sinks: Tensor | None,
        heads: Heads,
        calls: Sequence[_Call],
        kernel: ChunkedAttention,
    ) -> Tensor:
        mixed = torch.empty_like(q)
        lse = q.new_empty(q.shape[1], len(q), dtype=torch.float32)
        for call in calls:
            rows = call.rows
            own, sums = kernel.forward(q[rows], call.seen(k), call.seen(v), call.spans, heads)
            if call.is_more:
                total = torch.logaddexp(lse[:, rows], sums)
                own = _scaled(own, sums - total) + _scaled(mixed[rows], lse[:, rows] - total)
                sums = total
            mixed[rows], lse[:, rows] = own, sums
        if sinks is not None:  # one more key, without a value
            total = torch.logaddexp(lse, sinks.float()[:, None])
            mixed, lse = _scaled(mixed, lse - total).to(q.dtype), total
        ctx.save_for_backward(q, k, v, sinks, mixed, lse)
        ctx.heads, ctx.calls, ctx.kernel = heads, calls, kernel
        return mixed

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        q, k, v, sinks, mixed, lse = ctx.saved_tensors
        d_q = torch.zeros_like(q)
        d_k, d_v = (torch.zeros_like(x, dtype=torch.float32) for x in (k, v))
        for call in ctx.calls:
            rows = call.rows
            own_q, own_k, own_v = ctx.kernel.backward(
                grad[rows],
                q[rows],
                call.seen(k),
                call.seen(v),
                mixed[rows],
                lse[:, rows].contiguous(),
                call.spans,
                ctx.heads,
            )
            d_q[rows] += own_q
            call.add(d_k, own_k)
            call.add(d_v, own_v)
        d_sinks = None
        if sinks is not None and ctx.needs_input_grad[3]:
            mean = (grad.float() * mixed.float()).sum(dim=2)  # (N, H)
            shares = (sinks.float()[:, None] - lse).exp()  # (H, N)
            d_sinks = -(shares * mean.T).sum(dim=1).to(sinks.dtype)
        return d_q, d_k.to(k.dtype), d_v.to(v.dtype), d_sinks, None, None, None


def _scaled(values: Tensor, logs: Tensor) -> Tensor:
    """Values (n, H, D) times exp of logs (H, n), in float32."""
    return values.float() * logs.exp().T[..., None]
