"""The two sides of a comparison: logits, there or to be made, or the logprobs of a few tokens.

Shapes: N positions, n of a block, C width, V vocabulary, k tokens.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor


@frozen(kw_only=True, eq=False)
class Projection:
    """
    Logits as `cap(scale * (W h + b))`: states (N, C) and an output head.

    Attributes:
        hidden: (N, C).
        weights: (V, C).
        bias: (V,) or None.
        scale: Of the product.
        softcap: Logits are `softcap * tanh(x / softcap)`; 0: as they are.
    """

    hidden: Tensor
    weights: Tensor
    bias: Tensor | None = None
    scale: float = 1.0
    softcap: float = 0.0

    @classmethod
    def of(cls, hidden: Tensor, head: Any) -> Projection:
        """With the fields of a head (`rlvr.parts.Teacher.head`)."""
        own = {name: getattr(head, name) for name in ("weights", "bias", "scale", "softcap")}
        return cls(hidden=hidden, **own)

    def __len__(self) -> int:
        return len(self.hidden)

    @property
    def vocabulary(self) -> int:
        return len(self.weights)

    def logits(self, rows: Any, out: Tensor | None = None) -> Tensor:
        """Logits (n, V) of some positions; float32 (64, if all is), in `out` where it fits."""
        weights = self.weights.detach()
        hidden = self.hidden.detach()[rows].to(weights.dtype)
        wide = weights.dtype in (torch.float32, torch.float64)
        if wide and out is not None and out.dtype == weights.dtype:
            logits = torch.mm(hidden, weights.t(), out=out[: len(hidden)])
        else:
            logits = hidden @ weights.t()
            logits = logits if wide else logits.float()
        if self.bias is not None:
            logits.add_(self.bias.detach())
        if self.scale != 1.0:
            logits.mul_(self.scale)
        if self.softcap:
            logits.div_(self.softcap).tanh_().mul_(self.softcap)
        return logits


@frozen(kw_only=True, eq=False)
class Sparse:
    """
    A teacher that told k tokens a position.

    Attributes:
        ids: (N, k) int64, each at most once a row; -1: none.
        logprobs: (N, k) nats, at the temperature of the comparison.
        has_rest: Whether what is left over counts as one further bucket; else both sides are
            renormalised on the tokens that were told.
    """

    ids: Tensor
    logprobs: Tensor
    has_rest: bool = True

    def __len__(self) -> int:
        return len(self.ids)

    def rows(self, chosen: Any) -> Sparse:
        return attrs.evolve(self, ids=self.ids[chosen], logprobs=self.logprobs[chosen])


Teacher = Tensor | Projection | Sparse


def common_vocabulary(student: int, teacher: int) -> int:
    """
    The ids that both vocabularies have; rows beyond are padding.

    Raises:
        ValueError: They differ by more than padding explains.
    """
    most = max(128, max(student, teacher) // 50)
    if abs(student - teacher) > most:
        raise ValueError(
            f"a student of {student} tokens and a teacher of {teacher} were to be compared\n"
            f"  found: they differ by more than rows of padding do ({most})\n"
            "  use a teacher with the student's tokenizer, or align them first"
        )
    return min(student, teacher)
