"""From logits to logprobs and entropies, and to the gradient of the logits, in one buffer.

The plain version overwrites the buffer operator by operator. The compiled one reads it once or
twice, keeps it, and overwrites it by the gradient in one pass; it needs no second buffer.

Shapes: n positions of a chunk, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

import torch
from attrs import field, frozen
from torch import Tensor

Compiler: TypeAlias = Callable[[Callable[..., Any]], Callable[..., Any]]
"""
Compiles a function of tensors; gives the function itself once that has failed
(`rlvr_torch.training.compiled.FunctionCompiler`).
"""


class Softmax(Protocol):
    """Results for n positions."""

    @property
    def logprobs(self) -> Tensor:
        """Of the targets, (n,), nats."""

    @property
    def entropy(self) -> Tensor | None:
        """Of the whole distributions, (n,), nats; None where not asked for."""

    def d_logits(self, d_logprobs: Tensor, d_entropy: Tensor | None) -> Tensor:
        """
        The gradient by the logits before the cap, (n, V), from gradients (n,) by the results.

        Use it once: it overwrites the logits.
        """


def softmax_of(
    logits: Tensor,  # (n, V) before the cap, float32; overwritten
    targets: Tensor,  # (n,) ids
    heat: Tensor,  # (n,) temperatures
    softcap: float = 0.0,  # logits become `softcap * tanh(logits) / heat`; 0: as they are
    *,
    entropy: bool = False,  # whether entropies are wanted too
    compiler: Compiler | None = None,  # None: operator by operator
) -> Softmax:
    """Results for n positions; no graph."""
    # A single row would be compiled for itself, because PyTorch makes a size of 1 a constant.
    if compiler is not None and len(targets) > 1 and _compiles(compiler):
        compiled = CompiledSoftmax.of(
            logits, targets, heat, softcap, entropy=entropy, compiler=compiler
        )
        if _compiles(compiler):
            return compiled
    return PlainSoftmax.of(logits, targets, heat, softcap, entropy=entropy)


def _compiles(compiler: Compiler) -> bool:
    """Whether neither function has failed: run as they are, they take buffers of their own."""
    return all(compiler(one) is not one for one in (_results, _become_gradient))


@frozen(kw_only=True, eq=False)
class PlainSoftmax:
    """Operator by operator, in place; entropies and soft caps take a further buffer."""

    logprobs: Tensor
    entropy: Tensor | None
    _targets: Tensor = field(repr=False)  # (n,)
    _mass: Tensor = field(repr=False)  # (n, 1) sum of the exponentials
    _exps: Tensor = field(repr=False)  # (n, V) exp(logit - largest logit)
    _logits: Tensor | None = field(repr=False)  # (n, V) logit - largest logit; with entropy
    _slope: Tensor | None = field(repr=False)  # (n, V) derivative of the soft cap
    _scale: Tensor | None = field(repr=False)  # (n, 1) softcap / heat

    @classmethod
    def of(
        cls, logits: Tensor, targets: Tensor, heat: Tensor, softcap: float, *, entropy: bool
    ) -> PlainSoftmax:
        slope = scale = None
        if softcap:
            logits.tanh_()
            slope, scale = 1 - logits.square(), (softcap / heat)[:, None]
            logits.mul_(scale)
        logits.sub_(logits.amax(dim=1, keepdim=True))
        chosen = logits.gather(1, targets[:, None])
        exps = logits.exp() if entropy else logits.exp_()
        mass = exps.sum(dim=1, keepdim=True)
        log_mass = mass.log()
        found = None
        if entropy:
            mean = (exps[:, None] @ logits[:, :, None])[:, :, 0] / mass  # (n, 1)
            found = (log_mass - mean)[:, 0]
        return cls(
            logprobs=(chosen - log_mass)[:, 0],
            entropy=found,
            targets=targets,
            mass=mass,
            exps=exps,
            logits=logits if entropy else None,
            slope=slope,
            scale=scale,
        )

    def d_logits(self, d_logprobs: Tensor, d_entropy: Tensor | None) -> Tensor:
        """D logprob / d logit is [target] - p, d entropy / d logit is -p (log p + entropy)."""
        d_logits = self._exps
        if d_entropy is None or self._logits is None or self.entropy is None:
            d_logits.mul_(-d_logprobs[:, None] / self._mass)
        else:
            share = self._logits.add_(self.entropy[:, None] - self._mass.log())
            share.mul_(d_entropy[:, None]).add_(d_logprobs[:, None])
            d_logits.mul_(share).mul_(-1 / self._mass)
        d_logits.scatter_add_(1, self._targets[:, None], d_logprobs[:, None])
        if self._slope is not None and self._scale is not None:
            d_logits.mul_(self._scale).mul_(self._slope)
        return d_logits


@frozen(kw_only=True, eq=False)
class CompiledSoftmax:
    """Two compiled functions: the results, and the gradient in the logits' place."""

    logprobs: Tensor
    entropy: Tensor | None
    _logits: Tensor = field(repr=False)  # (n, V) before the cap
    _largest: Tensor = field(repr=False)  # (n, 1) the largest logit, nats
    _log_mass: Tensor = field(repr=False)  # (n, 1) log-sum-exp of the logits less it, nats
    _targets: Tensor = field(repr=False)  # (n,)
    _heat: Tensor = field(repr=False)  # (n,)
    _softcap: float = field(repr=False)
    _compiler: Compiler = field(repr=False)

    @classmethod
    def of(
        cls,
        logits: Tensor,
        targets: Tensor,
        heat: Tensor,
        softcap: float,
        *,
        entropy: bool,
        compiler: Compiler,
    ) -> CompiledSoftmax:
        logits, targets, heat = _no_views(logits, targets, heat)
        torch._dynamo.mark_static(logits, 1)  # the rows alone are of any number
        found = compiler(_results)(logits, targets, heat, softcap, entropy)
        return cls(
            logprobs=found[0],
            entropy=found[1],
            logits=logits,
            largest=found[2],
            log_mass=found[3],
            targets=targets,
            heat=heat,
            softcap=softcap,
            compiler=compiler,
        )

    def d_logits(self, d_logprobs: Tensor, d_entropy: Tensor | None) -> Tensor:
        """As `PlainSoftmax`."""
        (pull,) = _no_views(d_logprobs)
        sums, given = (self._largest, self._log_mass), (self._targets, self._heat, self._softcap)
        extra = () if d_entropy is None else (*_no_views(d_entropy), self.entropy)
        self._compiler(_become_gradient)(self._logits, *sums, *given, pull, *extra)
        return self._logits


def _results(
    logits: Tensor, targets: Tensor, heat: Tensor, softcap: float, entropy: bool
) -> tuple[Tensor, Tensor | None, Tensor, Tensor]:
    """Logprobs (n,), entropies (n,) or None; largest logits, and log-sum-exp less them (n, 1)."""
    largest = _capped(logits.amax(dim=1, keepdim=True), heat, softcap)  # the cap keeps the order
    moved = _capped(logits, heat, softcap) - largest
    exps = moved.exp()
    mass = exps.sum(dim=1, keepdim=True)
    chosen = _capped(logits.gather(1, targets[:, None]), heat, softcap) - largest
    found = None
    if entropy:
        found = (mass.log() - (exps * moved).sum(dim=1, keepdim=True) / mass)[:, 0]
    return (chosen - mass.log())[:, 0], found, largest, mass.log()


def _become_gradient(
    logits: Tensor,
    largest: Tensor,
    log_mass: Tensor,
    targets: Tensor,
    heat: Tensor,
    softcap: float,
    d_logprobs: Tensor,
    d_entropy: Tensor | None = None,
    entropy: Tensor | None = None,
) -> None:
    """Write the gradient over the logits (n, V): each element from itself, so in one pass."""
    # Not less their sum: at a low temperature it is large, and its rounding the error of all.
    logprobs = (_capped(logits, heat, softcap) - largest) - log_mass
    pull = d_logprobs[:, None]
    if d_entropy is not None and entropy is not None:
        pull = pull + d_entropy[:, None] * (logprobs + entropy[:, None])
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
    found = torch.where(is_target, d_logprobs[:, None], 0.0) - logprobs.exp() * pull
    if softcap:
        found = found * ((softcap / heat)[:, None] * (1 - logits.tanh().square()))
    logits.copy_(found)


def _capped(logits: Tensor, heat: Tensor, softcap: float) -> Tensor:
    return logits.tanh() * (softcap / heat)[:, None] if softcap else logits


def _no_views(*tensors: Tensor) -> list[Tensor]:
    """The same memory in tensors without a base: PyTorch would compile for sizes of the base."""
    return [
        t.new_empty(0).set_(t.untyped_storage(), t.storage_offset(), t.shape, t.stride())
        for t in tensors
    ]
