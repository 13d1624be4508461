"""The layers of a net compiled (`torch.compile`), once for all lengths of a packed row.

The row's length is a symbol in the compiled code and attention is called outside of it, so a run
compiles each kind of layer a few times in its first steps and never again. Decoding, which passes
other attention, runs the layers as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlvr_torch.models.hf.net import HFNet, hide_attention
from rlvr_torch.models.interface import Attend, Carry, Net, carry_of
from rlvr_torch.training.packing.prefix_packing import BlockAttention, PackedAttend, Row


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
