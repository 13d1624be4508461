"""Layers, output head and loss compiled (`torch.compile`), once for all lengths.

The length of a row is a symbol in the compiled code of a layer, and attention is called outside of
it, so a run compiles each kind of layer a few times in its first steps and never again. Decoding,
which passes other attention, runs the layers as they are. Of head and loss those functions are
compiled that compute with tensors alone: the head's between its products, and those that a loss
marks (`rlvr.compilable`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import torch
from torch import Tensor
from torch._dynamo import exc

from rlvr_torch.models.hf.net import HFNet, hide_attention
from rlvr_torch.models.interface import Attend, Carry, Net, carry_of
from rlvr_torch.training.packing.prefix_packing import BlockAttention, PackedAttend, Row

log = structlog.get_logger(__name__)

_NAMES = ("TorchDynamoException", "FailOnRecompileLimitHit", "FailOnCacheLimitHit")
_FAILURES = tuple(getattr(exc, name) for name in _NAMES if hasattr(exc, name))
"""Raised before compiled code runs; PyTorch 2.6 calls the second one as the third."""


class Outside:
    """An `Attend` that compiled code calls and does not look into."""

    def __init__(self, attend: Attend) -> None:
        self._attend = attend

    @property
    def carry(self) -> Carry:
        """The inner `Attend`'s `carry`: layers that keep states are not compiled (`hf.states`)."""
        return carry_of(self._attend)

    @torch.compiler.disable
    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        mixed = self._attend(layer, q, k, v, sinks)
        return mixed.transpose(1, 2).contiguous().transpose(1, 2)  # one layout, whatever it was


def outside(attention: PackedAttend | None = None) -> PackedAttend:
    """The attention of packed rows, so that layers after `compile_layers` run compiled with it."""

    def made(net: Net, row: Row, device: torch.device) -> Attend:
        return Outside((attention or BlockAttention)(net, row, device))

    return made


def compile_layers(net: Net, backend: str | Callable[..., Any] = "inductor") -> None:
    """
    Compile the net's layers, for passes whose attention is from `outside`.

    Args:
        net: Whose layers; a layer's compiled code serves all layers of its kind.
        backend: torch.compile's.
    """
    if isinstance(net, HFNet):
        hide_attention(net)
    for layer in net.layers:
        plain = layer.forward
        fast = torch.compile(plain, dynamic=True, backend=backend)
        layer.forward = partial(_run, plain, fast)


def _run(plain: Callable[..., Any], fast: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    is_training = any(isinstance(one, Outside) for one in (*args, *kwargs.values()))
    return (fast if is_training else plain)(*args, **kwargs)


class FunctionCompiler:
    """
    Compiles functions of tensors, each once for all lengths above 1.

    A function that cannot be compiled whole, or for all lengths, runs as it is from then on; the
    log says so (`not_compiled`). Random numbers are those of the plain function.
    """

    def __init__(self, backend: str | Callable[..., Any] = "inductor") -> None:
        self._backend = backend
        self._made: dict[Callable[..., Any], Callable[..., Any]] = {}

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if function not in self._made:
            self._made[function] = self._compiled(function)
        return self._made[function]

    def _compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        options: Any = {"fallback_random": True} if self._backend == "inductor" else None
        fast = torch.compile(
            function, dynamic=True, fullgraph=True, backend=self._backend, options=options
        )

        def run(*args: Any, **kwargs: Any) -> Any:
            if self._made[function] is function:
                return function(*args, **kwargs)
            try:
                return fast(*args, **kwargs)
            except _FAILURES as error:
                self._made[function] = function
                reason = str(error).partition("\n")[0]
                log.warning("not_compiled", function=function.__qualname__, reason=reason)
            return function(*args, **kwargs)

        return run


def compile_training(
    net: Net, attention: PackedAttend, threads: int
) -> tuple[PackedAttend, FunctionCompiler | None]:
    """
    Compile the layers; give the attention to use with them, and the compiler of head and loss.

    No such compiler with several threads that share a batch: the one that compiled first would
    decide how results are rounded.
    """
    compile_layers(net)
    return outside(attention), FunctionCompiler() if threads == 1 else None
