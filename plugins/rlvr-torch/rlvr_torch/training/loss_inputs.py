"""Arguments of a loss for some data: tensors with gradients, detached from the model's graph.

Shapes: n supervised positions of the data, C width, V vocabulary, T tokens of a datum.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch import Tensor

from rlvr import BackendError, Datum, Loss, check_loss
from rlvr_torch.training.logprobs import SupervisedPositions
from rlvr_torch.training.output_head import Chunk, Critic, Head

OUTPUTS = frozenset({"entropy", "value", "hidden", "head"})
"""What a loss may ask for besides logprobs (`rlvr.parts.Needs.outputs`)."""


def outputs_of(loss: Loss) -> frozenset[str]:
    """
    Outputs that the loss asks for besides logprobs.

    `BackendError` where this backend does not compute it.
    """
    names = loss.needs.outputs
    if unknown := sorted(names - OUTPUTS):
        raise BackendError(
            f"the loss {type(loss).__name__} asks for the output {unknown[0]!r}\n"
            f"  the backend 'torch' gives: {', '.join(sorted(OUTPUTS))}"
        )
    return names


@frozen(kw_only=True, eq=False)
class Leaves:
    """The arguments of one call of a loss."""

    # By name, (n,): "logprobs" and, where asked for, "entropy" and "value".
    values: dict[str, Tensor]
    hidden: list[Tensor] = field(factory=list)  # one (n, C) a datum; empty where not asked for
    head: Head | None = None  # with leaves as weights and bias; None where not asked for
    # The chunk of logits that was made last, still whole; None where none was.
    last: Chunk | None = None

    @classmethod
    def of(
        cls,
        chunks: Iterable[Chunk],
        states: Tensor,
        counts: Sequence[int],
        *,
        critic: Critic | None = None,
        head: Head | None = None,
        with_hidden: bool = False,
        with_grad: bool = True,
    ) -> Leaves:
        """
        Leaves for data with `counts` supervised positions, whose states are (n, C).

        No chunks: the logprobs are zeros, which nothing can be learnt from.
        """
        logprobs, entropy, last = [], [], None
        for chunk in chunks:  # each overwrites the buffer of the one before
            logprobs.append(chunk.logprobs)
            if chunk.entropy is not None:
                entropy.append(chunk.entropy)
            last = chunk
        values = {"logprobs": torch.cat(logprobs)} if logprobs else {}
        if entropy:
            values["entropy"] = torch.cat(entropy)
        if critic is not None:
            values["value"] = critic(states).detach()
        hidden = [part.detach() for part in states.split(list(counts))] if with_hidden else []
        for leaf in (*values.values(), *hidden):
            leaf.requires_grad_(with_grad)
        values.setdefault("logprobs", states.new_zeros(len(states), dtype=torch.float32))
        return cls(values=values, hidden=hidden, head=head, last=last)

    def call(
        self, loss: Loss, data: Sequence[Datum], places: SupervisedPositions
    ) -> tuple[Tensor, dict[str, float]]:
        """The loss of the data, and its metrics."""
        outputs: dict[str, Any] = {n: places.spread(v) for n, v in self.values.items()}
        logprobs = outputs.pop("logprobs")
        if self.hidden:
            outputs["hidden"] = self.hidden
        if self.head is not None:
            outputs["head"] = [self.head]
        return check_loss(loss, loss(data, logprobs, outputs), logprobs)

    def alone(self, at: int, rows: slice) -> Leaves:
        """Arguments for one datum alone, from its place and rows among all, without gradients."""
        head = self.head
        return Leaves(
            values={n: v.detach()[rows] for n, v in self.values.items()},
            hidden=[part.detach() for part in self.hidden[at : at + 1]],
            head=None if head is None else head.detached(),
        )

    def gradients(self, loss: Tensor) -> Mapping[str, Tensor]:
        """
        The gradient of the loss by `values`, "hidden" (n, C), and the head's "weights" and "bias".

        An unused value gets zeros; an unused head gets nothing.
        """
        head = self.head
        flat = {n: v for n, v in self.values.items() if v.requires_grad}
        of_head = {} if head is None else {"weights": head.weights, "bias": head.bias}
        shared = {n: v for n, v in of_head.items() if v is not None and v.requires_grad}
        wanted = [*flat.values(), *self.hidden, *shared.values()]
        found = list(torch.autograd.grad(loss, wanted, allow_unused=True))
        if all(gradient is None for gradient in found):
            raise BackendError(
                "an update was to follow the gradient of the loss.",
                "found: a loss that was not made of the logprobs, which no weight can change",
                "correct the loss, or choose another one",
            )
        gradients = iter(zip(wanted, found, strict=True))

        def taken(count: int) -> list[Tensor]:
            some = itertools.islice(gradients, count)
            return [torch.zeros_like(v) if g is None else g for v, g in some]

        named = dict(zip(flat, taken(len(flat)), strict=True))
        if self.hidden:
            named["hidden"] = torch.cat(taken(len(self.hidden)))
        last = zip(shared, gradients, strict=True)
        return named | {name: g for name, (_, g) in last if g is not None}
