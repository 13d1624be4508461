"""The gradient of a loss over many data, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from attrs import evolve, frozen
from torch import Tensor, nn

from rlvr import BackendError, Datum, Loss
from rlvr_torch.models.interface import Net
from rlvr_torch.training.fused_loss import HeadPass, add_metrics, head_pass, name_problems
from rlvr_torch.training.logprobs import trunk
from rlvr_torch.training.microbatches import Pieces, microbatches
from rlvr_torch.training.output_head import Critic
from rlvr_torch.training.packing.prefix_packing import PackedAttend
from rlvr_torch.training.router_loss import RouterLoss


@frozen(kw_only=True, eq=False)
class Learner:
    """What a step trains, and how a micro-batch goes through it."""

    net: Net
    critic: Critic | None = None  # its value head, where there is one
    dtype: torch.dtype = torch.float32  # of the trunk's matrix products
    chunk: int = 1024  # positions whose logits exist at one time
    attention: PackedAttend | None = None  # of a packed row; None: `BlockAttention`
    router: RouterLoss | None = None  # what a mixture's router adds to the loss

    @property
    def weights(self) -> list[nn.Parameter]:
        """All that is trained: the critic's come last."""
        own = [value for value in self.net.module.parameters() if value.requires_grad]
        return own + ([] if self.critic is None else list(self.critic.parameters()))

    def gradients(
        self, data: Sequence[Datum], loss: Loss
    ) -> tuple[HeadPass, Sequence[Tensor | None]]:
        """Loss and metrics of a micro-batch, and its gradient by each of the weights."""
        found, balance = self._passed(data, loss, with_grad=True)
        pairs = [*found.pulls]
        if balance is not None and balance.requires_grad:
            pairs.append((balance, torch.ones_like(balance)))
        if not pairs:
            return found, []
        tensors, pulls = zip(*pairs, strict=True)
        return found, torch.autograd.grad(tensors, self.weights, pulls, allow_unused=True)

    def appraised(self, data: Sequence[Datum], loss: Loss) -> HeadPass:
        """Loss and metrics of a micro-batch, nothing more."""
        with torch.no_grad():
            return self._passed(data, loss, with_grad=False)[0]

    def _passed(
        self, data: Sequence[Datum], loss: Loss, *, with_grad: bool
    ) -> tuple[HeadPass, Tensor | None]:
        """A micro-batch through trunk and head; and the router's loss, times its coefficient."""
        router = self.router
        listening: AbstractContextManager[list[Tensor]] = (
            nullcontext([]) if router is None else router.listening()
        )
        with listening as routed:
            hidden = trunk(self.net, data, self.dtype, self.attention)
        found = head_pass(
            hidden,
            data,
            loss,
            self.net,
            critic=self.critic,
            chunk=self.chunk,
            with_grad=with_grad,
        )
        if router is None:
            return found, None
        share = router.share(routed, data)
        balance = router.coefficient * share
        metrics = {**found.metrics, "loss/router": share.item()}
        return evolve(found, loss=found.loss + balance.item(), metrics=metrics), balance


def accumulate(
    data: Sequence[Datum], loss: Loss, learner: Learner, pieces: Pieces
) -> dict[str, float]:
    """
    Add the gradient of the loss to the weights' `grad`, and give the loss and its metrics.

    The loss is a sum over tokens, so the sum over micro-batches is exact; it is added up in a fixed
    order, with any number of threads. Metrics add up; those whose name ends in `/max` keep their
    maximum.

    Raises:
        BackendError: There is no supervised token, or `pieces.is_cancelled` said so.
        NotFiniteError: A loss is not finite; the problems are named.
    """

    def work(batch: list[int]) -> tuple[HeadPass, Sequence[Tensor | None]]:
        if pieces.is_cancelled():
            raise BackendError("the step was cancelled; the weights are as before")
        return learner.gradients([data[i] for i in batch], loss)

    batches, threads = _batches(data, pieces.budget), pieces.threads
    metrics: dict[str, float] = {}
    for first in range(0, len(batches), threads.size):
        for found, grads in pieces.each(data, work, batches[first : first + threads.size]):
            add_metrics(metrics, {"loss": found.loss, **found.metrics})
            _add_gradients(learner.weights, grads)
            del found, grads  # not held while the next ones are computed
    return metrics


def _add_gradients(weights: Sequence[nn.Parameter], grads: Sequence[Tensor | None]) -> None:
    for weight, grad in zip(weights, grads, strict=False):  # none: nothing to add
        if grad is not None:
            weight.grad = grad if weight.grad is None else weight.grad.add_(grad)


def eval_loss(
    data: Sequence[Datum], loss: Loss, learner: Learner, pieces: Pieces
) -> dict[str, float]:
    """The loss and its metrics as `accumulate` gives them, without gradients; raises the same."""

    def work(batch: list[int]) -> HeadPass:
        if pieces.is_cancelled():
            raise BackendError("the appraisal was cancelled")
        return learner.appraised([data[i] for i in batch], loss)

    metrics: dict[str, float] = {}
    for found in pieces.each(data, work, _batches(data, pieces.budget)):
        add_metrics(metrics, {"loss": found.loss, **found.metrics})
    return metrics


def _batches(data: Sequence[Datum], budget: int) -> list[list[int]]:
    if batches := microbatches(data, budget):
        return batches
    raise BackendError(
        f"nothing to learn from: none of {len(data)} data has a token the policy wrote\n"
        "  when prompts are longer than the model's positions, completions are empty"
    )


def explain_gradient(data: Sequence[Datum], loss: Loss, learner: Learner) -> str:
    """Which problems give a gradient that is not finite (each is tried alone; slow)."""
    culprits = []
    for datum in data:
        if not datum.mask.any():
            continue
        _, grads = learner.gradients([datum], loss)
        if not all(bool(torch.isfinite(grad).all()) for grad in grads if grad is not None):
            culprits.append(datum)
    return name_problems(culprits)
