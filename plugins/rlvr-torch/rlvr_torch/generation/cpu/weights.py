"""Weights as matrix products of few rows want them, while a CPU decodes.

A decoding pass multiplies a few dozen rows by every weight. A copy is made in a layout that is
faster, once for each state of the weights (`Matmul`), and the blocks of our GPT-2 do with fewer
operations (`PackedBlock`). The weights themselves stay where they are. In lower precision, and with
weights that are not in a CPU's memory, products are made as always (`DecodeWeights`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from rlvr_torch.generation.cpu.gpt2_block import EndsOnly, PackedBlock
from rlvr_torch.generation.cpu.matmul import Matmul, has_blocks
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.models.gpt2 import GPT2, Block
from rlvr_torch.models.interface import Attend, Net


class PackedWeights(DecodeWeights):
    """Copies of the weights in the layouts that a CPU multiplies fastest."""

    def __init__(self, net: Net, dtype: torch.dtype) -> None:
        super().__init__(net, dtype)
        self._head: Matmul | None = None
        self._is_last_packed = False
        self._is_on = dtype == torch.float32 and net.head.device.type == "cpu"
        self._state: object = None  # of the weights when they were laid out
        self._values: list[nn.Parameter] = []  # kept, so that no other takes their names
        self._products: dict[nn.Module, Matmul] = {}
        self._head_product: Matmul | None = None

    @contextmanager
    def packed(self, version: int | None = None) -> Iterator[None]:
        """As `DecodeWeights.packed`; copies are kept for the next time."""
        if not self._is_on:
            with super().packed(version):
                yield
            return
        self._lay_out(version)
        replaced: list[tuple[nn.Module, Any]] = []  # with its own forward, which training set

        def replace(module: nn.Module, forward: Any) -> None:
            replaced.append((module, module.__dict__.get("forward")))
            module.__dict__["forward"] = forward  # found before the class's

        try:
            for module, product in self._products.items():
                replace(module, product)
            for module in self._net.module.modules():
                if type(module) is Block and _is_bare(module, self._products):
                    replace(module, PackedBlock(module, self._products.__getitem__))
            self._is_last_packed = type(self._net) is GPT2 and "forward" in self._net.h[-1].__dict__
            self._head = self._head_product
            yield
        finally:
            self._head, self._is_last_packed = None, False
            for module, own in replaced:
                if own is None:
                    del module.__dict__["forward"]
                else:
                    module.__dict__["forward"] = own

    def _lay_out(self, version: int | None) -> None:
        """Copy the weights, unless nobody has written to them since the last copy."""
        values = list(self._net.module.parameters())
        state = (version, [(id(value), value.data_ptr(), value._version) for value in values])
        if state == self._state:
            return
        self._state, self._values, self._products = state, values, {}
        for module in self._net.module.modules():
            weight = _weight_of(module)
            if weight is not None and _is_plain(weight):
                self._products[module] = Matmul(weight, getattr(module, "bias", None))
        if _is_plain(self._net.head):
            bias = self._net.head_bias
            self._head_product = Matmul(self._net.head, None if bias is None else bias.float())

    def ends(self, tokens: Tensor, positions: Tensor, attend: Attend, last: Tensor) -> Tensor:
        """As `DecodeWeights.ends`; the last block computes only the ends."""
        if not self._is_last_packed:
            return super().ends(tokens, positions, attend, last)
        net, rows = self._net, torch.arange(len(tokens), device=tokens.device)
        only = EndsOnly(attend, len(net.heads) - 1, (rows, last))
        return net.hidden(tokens, positions, only)[:, 0]

    def logits(self, hidden: Tensor) -> Tensor:
        """As `DecodeWeights.logits`."""
        return super().logits(hidden) if self._head is None else self._head(hidden)


def is_batch_invariant(net: Net, cores: int) -> bool:
    """
    Whether a row decoded in float32 has the same bits beside any others (docs/rollouts.md).

    Every weight must be multiplied by `Matmul` or looked up: experts and convolutions are not. The
    sums that update a layer's state differ with the number of rows. An operation that is spread
    over a number of cores that is no power of two may cut a vector.
    """
    if net.has_states:
        return False
    modules = net.module.modules()
    known = {id(m.weight) for m in modules if isinstance(m, nn.Embedding) or _is_product(m)}
    weights = [value for value in net.module.parameters() if value.dim() > 1]
    is_known = all(_is_plain(w) and (id(w) in known or w is net.head) for w in weights)
    return has_blocks() and is_known and cores.bit_count() == 1


def _is_product(module: nn.Module) -> bool:
    """A layer that is a product and nothing else; `Conv1D` is that of transformers' GPT-2."""
    return type(module) is nn.Linear or type(module).__name__ == "Conv1D"


def _weight_of(module: nn.Module) -> Tensor | None:
    """(O, I) of a layer that is a product."""
    if not _is_product(module):
        return None
    weight = cast("Tensor", module.weight)
    return weight if type(module) is nn.Linear else weight.t()


def _is_plain(weight: Tensor) -> bool:
    return weight.dtype == torch.float32 and weight.device.type == "cpu"


def _is_bare(block: Block, products: Container[nn.Module]) -> bool:
    """Whether the block only computes with its weights: no adapter's hook listens to it."""
    linears = block.attn.c_attn, block.attn.c_proj, block.mlp.c_fc, block.mlp.c_proj
    hooked = (part._forward_hooks or part._forward_pre_hooks for part in block.modules())
    return all(linear in products for linear in linears) and not any(hooked)
