"""Output head and loss together: the logits of a few data exist once, and never a second time.

A loss is a sum over data, so a few data at a time can go from hidden states to logits to loss to
the gradient of the logits, in one buffer, before the next few use it. That is three matrix
products where recomputing takes four, and no (N, V) anywhere. A datum longer than the buffer is
computed in pieces, twice: the loss has to see all of its logprobs before any gradient is known.

Shapes: N supervised positions of a micro-batch, n of a few data, C width, V vocabulary.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence

import torch
from attrs import frozen
from torch import Tensor

from rlvr import Datum, Loss, compiling
from rlvr_torch.models.head_product import FLOAT32, HeadProduct
from rlvr_torch.models.interface import Net
from rlvr_torch.training.logprobs import SupervisedPositions, logits_buffer, slices
from rlvr_torch.training.loss_inputs import Leaves, outputs_of
from rlvr_torch.training.output_head import Chunk, Critic, Head, HeadGrads
from rlvr_torch.training.skip_bad_updates import NotFiniteError
from rlvr_torch.training.softmax import Compiler


@frozen(kw_only=True, eq=False)
class HeadPass:
    """Loss and metrics of a micro-batch, and the gradients of trunk, head and critic."""

    loss: float
    metrics: dict[str, float]
    pulls: list[tuple[Tensor, Tensor]]
    """Tensors with the gradient of the loss by each; empty where the loss depends on nothing."""


def head_pass(
    hidden: Tensor,  # (N, C), datum by datum, as `trunk` gives them; its graph is not used
    data: Sequence[Datum],  # checked data, each with a supervised token
    loss: Loss,  # called on a few data at a time; once, where it does without logprobs
    net: Net,  # whose head it is
    *,
    critic: Critic | None = None,  # the value head, where the loss asks for "value"
    chunk: int = 1024,  # positions whose logits exist at one time
    with_grad: bool = True,  # False: loss and metrics alone
    product: HeadProduct = FLOAT32,  # how the head multiplies
    compiler: Compiler | None = None,  # of what head and loss compute; None: it is not compiled
) -> HeadPass:
    """
    Loss, metrics and gradients of a micro-batch from its hidden states.

    Raises:
        NotFiniteError: A loss is not finite; the problems are named.
    """
    work = _Pass(hidden, data, loss, net, critic, chunk, with_grad, product, compiler)
    is_split = loss.needs.logprobs
    for some in _few(work.places.counts, chunk) if is_split else [slice(0, len(data))]:
        work.take(some)
    return work.result()


class _Pass:
    """A micro-batch on its way through head and loss, a few data at a time."""

    def __init__(
        self,
        hidden: Tensor,
        data: Sequence[Datum],
        loss: Loss,
        net: Net,
        critic: Critic | None,
        chunk: int,
        with_grad: bool,
        product: HeadProduct,
        compiler: Compiler | None,
    ) -> None:
        self.places = SupervisedPositions.of(data, hidden.device)
        self._hidden, self._states = hidden, hidden.detach()
        self._data, self._loss, self._net, self._chunk = data, loss, net, chunk
        self._with_grad, self._wants = with_grad, outputs_of(loss)
        self._compiler = compiler if with_grad else None
        self._leaf_head = Head.leaf(net, with_grad=with_grad) if "head" in self._wants else None
        self._uses_logits = "entropy" in self._wants or loss.needs.logprobs
        if self._uses_logits:
            self._head = Head.of(net, product, compiler)
            self._buffer = logits_buffer(self._head, hidden, chunk)
        self._critic = critic if "value" in self._wants else None
        self._d_hidden = torch.zeros_like(self._states) if with_grad else self._states
        self._grads = HeadGrads.zeros(net) if with_grad and self._uses_logits else HeadGrads()
        self._d_critic = [torch.zeros_like(p) for p in critic.parameters()] if critic else []
        self._total, self._metrics, self._depends = 0.0, dict[str, float](), False
        self._first = 0  # position of the next datum

    def take(self, some: slice) -> None:
        """The next few data."""
        part, device = self._data[some], self._states.device
        count = sum(self.places.counts[some])
        rows = slice(self._first, self._first + count)
        self._first = rows.stop
        pieces = [
            slice(rows.start + s.start, rows.start + s.stop) for s in slices(count, self._chunk)
        ]
        leaves = Leaves.of(
            map(self._forward, pieces if self._uses_logits else []),
            self._states[rows],
            self.places.counts[some],
            critic=self._critic,
            head=self._leaf_head,
            with_hidden="hidden" in self._wants,
            with_grad=self._with_grad,
        )
        # A single token would be compiled for itself, as a single row of logits (`softmax_of`).
        with compiling(self._compiler if count > 1 else None):
            value, numbers = leaves.call(self._loss, part, SupervisedPositions.of(part, device))
        amount = value.detach().item()
        if not math.isfinite(amount):
            raise NotFiniteError(
                f"the loss is {amount}: {_culprits(self._loss, part, leaves, device)}; "
                "the weights are as before"
            )
        self._total += amount
        add_metrics(self._metrics, numbers)
        if self._with_grad and value.requires_grad:
            self._depends = True
            self._backward(leaves.gradients(value), rows, pieces, leaves.last)

    def _forward(self, at: slice) -> Chunk:
        return Chunk.forward(
            self._head,
            self._states[at],
            self.places.targets[at],
            self.places.heat[at],
            entropy="entropy" in self._wants,
            buffer=self._buffer,
        )

    def _backward(
        self, pull: Mapping[str, Tensor], rows: slice, pieces: Sequence[slice], last: Chunk | None
    ) -> None:
        d_logprobs, d_entropy = pull.get("logprobs"), pull.get("entropy")
        if d_logprobs is not None and (
            d_logprobs.any() or (d_entropy is not None and d_entropy.any())
        ):
            for at in pieces:
                own = slice(at.start - rows.start, at.stop - rows.start)
                chunk = last if len(pieces) == 1 and last is not None else self._forward(at)
                chunk.backward(
                    d_logprobs[own],
                    None if d_entropy is None else d_entropy[own],
                    self._d_hidden[at],
                    self._grads,
                )
        if "hidden" in pull:
            self._d_hidden[rows] += pull["hidden"]
        self._grads = self._grads.plus(pull.get("weights"), pull.get("bias"))
        if self._critic is not None:
            d_value = pull["value"]
            d_states = torch.outer(d_value, self._critic.weight.detach())
            self._d_hidden[rows] += d_states.to(self._d_hidden.dtype)
            self._d_critic[0] += d_value @ self._states[rows].float()
            self._d_critic[1] += d_value.sum()

    def result(self) -> HeadPass:
        """Loss, metrics and gradients of all data taken."""
        pulls: list[tuple[Tensor, Tensor]] = []
        if self._depends:
            head, bias = self._net.head, self._net.head_bias
            pulls = [(self._hidden, self._d_hidden)]
            if self._grads.weights is not None:
                pulls.append((head, self._grads.weights.to(head.dtype)))
            if bias is not None and self._grads.bias is not None:
                pulls.append((bias, self._grads.bias.to(bias.dtype)))
            if self._critic is not None:
                pulls += zip(self._critic.parameters(), self._d_critic, strict=True)
        return HeadPass(
            loss=self._total,
            metrics=self._metrics,
            pulls=[(tensor, pull) for tensor, pull in pulls if tensor.requires_grad],
        )


def add_metrics(totals: dict[str, float], found: Mapping[str, float | torch.Tensor]) -> None:
    """Add metrics up; of those whose name ends in `/max`, keep the larger."""
    for name, given in found.items():
        number = float(given.detach() if isinstance(given, torch.Tensor) else given)
        add = max if name.endswith("/max") else operator.add
        totals[name] = add(totals[name], number) if name in totals else number


def _few(counts: Sequence[int], chunk: int) -> list[slice]:
    """Neighbouring data that fit a chunk together, or one datum."""
    parts: list[slice] = []
    room = 0
    for i, count in enumerate(counts):
        if parts and count <= room:
            parts[-1] = slice(parts[-1].start, i + 1)
        else:
            parts.append(slice(i, i + 1))
            room = chunk
        room -= count
    return parts


def _culprits(loss: Loss, part: Sequence[Datum], leaves: Leaves, device: torch.device) -> str:
    """The problems whose data, alone, give a loss that is not finite."""
    names, first = [], 0
    for at, datum in enumerate(part):
        places = SupervisedPositions.of([datum], device)
        own = slice(first, first + places.counts[0])
        first = own.stop
        if not torch.isfinite(leaves.alone(at, own).call(loss, [datum], places)[0]):
            names.append(datum)
    return name_problems(names)


def name_problems(data: Sequence[Datum]) -> str:
    """`problems 'a', 'b'`: a few of them."""
    names = sorted({datum.problem_id for datum in data})
    shown = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
    return f"problems {shown}" if names else "no problem alone"
