"""The gradient of a loss over many data, micro-batch by micro-batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from rlvr.errors import BackendError
from rlvr.parts import Loss
from rlvr.types import Datum
from rlvr_torch.crew import Crew
from rlvr_torch.data import microbatches

Score = Callable[[Sequence[Datum]], list[Tensor]]
"""Logprobs (T,) of each datum, with gradients."""


def accumulate(
    data: Sequence[Datum],
    loss: Loss,
    score: Score,
    weights: Sequence[nn.Parameter],
    *,
    budget: int,
    crew: Crew,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """
    Add the gradient of the loss to the weights' `grad`, and give the loss and its metrics.

    The loss is a sum over tokens, so the sum over micro-batches is exact; it is added up in a fixed
    order, whatever the crew's size. Metrics add up; those whose name ends in `/max` keep their
    maximum.

    Raises:
        BackendError: There is no supervised token, a loss is not finite (the problems are named),
            or `is_cancelled` said so.
    """

    def work(batch: list[int]) -> tuple[float, Sequence[Tensor | None], dict[str, float]]:
        if is_cancelled():
            raise BackendError("the step was cancelled; the weights are as before")
        part = [data[i] for i in batch]
        logprobs = score(part)
        value, found = loss(part, logprobs)
        amount = value.detach().item()
        if not math.isfinite(amount):
            raise BackendError(
                f"the loss is {amount}: {_culprits(part, logprobs, loss)}; "
                "the weights are as before"
            )
        if not value.requires_grad:
            return amount, [], found
        return amount, torch.autograd.grad(value, weights, allow_unused=True), found

    batches = microbatches(data, budget)
    if not batches:
        raise BackendError(
            f"nothing to learn from: none of {len(data)} data has a token the policy wrote\n"
            "  when prompts are longer than the model's positions, completions are empty"
        )
    metrics: dict[str, float] = {"loss": 0.0}
    for first in range(0, len(batches), crew.size):
        for amount, grads, found in crew.map(work, batches[first : first + crew.size]):
            metrics["loss"] += amount
            _add_grads(weights, grads)
            for name, number in found.items():
                known = metrics.get(name)
                if known is None:
                    metrics[name] = float(number)
                elif name.endswith("/max"):
                    metrics[name] = max(known, float(number))
                else:
                    metrics[name] = known + float(number)
    return metrics


def _add_grads(weights: Sequence[nn.Parameter], grads: Sequence[Tensor | None]) -> None:
    for weight, grad in zip(weights, grads, strict=False):  # no gradients where nothing needed one
        if grad is None:
            continue
        weight.grad = grad if weight.grad is None else weight.grad.add_(grad)


def _culprits(part: Sequence[Datum], logprobs: Sequence[Tensor], loss: Loss) -> str:
    with torch.no_grad():
        alone = [loss([d], [lp.detach()])[0] for d, lp in zip(part, logprobs, strict=True)]
    return _name([d for d, value in zip(part, alone, strict=True) if not torch.isfinite(value)])


def _name(data: Sequence[Datum]) -> str:
    names = sorted({datum.problem_id for datum in data})
    shown = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
    return f"problems {shown}" if names else "no problem alone"


def explain_gradient(model: nn.Module, data: Sequence[Datum], loss: Loss, score: Score) -> str:
    """Which problems give a gradient that is not finite (each is tried alone; slow)."""
    culprits = []
    for datum in data:
        if not datum.mask.any():
            continue
        model.zero_grad(set_to_none=True)
        value, _ = loss([datum], score([datum]))
        if value.requires_grad:
            value.backward()
        grads = [value.grad for value in model.parameters() if value.grad is not None]
        if not all(bool(torch.isfinite(grad).all()) for grad in grads):
            culprits.append(datum)
    model.zero_grad(set_to_none=True)
    return _name(culprits)
