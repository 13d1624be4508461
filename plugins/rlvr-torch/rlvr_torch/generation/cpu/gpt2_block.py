"""A block of our GPT-2 as decoding runs it: fewer operations and buffers, the same numbers.

Shapes: B rows, T tokens, C width, H heads, D = C / H.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from rlvr_torch.generation.cpu.matmul import Matmul
from rlvr_torch.models.gpt2 import Block
from rlvr_torch.models.interface import Attend

_INNER = 1 << 18  # numbers of the MLP that stay in a core's cache
_FEWEST = 256  # rows at a time all the same: fewer make slow products


class EndsOnly:
    """
    The attention `attend`, of a prefill of which only one token of each row is wanted.

    All keys and values are needed, but the last layer's MLP, say, only for the wanted tokens.

    Attributes:
        layer: The last one; what it gives, and what follows, is (B, 1, C).
        wanted: The tokens: indices of rows, 0 to B - 1, and of tokens, both (B,).
    """

    def __init__(self, attend: Attend, layer: int, wanted: tuple[Tensor, Tensor]) -> None:
        self._attend = attend
        self.layer = layer
        self.wanted = wanted

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        return self._attend(layer, q, k, v, sinks)


class PackedBlock:
    """
    Called like the block, without gradients. Its norms may change in place.

    `product_of` gives the laid out weight of each of its linear layers.
    """

    def __init__(self, block: Block, product_of: Callable[[nn.Linear], Matmul]) -> None:
        self._norms = [
            (norm.normalized_shape, norm.weight, norm.bias, norm.eps)
            for norm in (block.ln_1, block.ln_2)
        ]
        self._heads = block.attn.heads
        self._qkv = product_of(block.attn.c_attn)
        self._mix = product_of(block.attn.c_proj)
        self._up = product_of(block.mlp.c_fc)
        self._down = product_of(block.mlp.c_proj)
        self._rows = max(_FEWEST, _INNER // block.mlp.c_fc.out_features)

    def __call__(self, x: Tensor, layer: int, attend: Attend) -> Tensor:
        """(B, T, C), contiguous, to the same; to (B, 1, C) where `EndsOnly` says so."""
        b, t, c = x.shape
        flat = x.view(-1, c)
        qkv = self._qkv(torch.layer_norm(flat, *self._norms[0])).view(b, t, 3, self._heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, H, T, D)
        mixed = attend(layer, q, k, v, None)
        mixed = mixed.transpose(1, 2)  # (B, T, H, D)
        if isinstance(attend, EndsOnly) and layer == attend.layer:
            x, mixed = x[attend.wanted][:, None], mixed[attend.wanted]
            flat = x.view(-1, c)
        flat = self._mix.added_to(flat, mixed.reshape(-1, c))
        done = [
            self._down.added_to(part, self._up.gelu(torch.layer_norm(part, *self._norms[1])))
            for part in ((flat,) if len(flat) <= self._rows else flat.split(self._rows))
        ]
        return (done[0] if len(done) == 1 else torch.cat(done)).view(b, -1, c)
