"""Logprobs of given tokens, a chunk at a time: full logits exist for a few tokens only.

The logits of a batch, float32 (B, T, V), are what fills memory in training. Here only supervised
positions meet the output head, `chunk` of them at a time, and the backward pass computes each
chunk's logits again instead of keeping them.

Shapes: N supervised positions, C width, V vocabulary, T tokens of a datum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlvr.types import Datum
from rlvr_torch.gpt2 import GPT2
from rlvr_torch.prefixes import supervised_hidden


class ChunkedLogprobs(torch.autograd.Function):
    """`(hidden (N, C), head (V, C), targets (N,), heat (N,), chunk) -> logprobs (N,)`, float32."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, head: Tensor, targets: Tensor, heat: Tensor, chunk: int
    ) -> Tensor:
        logprobs = hidden.new_empty(len(hidden), dtype=torch.float32)
        mass = torch.empty_like(logprobs)  # (N,) log of the sum of exponentials
        for part in _parts(len(hidden), chunk):
            logits = (hidden[part].float() @ head.float().t()) / heat[part, None]  # (chunk, V)
            mass[part] = logits.logsumexp(dim=1)
            logprobs[part] = logits.gather(1, targets[part, None])[:, 0] - mass[part]
        ctx.save_for_backward(hidden, head, targets, heat, mass)
        ctx.chunk = chunk
        return logprobs

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        hidden, head, targets, heat, mass = ctx.saved_tensors
        weights = head.float()
        d_hidden = torch.empty_like(hidden)
        d_head = torch.zeros_like(weights)
        for part in _parts(len(hidden), ctx.chunk):
            inputs = hidden[part].float()
            logits = (inputs @ weights.t()) / heat[part, None]
            share = (grad[part] / heat[part])[:, None]
            d_logits = (logits - mass[part, None]).exp_() * -share  # (chunk, V)
            d_logits.scatter_add_(1, targets[part, None], share)
            d_hidden[part] = (d_logits @ weights).to(hidden.dtype)
            d_head.addmm_(d_logits.t(), inputs)
        return d_hidden, d_head.to(head.dtype), None, None, None


def _parts(count: int, chunk: int) -> list[slice]:
    return [slice(first, first + chunk) for first in range(0, count, chunk)]


def sequence_logprobs(
    model: GPT2, data: Sequence[Datum], *, chunk: int = 1024, dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """
    Logprobs of each datum's supervised tokens at its temperature.

    Args:
        model: The weights; gradients flow to them where autograd is on.
        data: Checked data; each has a supervised token. Those with equal prompts share its cost.
        chunk: Positions whose logits exist at one time.
        dtype: What the blocks' matrix products are computed in; the head is float32 always.

    Returns:
        One tensor (T,) a datum, float32, nats: entry t is log p(tokens[t] | tokens[:t]) where
        `mask[t]`, 0 elsewhere.
    """
    device = model.head.device
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
        hidden = supervised_hidden(model, data)  # (N, C)
    at = [np.flatnonzero(datum.mask) for datum in data]
    targets = [datum.tokens[positions] for datum, positions in zip(data, at, strict=True)]
    heat = [np.full(len(p), d.temperature) for d, p in zip(data, at, strict=True)]
    flat = ChunkedLogprobs.apply(
        hidden,
        model.head,
        _tensor(targets, torch.int64, device),
        _tensor(heat, torch.float32, device),
        chunk,
    )
    lengths = [len(datum.tokens) for datum in data]
    starts = np.cumsum([0, *lengths[:-1]])
    where = [start + positions for start, positions in zip(starts, at, strict=True)]
    spread = torch.zeros(sum(lengths), device=device)
    spread = spread.index_copy(0, _tensor(where, torch.int64, device), flat)
    return list(spread.split(lengths))


def _tensor(parts: Sequence[np.ndarray], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device, dtype)
