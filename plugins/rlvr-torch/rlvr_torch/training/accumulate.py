"""The gradient of a loss over many data, micro-batch by micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from attrs import evolve, frozen
from torch import Tensor, nn

from rlvr import BackendError, Datum, Loss
from rlvr_torch.models.head_product import FLOAT32, HeadProduct
from rlvr_torch.models.interface import Net
from rlvr_torch.models.weight_storage import WeightStorage
from rlvr_torch.training.fused_loss import HeadPass, add_metrics, head_pass, name_problems
from rlvr_torch.training.logprobs import trunk
from rlvr_torch.training.microbatches import MicroBatches, halves, microbatches, row_tokens
from rlvr_torch.training.output_head import Critic
from rlvr_torch.training.packing.prefix_packing import PackedAttend
from rlvr_torch.training.router_loss import RouterLoss
from rlvr_torch.training.softmax import Compiler

Found = TypeVar("Found")


@frozen(kw_only=True, eq=False)
class Learner:
    """The weights that a step trains, and the pass of a micro-batch through them."""

    net: Net
    critic: Critic | None = None  # its value head, where there is one
    dtype: torch.dtype = torch.float32  # of the trunk's matrix products
    chunk: int = 1024  # positions whose logits exist at one time
    attention: PackedAttend | None = None  # of a packed row; None: `BlockAttention`
    router: RouterLoss | None = None  # what a mixture's router adds to the loss
    product: HeadProduct = FLOAT32  # how the output head multiplies
    compiler: Compiler | None = None  # of what head and loss compute; None: it is not compiled
    storage: WeightStorage | None = None  # where the weights' copies are; None: they have none

    @property
    def weights(self) -> list[nn.Parameter]:
        """All that is trained: the critic's come last."""
        own = [value for value in self.net.module.parameters() if value.requires_grad]
        return own + ([] if self.critic is None else list(self.critic.parameters()))

    @property
    def _copies(self) -> Mapping[nn.Parameter, Tensor]:
        return {} if self.storage is None else self.storage.copies

    def gradients(
        self, data: Sequence[Datum], loss: Loss
    ) -> tuple[HeadPass, Sequence[Tensor | None]]:
        """Loss and metrics of a micro-batch, and its gradient by each of the weights."""
        found, pairs = self._pulled(data, loss)
        if not pairs:
            return found, []
        tensors = [_Pulled.apply(*pair) for pair in pairs]
        weights, copies = self.weights, self._copies
        copied = [weight for weight in weights if weight in copies]
        wanted = [*weights, *(copies[weight] for weight in copied)]
        grads = torch.autograd.grad(tensors, wanted, allow_unused=True)
        of_copies = dict(zip(copied, grads[len(weights) :], strict=True))
        return found, [
            _sum(own, of_copies.get(weight)) for weight, own in zip(weights, grads, strict=False)
        ]

    def add_gradients(self, data: Sequence[Datum], loss: Loss) -> HeadPass:
        """
        As `gradients`; each is added to its weight's `grad` as soon as it is known.

        So no second set of gradients exists. Where it raises, some may be added and others not.
        """
        found, pairs = self._pulled(data, loss)
        if pairs:
            torch.autograd.backward([_Pulled.apply(*pair) for pair in pairs])
        return found

    def clear_gradients(self) -> None:
        """Drop the gradients of weights and of their copies."""
        for weight in (*self.weights, *self._copies.values()):
            weight.grad = None

    def _pulled(
        self, data: Sequence[Datum], loss: Loss
    ) -> tuple[HeadPass, list[tuple[Tensor, Tensor]]]:
        """A micro-batch, and tensors with the gradient of the loss by each."""
        found, balance = self._passed(data, loss, with_grad=True)
        pairs = [*found.pulls]
        if balance is not None and balance.requires_grad:
            pairs.append((balance, torch.ones_like(balance)))
        return found, pairs

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
            product=self.product,
            compiler=self.compiler,
        )
        if router is None:
            return found, None
        share = router.share(routed, data)
        balance = router.coefficient * share
        metrics = {**found.metrics, "loss/router": share.item()}
        return evolve(found, loss=found.loss + balance.item(), metrics=metrics), balance


class _Pulled(torch.autograd.Function):
    """
    0, whose gradient by a tensor is the one that is given.

    To give it to `torch.autograd.grad` instead imports SymPy, the first time: half a second.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, pull: Tensor) -> Tensor:
        ctx.save_for_backward(pull)
        return tensor.new_zeros(())

    @staticmethod
    def backward(ctx: Any, _: Tensor) -> tuple[Tensor, None]:
        return ctx.saved_tensors[0], None


def accumulate(
    data: Sequence[Datum], loss: Loss, learner: Learner, pieces: MicroBatches
) -> dict[str, float]:
    """
    Make the gradient of the loss the weights' `grad`, and give the loss and its metrics.

    The loss is a sum over tokens, so the sum over micro-batches is exact; it is added up in a fixed
    order, with any number of threads. Metrics add up; those whose name ends in `/max` keep their
    maximum.

    With one thread each weight's gradient is added up in place. A micro-batch that does not fit
    into the device's memory may have been added in part then, so everything is computed again from
    the first one, in smaller micro-batches. With several threads (small models on a CPU) the
    gradients of some micro-batches exist beside the sum, and only what does not fit is done again.

    Raises:
        BackendError: There is no supervised token, or `pieces.is_cancelled` said so.
        NotFiniteError: A loss is not finite; the problems are named.
        torch.OutOfMemoryError: A single datum does not fit.
    """

    def computed(batch: list[int], work: Callable[[Sequence[Datum], Loss], Found]) -> Found:
        if pieces.is_cancelled():
            raise BackendError("the step was cancelled; the weights are as before")
        return work([data[i] for i in batch], loss)

    learner.clear_gradients()
    metrics: dict[str, float] = {}
    if pieces.threads.size > 1:
        batches, size = _batches(data, pieces.budget), pieces.threads.size
        for first in range(0, len(batches), size):
            some = batches[first : first + size]
            for found, grads in pieces.each(data, lambda b: computed(b, learner.gradients), some):
                add_metrics(metrics, {"loss": found.loss, **found.metrics})
                for weight, grad in zip(learner.weights, grads, strict=False):  # none: all unused
                    weight.grad = _sum(weight.grad, grad)
        return metrics
    pieces.threads.prepare()
    for batch in _batches(data, pieces.budget):
        try:
            found = computed(batch, learner.add_gradients)
        except torch.OutOfMemoryError:
            if len(batch) == 1:
                raise
            break
        add_metrics(metrics, {"loss": found.loss, **found.metrics})
        del found  # not held while the next one is computed
    else:
        return metrics
    # Outside the handler: the error holds what the failed pass had made.
    budget = max(row_tokens([data[i] for i in half]) for half in halves(batch))
    pieces.shrink(budget)
    return accumulate(data, loss, learner, evolve(pieces, budget=budget))


def _sum(sum_so_far: Tensor | None, grad: Tensor | None) -> Tensor | None:
    """Add a gradient to a sum, in float32, in place if there is a sum."""
    if grad is None:
        return sum_so_far
    return grad.float() if sum_so_far is None else sum_so_far.add_(grad)


def eval_loss(
    data: Sequence[Datum], loss: Loss, learner: Learner, pieces: MicroBatches
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
    """
    Name the problems whose gradient is not finite (each is tried alone; slow).

    The weights' `grad` is lost: another set of gradients may not fit beside it.
    """
    culprits = []
    for datum in data:
        if not datum.mask.any():
            continue
        learner.clear_gradients()
        learner.add_gradients([datum], loss)
        grads = [weight.grad for weight in learner.weights if weight.grad is not None]
        if not all(bool(torch.isfinite(grad).all()) for grad in grads):
            culprits.append(datum)
    return name_problems(culprits)
