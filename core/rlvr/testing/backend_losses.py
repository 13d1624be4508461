"""Losses that the kit gives to a backend: likelihood, one with outputs, one over distributions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlvr.parts import Loss, Needs
from rlvr.testing.contract import same
from rlvr.types import Datum

Tensors = Sequence[Any]
Outputs = Mapping[str, Tensors]
Told = tuple[Any, dict[str, float]]


class LikelihoodLoss(Loss):
    """The plainest loss: minus the weighted logprob of the policy's tokens."""

    importance_weighted = False

    def __call__(self, data: Sequence[Datum], logprobs: Tensors, outputs: Outputs) -> Told:
        """Loss, and `weight/sum` and `weight/max` to see how a backend combines metrics."""
        loss: Any = 0.0
        for datum, lp in zip(data, logprobs, strict=True):
            places = np.flatnonzero(datum.mask).tolist()
            loss = loss - (lp[places] * lp.new_tensor(datum.weights[places].tolist())).sum()
        weights = np.concatenate([datum.weights for datum in data])
        return loss, {"weight/sum": float(weights.sum()), "weight/max": float(weights.max())}


class OutputLoss(Loss):
    """A loss that asks the forward pass for one output, and checks what it gets."""

    importance_weighted = False

    def __init__(self, name: str) -> None:
        self.needs = Needs(outputs={name})
        self.seen = 0

    def __call__(self, data: Sequence[Datum], logprobs: Tensors, outputs: Outputs) -> Told:
        """The weighted sum of the output's squares, beside that of `LikelihoodLoss`."""
        loss, metrics = LikelihoodLoss()(data, logprobs, {})
        for name in self.needs.outputs & outputs.keys():
            for datum, lp, values in zip(data, logprobs, outputs[name], strict=True):
                places = np.flatnonzero(datum.mask).tolist()
                same(f"shape of the output {name}", tuple(values.shape), tuple(lp.shape))
                assert values.requires_grad, f"the output {name} has no gradient"
                assert bool(values[places].isfinite().all()), f"the output {name} is not finite"
                loss = loss + (values[places] ** 2).sum() / 100
                self.seen += 1
        return loss, metrics


class PullLoss(Loss):
    """
    A small loss over whole distributions: cross-entropy with a fixed, uneven target.

    Asks for states and head, and for logprobs or not. Its gradient by the logits is
    `weight * (softmax - target) / temperature`, so steps on the same data lower it.

    Args:
        with_logprobs: Whether it adds the loss of `LikelihoodLoss`.
    """

    importance_weighted = False

    def __init__(self, *, with_logprobs: bool = False) -> None:
        self.needs = Needs(outputs={"hidden", "head"}, logprobs=with_logprobs)
        self.calls = 0

    def __call__(self, data: Sequence[Datum], logprobs: Tensors, outputs: Outputs) -> Told:
        """The weighted sum over all supervised tokens; `pull/rows` counts them."""
        (head,) = outputs["head"]
        self.calls += 1
        loss: Any = LikelihoodLoss()(data, logprobs, {})[0] if self.needs.logprobs else 0.0
        rows = 0
        for datum, lp, hidden in zip(data, logprobs, outputs["hidden"], strict=True):
            places = np.flatnonzero(datum.mask).tolist()
            wide = len(places), head.weights.shape[1]
            same("shape of the states", tuple(hidden.shape), wide)
            assert self.needs.logprobs or not lp.any(), "logprobs that nobody asked for"
            every = log_softmax(head_logits(head, hidden) / datum.temperature)  # (n, V)
            size = every.shape[1]
            target = every.new_tensor([1.0 + (i % 5) for i in range(size)])
            weights = every.new_tensor(datum.weights[places].tolist())
            loss = loss - weights @ (every @ (target / target.sum()))
            rows += len(places)
        return loss, {"pull/rows": float(rows)}


def head_logits(head: Any, hidden: Any) -> Any:
    """Logits (n, V) of states (n, C), float32 or more, as `Loss` says them."""
    weights = head.weights.to(hidden.dtype) if hidden.dtype.itemsize > 4 else head.weights.float()
    logits = hidden.to(weights.dtype) @ weights.T
    if head.bias is not None:
        logits = logits + head.bias.to(logits.dtype)
    logits = logits * head.scale
    return head.softcap * (logits / head.softcap).tanh() if head.softcap else logits


def log_softmax(logits: Any) -> Any:
    """Natural logs of the probabilities, along the last axis."""
    return logits - logits.logsumexp(-1, keepdim=True)
