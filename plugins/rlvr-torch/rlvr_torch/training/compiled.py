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
from torch._dynamo import config as dynamo
from torch._dynamo import exc
from torch._functorch import config as functorch

from rlvr_torch.models.hf.net import HFNet, hide_attention
from rlvr_torch.models.interface import Attend, Carry, Net, carry_of
from rlvr_torch.training.packing.prefix_packing import BlockAttention, PackedAttend, Row

log = structlog.get_logger(__name__)

_NAMES = ("TorchDynamoException", "FailOnRecompileLimitHit", "FailOnCacheLimitHit")
_FAILURES = tuple(getattr(exc, name) for name in _NAMES if hasattr(exc, name))
"""Raised before compiled code runs; PyTorch 2.6 calls the second one as the third."""

# NumPy's random functions are not replaced by PyTorch's.
_DYNAMO = {"use_numpy_random_stream": True}
# The backward pass is compiled with the forward pass, where `_Attempt` meets what fails.
_FUNCTORCH = {n: True for n in ("force_non_lazy_backward_lowering",) if hasattr(functorch, n)}

_MOST = 64
"""Functions of which compiled code is held: what a function holds lives as long."""


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
    failed: set[Any] = set()
    for layer in net.layers:
        plain = layer.forward
        fast = torch.compile(plain, dynamic=True, backend=backend)
        layer.forward = partial(_run, plain, _Attempt(plain, fast, type(layer), failed))


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
        self._made: dict[int, _Attempt] = {}  # by `id`, as not every callable has a hash
        self._failed: set[Any] = set()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The compiled function; the function itself once it could not be compiled."""
        kind = _kind(function)
        if kind in self._failed:
            return function
        if id(function) not in self._made:
            if len(self._made) == _MOST:  # a loss that marks a new function at each call
                del self._made[next(iter(self._made))]
            options: Any = {"fallback_random": True} if self._backend == "inductor" else None
            fast = torch.compile(
                function, dynamic=True, fullgraph=True, backend=self._backend, options=options
            )
            self._made[id(function)] = _Attempt(function, fast, kind, self._failed)
        return self._made[id(function)]


def _kind(function: Callable[..., Any]) -> Any:
    """What functions share that are made anew at each call: their code, or their class."""
    inner = getattr(function, "func", function)  # of a `functools.partial`
    return getattr(inner, "__code__", type(inner))


class _Attempt:
    """Compiled code; the plain function once code of its kind could not be made."""

    def __init__(
        self, plain: Callable[..., Any], fast: Callable[..., Any], kind: Any, failed: set[Any]
    ) -> None:
        self._plain, self._fast, self._kind, self._failed = plain, fast, kind, failed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._kind not in self._failed:
            try:
                with dynamo.patch(_DYNAMO), functorch.patch(_FUNCTORCH):
                    return self._fast(*args, **kwargs)
            except _FAILURES as error:
                self._failed.add(self._kind)
                name = getattr(self._plain, "__qualname__", type(self._plain).__name__)
                log.warning("not_compiled", function=name, reason=str(error).partition("\n")[0])
        return self._plain(*args, **kwargs)


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
