"""Attention over given keys: one function for every kind of layer, with SDPA where it can.

Grouped heads, sliding windows, soft-capped scores (Gemma 2) and sinks (gpt-oss) are all here;
which keys a query may see is the caller's mask.

Shapes: B rows, H query heads, K key heads, T queries, N keys, D width of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_torch.models.interface import Heads


def attend_over(
    heads: Heads,  # the layer's attention. Its window is *not* applied here: it is part of `sees`
    q: Tensor,  # (B, H, T, D), unscaled
    k: Tensor,  # (B, K, N, D)
    v: Tensor,  # (B, K, N, D)
    # Bool, broadcastable to (B, 1, T, N): True where a query sees a key; None: causal, with N
    # equal to T. Each query sees one key at least.
    sees: Tensor | None = None,
    # (H,) scores of a key without a value, which every query sees (gpt-oss); or None.
    sinks: Tensor | None = None,
) -> Tensor:
    """
    Mix the values by the scores of the keys.

    Returns:
        (B, H, T, D).
    """
    if not heads.softcap and sinks is None:
        return F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=sees,
            is_causal=sees is None,
            scale=heads.scale,
            enable_gqa=heads.queries != heads.keys,
        )
    rows, _, queries, width = q.shape
    if sees is None:
        sees = causal(queries, q.device)
    shared = q.reshape(rows, heads.keys, -1, queries, width)  # (B, K, H/K, T, D)
    scores = heads.scale * (shared @ k[:, :, None].transpose(3, 4))  # (B, K, H/K, T, N)
    if heads.softcap:
        scores = heads.softcap * torch.tanh(scores / heads.softcap)
    scores = scores.masked_fill(~sees[:, :, None], float("-inf")).float()
    if sinks is not None:
        sink = sinks.float().reshape(1, heads.keys, -1, 1, 1).expand(rows, -1, -1, queries, 1)
        shares = torch.cat([scores, sink], dim=4).softmax(dim=4)[..., :-1]
    else:
        shares = scores.softmax(dim=4)
    return (shares.to(v.dtype) @ v[:, :, None]).reshape(q.shape)


def causal(tokens: int, device: torch.device, window: int | None = None) -> Tensor:
    """(1, 1, T, T): True where a token sees another: itself and those before it, in its window."""
    steps = torch.arange(tokens, device=device)
    return in_sight(steps[:, None], steps[None], window)[None, None]


def in_sight(query_at: Tensor, key_at: Tensor, window: int | None = None) -> Tensor:
    """Whether a query at one position sees a key at another (broadcast): past, and in window."""
    distance = query_at - key_at
    sees = distance >= 0
    return sees if window is None else sees & (distance < window)
