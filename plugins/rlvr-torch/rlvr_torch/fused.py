"""Output head and loss together: the logits of a few data exist once, and never a second time.

A loss is a sum over data, so a few data at a time can go from hidden states to logits to loss to
the gradient of the logits, in one buffer, before the next few use it. That is three matrix
products where recomputing takes four, and no (N, V) anywhere. A datum longer than the buffer is
computed in pieces, twice: the loss has to see all of its logprobs before any gradient is known.

Shapes: N supervised positions of a micro-batch, n of a few data, C width, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import torch
from attrs import frozen
from torch import Tensor

from rlvr.errors import BackendError
from rlvr.parts import Loss
from rlvr.types import Datum
from rlvr_torch.critic import Critic
from rlvr_torch.head import Chunk, Head, HeadGrads
from rlvr_torch.logprobs import Places, logits_buffer, slices
from rlvr_torch.net import Net
from rlvr_torch.not_finite import NotFiniteError

OUTPUTS = frozenset({"entropy", "value"})
"""What a loss may ask for besides logprobs (`rlvr.abilities.ForwardLoss`)."""


@frozen(kw_only=True, eq=False)
class HeadPass:
    """
    What a micro-batch came to, and the gradients that the trunk, the head and the critic get.

    `pulls` are pairs of a tensor and the gradient of the loss by it; empty where the loss depends
    on nothing.
    """

    loss: float
    metrics: dict[str, float]
    pulls: list[tuple[Tensor, Tensor]]


def outputs_of(loss: Loss) -> frozenset[str]:
    """
    What the loss asks for besides logprobs.

    Raises:
        BackendError: Something this backend does not compute.
    """
    names: frozenset[str] = frozenset(getattr(loss, "outputs", frozenset()))
    if unknown := sorted(names - OUTPUTS):
        raise BackendError(
            f"the loss {type(loss).__name__} asks for the output {unknown[0]!r}\n"
            f"  the backend 'torch' gives: {', '.join(sorted(OUTPUTS))}"
        )
    return names


def head_pass(
    hidden: Tensor,
    data: Sequence[Datum],
    loss: Loss,
    net: Net,
    *,
    critic: Critic | None = None,
    chunk: int = 1024,
) -> HeadPass:
    """
    Loss, metrics and gradients of a micro-batch from its hidden states.

    Args:
        hidden: (N, C), datum by datum, as `trunk` gives them; its graph is not used.
        data: Checked data, each with a supervised token.
        loss: Called on a few data at a time.
        net: Whose head it is.
        critic: The value head, where the loss asks for "value".
        chunk: Positions whose logits exist at one time.

    Raises:
        NotFiniteError: A loss is not finite; the problems are named.
    """
    work = _Pass(hidden, data, loss, net, critic, chunk)
    for some in _few(work.places.counts, chunk):
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
    ) -> None:
        self.places = Places.of(data, hidden.device)
        self._hidden, self._states = hidden, hidden.detach()
        self._data, self._loss, self._net, self._chunk = data, loss, net, chunk
        self._head = Head.of(net)
        self._buffer = logits_buffer(self._head, hidden, chunk)
        wants = outputs_of(loss)
        self._wants_entropy = "entropy" in wants
        self._critic = critic if "value" in wants else None
        self._d_hidden = torch.zeros_like(self._states)
        self._grads = HeadGrads.zeros(net)
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
        leaves = _Leaves.of(map(self._forward, pieces), self._critic, self._states[rows])
        value, numbers = _call(self._loss, part, leaves, Places.of(part, device))
        amount = value.detach().item()
        if not math.isfinite(amount):
            raise NotFiniteError(
                f"the loss is {amount}: {_culprits(self._loss, part, leaves, device)}; "
                "the weights are as before"
            )
        self._total += amount
        add_metrics(self._metrics, numbers)
        if value.requires_grad:
            self._depends = True
            self._backward(leaves.gradients(value), rows, pieces, leaves.last)

    def _forward(self, at: slice) -> Chunk:
        return Chunk.forward(
            self._head,
            self._states[at],
            self.places.targets[at],
            self.places.heat[at],
            entropy=self._wants_entropy,
            buffer=self._buffer,
        )

    def _backward(
        self, pull: Mapping[str, Tensor], rows: slice, pieces: Sequence[slice], last: Chunk
    ) -> None:
        d_logprobs, d_entropy = pull["logprobs"], pull.get("entropy")
        if d_logprobs.any() or (d_entropy is not None and d_entropy.any()):
            for at in pieces:
                own = slice(at.start - rows.start, at.stop - rows.start)
                chunk = last if len(pieces) == 1 else self._forward(at)
                chunk.backward(
                    d_logprobs[own],
                    None if d_entropy is None else d_entropy[own],
                    self._d_hidden[at],
                    self._grads,
                )
        if self._critic is not None:
            d_value = pull["value"]
            d_states = torch.outer(d_value, self._critic.weight.detach())
            self._d_hidden[rows] += d_states.to(self._d_hidden.dtype)
            self._d_critic[0] += d_value @ self._states[rows].float()
            self._d_critic[1] += d_value.sum()

    def result(self) -> HeadPass:
        """All of it."""
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


def add_metrics(totals: dict[str, float], found: Mapping[str, float]) -> None:
    """Add metrics up; of those whose name ends in `/max`, keep the larger."""
    for name, number in found.items():
        if name not in totals:
            totals[name] = float(number)
        elif name.endswith("/max"):
            totals[name] = max(totals[name], float(number))
        else:
            totals[name] += float(number)


@frozen(kw_only=True, eq=False)
class _Leaves:
    """What the loss is given for some data, flat (n,), with gradients; and the last chunk."""

    values: dict[str, Tensor]
    last: Chunk

    @classmethod
    def of(cls, chunks: Iterable[Chunk], critic: Critic | None, states: Tensor) -> _Leaves:
        logprobs, entropy = [], []
        for chunk in chunks:  # each overwrites the buffer of the one before
            logprobs.append(chunk.logprobs)
            if chunk.entropy is not None:
                entropy.append(chunk.entropy)
            last = chunk
        values = {"logprobs": torch.cat(logprobs)}
        if entropy:
            values["entropy"] = torch.cat(entropy)
        if critic is not None:
            values["value"] = critic(states).detach()
        return cls(values={n: v.requires_grad_() for n, v in values.items()}, last=last)

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """Of the loss by each of them; zeros where it does not use one."""
        found = torch.autograd.grad(loss, list(self.values.values()), allow_unused=True)
        pairs = zip(self.values.items(), found, strict=True)
        return {n: torch.zeros_like(v) if grad is None else grad for (n, v), grad in pairs}


def _call(
    loss: Loss, part: Sequence[Datum], leaves: _Leaves, places: Places
) -> tuple[Tensor, dict[str, float]]:
    spread = {name: places.spread(values) for name, values in leaves.values.items()}
    logprobs = spread.pop("logprobs")
    return loss(part, logprobs, spread) if spread else loss(part, logprobs)  # type: ignore[call-arg]


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


def _culprits(loss: Loss, part: Sequence[Datum], leaves: _Leaves, device: torch.device) -> str:
    """The problems whose data, alone, give a loss that is not finite."""
    names, first = [], 0
    for datum in part:
        places = Places.of([datum], device)
        own = slice(first, first + places.counts[0])
        first = own.stop
        alone = _Leaves(
            values={n: v.detach()[own] for n, v in leaves.values.items()}, last=leaves.last
        )
        if not torch.isfinite(_call(loss, [datum], alone, places)[0]):
            names.append(datum)
    return name_problems(names)


def name_problems(data: Sequence[Datum]) -> str:
    """`problems 'a', 'b'`: a few of them."""
    names = sorted({datum.problem_id for datum in data})
    shown = ", ".join(map(repr, names[:5])) + (" ..." if len(names) > 5 else "")
    return f"problems {shown}" if names else "no problem alone"
