"""Logprobs of given tokens, a chunk at a time: full logits exist for a few tokens only.

The logits of a batch, float32 (B, T, V), are what fills memory in training. Here only supervised
positions meet the output head, `chunk` of them at a time; where a gradient is asked for, the
backward pass computes each chunk's logits again. (A training step does not even do that: see
`fused_loss.py`.)

Shapes: N supervised positions, C width, V vocabulary, T tokens of a datum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from attrs import frozen
from torch import Tensor

from rlvr import BackendError, Datum
from rlvr_torch.models.head_product import FLOAT32, HeadProduct
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.interface import Net
from rlvr_torch.training.output_head import Chunk, Critic, Head, HeadGrads
from rlvr_torch.training.packing.prefix_packing import (
    PackedAttend,
    SupervisedSpan,
    supervised_hidden,
)
from rlvr_torch.training.softmax import Compiler


@frozen(kw_only=True, eq=False)
class SupervisedPositions:
    """Positions of the supervised tokens of some data, with the tokens drawn there."""

    targets: Tensor  # (N,) ids
    heat: Tensor  # (N,) temperatures
    counts: list[int]  # of each datum; they sum to N
    _where: Tensor  # (N,) index into all tokens of the data, one datum after the other
    _lengths: list[int]  # T of each datum

    @classmethod
    def of(cls, data: Sequence[Datum], device: torch.device) -> SupervisedPositions:
        at = [np.flatnonzero(datum.mask) for datum in data]
        lengths = [len(datum.tokens) for datum in data]
        starts = np.cumsum([0, *lengths])
        counts = [len(a) for a in at]
        heat = np.repeat(np.array([d.temperature for d in data], np.float32), counts)
        return cls(
            targets=_tensor([d.tokens[a] for d, a in zip(data, at, strict=True)], device).long(),
            heat=_tensor([heat], device),
            counts=counts,
            where=_tensor([s + a for s, a in zip(starts, at, strict=False)], device).long(),
            lengths=lengths,
        )

    def spread(self, values: Tensor) -> list[Tensor]:
        """Values (N,) as one tensor (T,) a datum, 0 where nothing is supervised."""
        full = torch.zeros(sum(self._lengths), device=values.device, dtype=values.dtype)
        return list(full.index_copy(0, self._where, values).split(self._lengths))


class ChunkedLogprobs(torch.autograd.Function):
    """`(hidden (N, C), head (V, C), bias, head, targets, heat, chunk) -> logprobs (N,)`."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weights: Tensor,
        bias: Tensor | None,
        head: Head,
        targets: Tensor,
        heat: Tensor,
        chunk: int,
    ) -> Tensor:
        ctx.save_for_backward(hidden, targets, heat)
        ctx.head, ctx.chunk, ctx.types = head, chunk, (weights.dtype, bias is not None)
        buffer = logits_buffer(head, hidden, chunk)
        parts = [
            Chunk.forward(head, hidden[part], targets[part], heat[part], buffer).logprobs
            for part in slices(len(hidden), chunk)
        ]
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        hidden, targets, heat = ctx.saved_tensors
        head: Head = ctx.head
        weights = None
        if ctx.needs_input_grad[1]:
            weights = torch.zeros_like(head.weights, dtype=torch.float32)
        bias = head.bias if ctx.needs_input_grad[2] else None
        found = HeadGrads(weights=weights, bias=None if bias is None else torch.zeros_like(bias))
        d_hidden = torch.empty_like(hidden)
        buffer = logits_buffer(head, hidden, ctx.chunk)
        for part in slices(len(hidden), ctx.chunk):
            chunk = Chunk.forward(head, hidden[part], targets[part], heat[part], buffer)
            chunk.backward(grad[part], None, d_hidden[part], found)
        d_weights = None if found.weights is None else found.weights.to(ctx.types[0])
        return d_hidden, d_weights, found.bias, None, None, None, None


def logits_buffer(head: Head, hidden: Tensor, chunk: int) -> Tensor:
    """Room for the logits (n, V) of the largest chunk."""
    shape = min(chunk, len(hidden)), len(head.weights)
    return head.weights.new_empty(shape, dtype=torch.float32)


def slices(count: int, chunk: int) -> list[slice]:
    """0 ... count in pieces of `chunk`."""
    return [slice(first, min(first + chunk, count)) for first in range(0, count, chunk)]


def sequence_logprobs(
    net: Net,
    data: Sequence[Datum],
    chunk: int = 1024,
    dtype: torch.dtype = torch.float32,
    attention: PackedAttend | None = None,
    product: HeadProduct = FLOAT32,
    compiler: Compiler | None = None,
) -> list[Tensor]:
    """
    Logprobs of each datum's supervised tokens at its temperature.

    Args:
        net: The weights; gradients flow to them where autograd is on.
        data: Checked data; each has a supervised token. Those with equal prompts share its cost.
        chunk: Positions whose logits exist at one time.
        dtype: What the blocks' matrix products are computed in; logits are float32 always.
        attention: How a packed row attends; None: `BlockAttention`.
        product: How the output head multiplies.
        compiler: Compiles what the head computes between its products; None: it is not compiled.

    Returns:
        One tensor (T,) a datum, float32, nats: entry t is log p(tokens[t] | tokens[:t]) where
        `mask[t]`, 0 elsewhere.
    """
    hidden = trunk(net, data, dtype, attention)  # (N, C)
    places = SupervisedPositions.of(data, hidden.device)
    head = Head.of(net, product, compiler)
    flat = ChunkedLogprobs.apply(
        hidden, net.head, net.head_bias, head, places.targets, places.heat, chunk
    )
    return places.spread(flat)


def sequence_values(
    net: Net,
    critic: Critic,
    data: Sequence[Datum],
    dtype: torch.dtype = torch.float32,
    attention: PackedAttend | None = None,
) -> list[Tensor]:
    """A critic's estimates before each supervised token, one tensor (T,) a datum; 0 elsewhere."""
    hidden = trunk(net, data, dtype, attention)  # (N, C)
    return SupervisedPositions.of(data, hidden.device).spread(critic(hidden))


def trunk(
    net: Net, data: Sequence[Datum], dtype: torch.dtype, attention: PackedAttend | None = None
) -> Tensor:
    """The hidden state that predicts each supervised token, (N, C), datum by datum."""
    with torch.autocast(net.head.device.type, dtype, enabled=dtype != torch.float32):
        if any(datum.pictures for datum in data):
            return seen_hidden(net, data, attention)
        return supervised_hidden(net, data, attention)


def seen_hidden(net: Net, data: Sequence[Datum], attention: PackedAttend | None = None) -> Tensor:
    """
    As `supervised_hidden`: text in one row, each datum with pictures by itself.

    Raises:
        ConfigError: A picture cannot be read.
        BackendError: The model sees no pictures, or the tokens are not those of the pictures.
    """
    text = [i for i, datum in enumerate(data) if not datum.pictures]
    found: dict[int, Tensor] = {}
    if text:
        hidden = supervised_hidden(net, [data[i] for i in text], attention)  # (N, C)
        counts = [int(data[i].mask.sum()) for i in text]
        found |= zip(text, hidden.split(counts), strict=True)
    for i, datum in enumerate(data):
        if datum.pictures:
            found[i] = _seen(net, datum)
    return torch.cat([found[i] for i in range(len(data))])


def _seen(net: Net, datum: Datum) -> Tensor:
    """Hidden states of one datum with pictures, (n, C)."""
    if not isinstance(net, HFVisionNet):
        raise BackendError(
            f"problem {datum.problem_id!r} has {len(datum.pictures)} pictures.",
            "found: the model reads text alone",
            "use a vision-language model (hf:PATH)",
        )
    device = net.head.device
    tokens = datum.tokens[: SupervisedSpan.of(datum).end - 1].astype(
        np.int64
    )  # the last is not read
    hidden = net.seen(torch.from_numpy(tokens).to(device)[None], datum.pictures)
    return hidden[0].index_select(0, torch.from_numpy(np.flatnonzero(datum.mask) - 1).to(device))


def _tensor(parts: Sequence[np.ndarray], device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
