"""Attention of many sequences that lie one after the other: no padding, no masks, no copied keys.

A kernel gives the mixed values with the log-sum-exp of the scores, and the gradients from both. So
results over disjoint sets of keys can be merged (`packed_attention`), and the backward pass is
exact when it is given the *merged* values and log-sum-exp: a share is exp(score - lse).

Shapes: n queries and m keys of all sequences, H query heads, K key heads, D width of a head.
Source: Dao 2023, FlashAttention-2 (arXiv:2307.08691), section 3.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch
from attrs import field, frozen
from torch import Tensor

from rlvr_torch.models.attention import in_sight
from rlvr_torch.models.interface import Heads


@frozen(kw_only=True, eq=False)
class Spans:
    """The lengths of each sequence's queries and keys; sequence b of one sees b of the other."""

    queries: np.ndarray  # (B,) lengths
    keys: np.ndarray  # (B,) lengths
    # Whether the last query stands at the last key, and none sees a key after it; False: each
    # query sees all keys of its sequence.
    is_causal: bool
    window: int | None = None  # of a causal span: a query sees so many keys, its own last
    _device: torch.device
    query_ends: Tensor = field(init=False)  # (B + 1,) int32, from 0
    key_ends: Tensor = field(init=False)  # (B + 1,) int32, from 0

    @query_ends.default
    def _query_ends(self) -> Tensor:
        return _ends(self.queries, self._device)

    @key_ends.default
    def _key_ends(self) -> Tensor:
        return _ends(self.keys, self._device)

    def pairs(self) -> Iterator[tuple[slice, slice]]:
        """Pairs of queries and keys, for each sequence that has queries."""
        for n, q, m, k in zip(
            self.queries, self.queries.cumsum(), self.keys, self.keys.cumsum(), strict=True
        ):
            if n:
                yield slice(q - n, q), slice(k - m, k)


class ChunkedAttention:
    """
    The kernel in plain torch: any device, float type and kind of layer; computes in float32.

    Args:
        scores: Scores that exist at one time; those of a single query always do.
    """

    def __init__(self, scores: int = 2**24) -> None:
        self._most = scores

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, spans: Spans, heads: Heads
    ) -> tuple[Tensor, Tensor]:
        """Values (n, H, D), in the type of `q`, and log-sum-exp (H, n), float32, nats."""
        mixed = torch.empty_like(q)
        lse = q.new_empty(q.shape[1], len(q), dtype=torch.float32)
        for rows, keys, sees in self._pieces(spans, q):
            scores = _masked(_scores(q[rows], k[keys], heads), sees)
            sums = scores.logsumexp(dim=3)  # (K, H/K, c)
            shares = scores.sub_(sums[..., None]).exp_()
            mixed[rows] = _ungrouped(shares.flatten(1, 2) @ _by_head(v[keys]), q[rows])
            lse[:, rows] = sums.flatten(0, 1)
        return mixed, lse

    def backward(
        self,
        grad: Tensor,  # (n, H, D), of the values
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mixed: Tensor,  # (n, H, D) the merged values
        lse: Tensor,  # (H, n) of all keys that each query sees, here and in other calls
        spans: Spans,
        heads: Heads,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients by q, k and v, in float32."""
        d_q, d_k, d_v = (torch.zeros_like(x, dtype=torch.float32) for x in (q, k, v))
        for rows, keys, sees in self._pieces(spans, q):
            scores = _scores(q[rows], k[keys], heads)  # (K, H/K, c, s)
            slope = 1 - (scores / heads.softcap).square() if heads.softcap else None
            sums = lse[:, rows].unflatten(0, (k.shape[1], -1))
            shares = _masked(scores, sees).sub_(sums[..., None]).exp_().flatten(1, 2)
            pull = _grouped(grad[rows], k.shape[1])  # (K, H/K * c, D)
            d_v[keys] += (shares.transpose(1, 2) @ pull).transpose(0, 1)
            mean = (pull * _grouped(mixed[rows], k.shape[1])).sum(dim=2, keepdim=True)
            d_scores = (pull @ _by_head(v[keys]).transpose(1, 2)).sub_(mean).mul_(shares)
            if slope is not None:
                d_scores.mul_(slope.flatten(1, 2))
            d_scores.mul_(heads.scale)
            d_q[rows] = _ungrouped(d_scores @ _by_head(k[keys]), d_q[rows])
            own = d_scores.transpose(1, 2) @ _grouped(q[rows], k.shape[1])
            d_k[keys] += own.transpose(0, 1)
        return d_q, d_k, d_v

    def _pieces(self, spans: Spans, q: Tensor) -> Iterator[tuple[slice, slice, Tensor | None]]:
        """A few queries at a time, the keys they may see, and which (c, s) they do; None: all."""
        for rows, keys in spans.pairs():
            length = keys.stop - keys.start
            ahead = length - (rows.stop - rows.start)  # keys before the first query
            step = max(1, self._most // (q.shape[1] * length))
            for first in range(rows.start, rows.stop, step):
                last = min(first + step, rows.stop)
                if not spans.is_causal:
                    yield slice(first, last), keys, None
                    continue
                at = ahead + torch.arange(first - rows.start, last - rows.start, device=q.device)
                end = ahead + last - rows.start
                begin = 0 if spans.window is None else max(0, end - (last - first) - spans.window)
                slots = torch.arange(begin, end, device=q.device)
                sees = in_sight(at[:, None], slots, spans.window)
                yield slice(first, last), slice(keys.start + begin, keys.start + end), sees


class CUDAFlashAttention(ChunkedAttention):
    """
    PyTorch's flash kernel of NVIDIA cards from Ampere on; other layers and types in chunks.

    It takes bfloat16 and float16, heads up to 256 wide in steps of 8, grouped heads as they are,
    and windows; no soft caps. Not run on a GPU yet.
    """

    def forward(
        self, q: Tensor, k: Tensor, v: Tensor, spans: Spans, heads: Heads
    ) -> tuple[Tensor, Tensor]:
        if not self.takes(q, heads):
            return super().forward(q, k, v, spans, heads)
        mixed, lse, *_ = torch.ops.aten._flash_attention_forward(
            q, k, v, *_where(spans), return_debug_mask=False, **_how(spans, heads)
        )
        return mixed, lse

    def backward(
        self,
        grad: Tensor,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mixed: Tensor,
        lse: Tensor,
        spans: Spans,
        heads: Heads,
    ) -> tuple[Tensor, Tensor, Tensor]:
        if not self.takes(q, heads):
            return super().backward(grad, q, k, v, mixed, lse, spans, heads)
        d_q, d_k, d_v = torch.ops.aten._flash_attention_backward(
            grad,
            q,
            k,
            v,
            mixed,
            lse,
            *_where(spans),
            torch.zeros(2, dtype=torch.uint64, device=q.device),  # random state: no dropout
            torch.empty(0, device=q.device),  # unused
            **_how(spans, heads),
        )
        return d_q, d_k, d_v

    def takes(self, q: Tensor, heads: Heads) -> bool:
        """Whether the card's kernel computes this; else it is done in chunks."""
        return (
            q.dtype in (torch.bfloat16, torch.float16)
            and heads.width % 8 == 0
            and heads.width <= 256
            and not heads.softcap
            and _has_flash(q.device)
        )


@lru_cache
def _has_flash(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) >= (8, 0)


def _where(spans: Spans) -> tuple[Tensor, Tensor, int, int, float, bool]:
    """cum_seq_q, cum_seq_k, max_q, max_k, dropout_p and is_causal of the card's kernel."""
    is_causal = spans.is_causal and spans.window is None  # with a window the bounds say it
    longest = int(spans.queries.max()), int(spans.keys.max())
    return spans.query_ends, spans.key_ends, *longest, 0.0, is_causal


def _how(spans: Spans, heads: Heads) -> dict[str, float | int]:
    left, right = (-1, -1) if spans.window is None else (spans.window - 1, 0)
    return {"scale": heads.scale, "window_size_left": left, "window_size_right": right}


def _ends(lengths: np.ndarray, device: torch.device) -> Tensor:
    ends = np.concatenate([[0], lengths.cumsum()]).astype(np.int32)
    return torch.from_numpy(ends).to(device)


def _by_head(tokens: Tensor) -> Tensor:
    """(s, K, D) as (K, s, D), float32."""
    return tokens.transpose(0, 1).float()


def _grouped(tokens: Tensor, keys: int) -> Tensor:
    """(c, H, D) as (K, H/K * c, D), float32: the query heads that share keys stand together."""
    return tokens.unflatten(1, (keys, -1)).permute(1, 2, 0, 3).flatten(1, 2).float()


def _ungrouped(values: Tensor, like: Tensor) -> Tensor:
    """(K, H/K * c, D) as (c, H, D), in the type of `like`, which has that shape."""
    return values.unflatten(1, (-1, len(like))).permute(2, 0, 1, 3).flatten(1, 2).to(like.dtype)


def _scores(q: Tensor, k: Tensor, heads: Heads) -> Tensor:
    """(K, H/K, c, s) of queries (c, H, D) and keys (s, K, D), soft-capped."""
    scores = heads.scale * (_grouped(q, k.shape[1]) @ _by_head(k).transpose(1, 2))
    if heads.softcap:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    return scores.unflatten(1, (-1, len(q)))


def _masked(scores: Tensor, sees: Tensor | None) -> Tensor:
    return scores if sees is None else scores.masked_fill_(~sees, float("-inf"))
