"""The heads of a net: logprobs and entropies a few positions at a time, their gradients, values.

One buffer of logits (n, V), float32 whatever the rest is computed in, becomes probabilities and
then the gradient of the logits, in place.

Shapes: n positions of a chunk, C width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from attrs import evolve, field, frozen
from torch import Tensor, nn

from rlvr_torch.models.head_product import FLOAT32, HeadProduct
from rlvr_torch.models.interface import Net
from rlvr_torch.training.softmax import Compiler, Softmax, softmax_of


@frozen(kw_only=True, eq=False)
class Head:
    """
    Turns hidden states into logits: `cap(scale * (W h + b)) / temperature`.

    The bias is float32, except that of a `leaf`, which a loss gets as the model has it.
    """

    weights: Tensor  # (V, C)
    bias: Tensor | None = None  # (V,)
    scale: float = 1.0
    softcap: float = 0.0
    multiply: HeadProduct = FLOAT32  # its products, which give float32
    compiler: Compiler | None = None  # of what is computed between them; None: it is not compiled

    @classmethod
    def of(cls, net: Net, product: HeadProduct = FLOAT32, compiler: Compiler | None = None) -> Head:
        """The head of a net as its products read it, without gradients."""
        head = cls._made(net, lambda value: value.detach())
        bias = None if head.bias is None else head.bias.float()
        weights = product.weights(head.weights)
        return evolve(head, weights=weights, bias=bias, multiply=product, compiler=compiler)

    @classmethod
    def leaf(cls, net: Net, *, with_grad: bool = True) -> Head:
        """The head of a net in its own type, as leaves that need a gradient where it is trained."""
        return cls._made(
            net, lambda value: value.detach().requires_grad_(with_grad and value.requires_grad)
        )

    @classmethod
    def _made(cls, net: Net, convert: Callable[[Tensor], Tensor]) -> Head:
        bias = None if net.head_bias is None else convert(net.head_bias)
        scale, softcap = net.logit_scale, net.logit_softcap
        return cls(weights=convert(net.head), bias=bias, scale=scale, softcap=softcap)

    def detached(self) -> Head:
        bias = None if self.bias is None else self.bias.detach()
        return evolve(self, weights=self.weights.detach(), bias=bias)

    def logits(self, hidden: Tensor, heat: Tensor, buffer: Tensor) -> Tensor:
        """Logits (n, V) of states (n, C) at temperatures (n,), in a float32 buffer; no gradient."""
        with torch.no_grad():
            _, logits = self.product(hidden, heat, buffer)
            return logits.tanh_().mul_((self.softcap / heat)[:, None]) if self.softcap else logits

    def product(self, hidden: Tensor, heat: Tensor, buffer: Tensor) -> tuple[Tensor, Tensor]:
        """The rows (n, C) times their scale, and logits (n, V) before the cap, in the buffer."""
        row_scale = self.row_scale(heat)
        inputs = self.multiply.inputs(hidden.float() * row_scale[:, None])
        logits = self.multiply.logits(inputs, self.weights, buffer[: len(inputs)])
        if self.bias is not None:
            logits.addr_(row_scale, self.bias)
        return inputs, logits

    def row_scale(self, heat: Tensor) -> Tensor:
        """Factors (n,) of the rows of hidden states before the matrix product."""
        if self.softcap:
            return torch.full_like(heat, self.scale / self.softcap)
        return self.scale / heat


@frozen(kw_only=True, eq=False)
class HeadGrads:
    """Sums of the head's gradients; None if the head is frozen or has no such weight."""

    weights: Tensor | None = None  # (V, C)
    bias: Tensor | None = None  # (V,)

    @classmethod
    def zeros(cls, net: Net) -> HeadGrads:
        def zeros(value: Tensor | None) -> Tensor | None:
            if value is None or not value.requires_grad:
                return None
            return torch.zeros_like(value, dtype=torch.float32)

        return cls(weights=zeros(net.head), bias=zeros(net.head_bias))

    def plus(self, weights: Tensor | None, bias: Tensor | None) -> HeadGrads:
        """With further gradients added; those are kept, not copied, where there were none."""

        def both(have: Tensor | None, more: Tensor | None) -> Tensor | None:
            return more if have is None else have if more is None else have.add_(more)

        return HeadGrads(weights=both(self.weights, weights), bias=both(self.bias, bias))


@frozen(kw_only=True, eq=False)
class Chunk:
    """Logits of n positions and their results. Use `backward` once: it overwrites the buffers."""

    logprobs: Tensor  # (n,) nats, of the targets
    entropy: Tensor | None  # (n,) nats, of the whole distribution; None where not asked for
    _head: Head = field(repr=False)
    _inputs: Tensor = field(repr=False)  # (n, C) rows times their scale
    _heat: Tensor = field(repr=False)  # (n,)
    _softmax: Softmax = field(repr=False)

    @classmethod
    def forward(
        cls,
        head: Head,  # the head
        hidden: Tensor,  # (n, C), any type
        targets: Tensor,  # (n,) ids
        heat: Tensor,  # (n,) temperatures
        buffer: Tensor,  # (n or more, V) float32 to compute in
        *,
        entropy: bool = False,  # whether entropies are wanted too
    ) -> Chunk:
        """Compute without a graph."""
        with torch.no_grad():
            inputs, logits = head.product(hidden, heat, buffer)
            softmax = softmax_of(
                logits, targets, heat, head.softcap, entropy=entropy, compiler=head.compiler
            )
            return cls(
                logprobs=softmax.logprobs,
                entropy=softmax.entropy,
                head=head,
                inputs=inputs,
                heat=heat,
                softmax=softmax,
            )

    def backward(
        self, d_logprobs: Tensor, d_entropy: Tensor | None, d_hidden: Tensor, grads: HeadGrads
    ) -> None:
        """
        Write the gradient of the hidden states (n, C) to `d_hidden`; add the head's to `grads`.

        `d_logprobs` (n,) and `d_entropy` (n,) or None are the gradients of the loss.
        """
        with torch.no_grad():
            d_logits = self._softmax.d_logits(d_logprobs, d_entropy)
            head, row_scale = self._head, self._head.row_scale(self._heat)
            d_states = head.multiply.by_states(d_logits, head.weights)
            d_hidden.copy_(d_states.mul_(row_scale[:, None]))
            if grads.weights is not None:
                head.multiply.add_by_weights(grads.weights, d_logits, self._inputs)
            if grads.bias is not None:
                grads.bias.add_(row_scale @ d_logits)


class Critic(nn.Module):
    """
    The value head: how much reward is still to come, by the final hidden state before a token.

    One linear map, zero at first. It shares the policy's trunk, so its gradient flows there too.
    Always float32.
    """

    def __init__(self, width: int, device: torch.device) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, device=device))
        self.bias = nn.Parameter(torch.zeros((), device=device))

    def forward(self, hidden: Tensor) -> Tensor:
        """Estimates (N,), unit: reward, from hidden states (N, C)."""
        return hidden.float() @ self.weight + self.bias
