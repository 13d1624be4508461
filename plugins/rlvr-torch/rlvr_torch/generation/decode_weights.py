"""A net's weights as decoding reads them: here as they are; for a CPU in `cpu/weights.py`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from rlvr_torch.models.head_product import FLOAT32, HeadProduct
from rlvr_torch.models.interface import Attend, Net, capped

_SMALL = 1 << 26  # numbers of a net whose copy may stay when nothing is decoded


class DecodeWeights:
    """
    Products with a net's weights, computed in `dtype`; `packed` is the time in which they are fast.

    Attributes:
        is_small: Whether a copy is worth its memory when nothing is decoded.
    """

    def __init__(self, net: Net, dtype: torch.dtype, product: HeadProduct = FLOAT32) -> None:
        self._net, self._dtype, self._product = net, dtype, product
        self._kept_head: Tensor | None = None  # (V, C) inside `packed`, in the product's type
        self._copy: Tensor | None = None  # of a head in another type
        self.is_small = sum(value.numel() for value in net.module.parameters()) <= _SMALL

    @contextmanager
    def packed(self, version: int | None = None) -> Iterator[None]:
        """
        Products are fast inside.

        The weights, which have this version, must not change there. A head in another type than the
        product's is converted once, always into the same memory: a captured pass reads it there.
        """
        head = self._net.head.detach()
        if head.dtype != self._product.dtype:
            if self._copy is None:
                self._copy = torch.empty_like(head, dtype=self._product.dtype)
            head = self._copy.copy_(head)
        self._kept_head = head
        try:
            yield
        finally:
            self._kept_head = None

    def ends(self, tokens: Tensor, positions: Tensor, attend: Attend, last: Tensor) -> Tensor:
        """
        Final hidden states (P, C) of one token of each prompt; all tokens (P, S) are read.

        Args:
            tokens: (P, S).
            positions: (P, S).
            attend: The attention of the prefill.
            last: Index of the token whose state is wanted, (P,).
        """
        rows = torch.arange(len(tokens), device=tokens.device)
        return self._net.hidden(tokens, positions, attend)[rows, last]

    def logits(self, hidden: Tensor) -> Tensor:
        """Rows (R, C) times the head, with its bias, float32: (R, V)."""
        head, bias = self._kept_head, self._net.head_bias
        head = self._product.inputs(self._net.head) if head is None else head
        logits = hidden.new_empty(len(hidden), len(head), dtype=torch.float32)
        self._product.logits(self._product.inputs(hidden), head, logits)
        return logits if bias is None else logits.add_(bias.float())

    def float_logits(self, hidden: Tensor) -> Tensor:
        """Rows (R, C) to the net's logits (R, V), float32 whatever the rest is computed in."""
        if self._dtype == torch.float32:  # nothing to switch off
            return capped(self._net, self.logits(hidden.float()))
        with torch.autocast(hidden.device.type, enabled=False):
            return capped(self._net, self.logits(hidden.float()))
