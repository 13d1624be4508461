"""Weights as matrix products of few rows want them, for as long as a CPU decodes.

A decoding pass multiplies a few dozen rows by every weight. Where another layout makes that faster
a copy is made, once a generation (`Matmul`), and the blocks of our GPT-2 do with fewer operations
(`PackedBlock`). The weights themselves stay where they are, and nothing is kept after it. On a GPU,
in lower precision, or for a few tokens, products are made as always.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr_torch.generation.cpu.gpt2_block import EndsOnly, PackedBlock
from rlvr_torch.generation.cpu.matmul import Matmul
from rlvr_torch.models.gpt2 import GPT2, Block
from rlvr_torch.models.interface import Attend, Net

_FEWEST_PASSES = 16  # fewer do not pay for the layout


class DecodeWeights:
    """
    Products with a net's weights; `packed` is the time in which they are fast.

    Args:
        net: Whose linear layers and head they are.
        dtype: What products are computed in.
        passes: About how many passes there are.
    """

    def __init__(self, net: Net, dtype: torch.dtype, passes: int) -> None:
        self._net = net
        self._head: Matmul | None = None
        self._is_last_packed = False
        is_plain = dtype == torch.float32 and net.head.device.type == "cpu"
        self._is_on = is_plain and passes >= _FEWEST_PASSES

    @contextmanager
    def packed(self) -> Iterator[None]:
        """Fast inside; weights must not change there."""
        if not self._is_on:
            yield
            return
        replaced: list[nn.Module] = []
        products: dict[nn.Module, Matmul] = {}
        try:
            for module in self._net.module.modules():
                if type(module) is nn.Linear and _is_plain(module.weight):
                    products[module] = Matmul(module.weight, module.bias)
                    module.__dict__["forward"] = products[module]  # found before the class's
                    replaced.append(module)
            for module in self._net.module.modules():
                if type(module) is Block and _is_bare(module, products):
                    module.__dict__["forward"] = PackedBlock(module, products.__getitem__)
                    replaced.append(module)
            self._is_last_packed = type(self._net) is GPT2 and "forward" in self._net.h[-1].__dict__
            if _is_plain(self._net.head):
                bias = self._net.head_bias
                self._head = Matmul(self._net.head, None if bias is None else bias.float())
            yield
        finally:
            self._head, self._is_last_packed = None, False
            for module in replaced:
                del module.__dict__["forward"]

    def ends(self, tokens: Tensor, positions: Tensor, attend: Attend, last: Tensor) -> Tensor:
        """
        Final hidden states (P, C) of one token of each prompt, all of which are read.

        Args:
            tokens: (P, S).
            positions: (P, S).
            attend: Of the prefill.
            last: Index of the token whose state is wanted, (P,).
        """
        net, rows = self._net, torch.arange(len(tokens), device=tokens.device)
        if self._is_last_packed:
            only = EndsOnly(attend, len(net.heads) - 1, (rows, last))
            return net.hidden(tokens, positions, only)[:, 0]
        return net.hidden(tokens, positions, attend)[rows, last]

    def logits(self, hidden: Tensor) -> Tensor:
        """Rows (R, C) times the head, with its bias, float32: (R, V)."""
        if self._head is not None:
            return self._head(hidden)
        bias = self._net.head_bias
        return F.linear(hidden, self._net.head.float(), None if bias is None else bias.float())


def _is_plain(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def _is_bare(block: Block, products: Container[nn.Module]) -> bool:
    """Whether the block is its weights and nothing else: no hook of an adapter listens to it."""
    linears = block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj
    hooked = (part._forward_hooks or part._forward_pre_hooks for part in block.modules())
    return all(linear in products for linear in linears) and not any(hooked)
