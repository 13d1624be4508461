"""The two sides of a comparison: logits, there or to be made, or the logprobs of a few tokens.

Shapes: N positions, n of a block, C width, V vocabulary, k tokens.
"""

from __future__ import annotations

from typing import Any

import attrs
import torch
from attrs import frozen
from torch import Tensor


@frozen(eq=False)
class Logits:
    """Logits or logprobs (N, V) that are there already."""

    values: Tensor
    is_few = False

    def __len__(self) -> int:
        return len(self.values)

    def flat(self) -> Logits:
        """One row a position, without gradients."""
        return Logits(self.values.detach().flatten(0, -2))

    def shared_with(self, student: int) -> int:
        """The ids that a student of so many tokens has too; raises as `common_vocabulary`."""
        return common_vocabulary(student, self.values.shape[1])

    def buffer(self, rows: int, like: Tensor) -> Tensor | None:
        """Room for `rows` rows of logits; None: none are made."""
        return None

    def at(self, rows: Any, out: Tensor | None = None) -> Tensor:
        """What some positions hold."""
        return self.values[rows]


@frozen(kw_only=True, eq=False)
class HeadLogits:
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
    is_few = False

    @classmethod
    def of(cls, hidden: Tensor, head: Any) -> HeadLogits:
        """With the fields of a head (`rlvr.parts.Teacher.head`)."""
        own = {name: getattr(head, name) for name in ("weights", "bias", "scale", "softcap")}
        return cls(hidden=hidden, **own)

    def __len__(self) -> int:
        return len(self.hidden)

    def flat(self) -> HeadLogits:
        return attrs.evolve(self, hidden=self.hidden.detach().flatten(0, -2))

    def shared_with(self, student: int) -> int:
        return common_vocabulary(student, len(self.weights))

    def buffer(self, rows: int, like: Tensor) -> Tensor | None:
        return like.new_empty(rows, len(self.weights))

    def at(self, rows: Any, out: Tensor | None = None) -> Tensor:
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
    is_few = True

    def __len__(self) -> int:
        return len(self.ids)

    def flat(self) -> Sparse:
        logprobs = self.logprobs.detach().flatten(0, -2)
        return attrs.evolve(self, ids=self.ids.flatten(0, -2), logprobs=logprobs)

    def shared_with(self, student: int) -> int:
        """All of the student's; ValueError where the teacher told of others."""
        if self.ids.numel() and int(self.ids.max()) >= student:
            raise ValueError(
                f"a teacher told of token {int(self.ids.max())}\n"
                f"  found: the student has the tokens 0 to {student - 1}\n"
                "  use a teacher with the student's tokenizer, or align them first"
            )
        return student

    def buffer(self, rows: int, like: Tensor) -> Tensor | None:
        return None

    def at(self, rows: Any, out: Tensor | None = None) -> Sparse:
        return attrs.evolve(self, ids=self.ids[rows], logprobs=self.logprobs[rows])


Side = Logits | HeadLogits | Sparse
Teacher = Tensor | HeadLogits | Sparse


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
