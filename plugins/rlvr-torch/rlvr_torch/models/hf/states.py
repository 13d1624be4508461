"""Layers that keep a state of each sequence beside keys, in transformers' own code.

Such a layer (Gated DeltaNet of Qwen3-Next and Qwen3.5) reads and writes its state through the
`cache` that it is given: the end of a convolution's input, and a recurrent matrix. Ours holds one
call's state and is empty again after it. Which sequence goes on from which state is said by the
caller of `HFNet.hidden`, as with attention (`interface.carry_of`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rlvr import BackendError
from rlvr_torch.models.interface import State, carry_of

STATEFUL = frozenset({"linear_attention", "conv"})
"""Kinds of layers, by transformers' `layer_types`."""


def carry_states(decoder: nn.Module, config: Any) -> frozenset[int]:
    """
    Let the layers that keep a state, which are given back, take it from the decoder's caller.

    Raises:
        BackendError: A layer has no part, or several, that take a cache.
    """
    from transformers.modeling_layers import GradientCheckpointingLayer

    kinds = (getattr(config, "layer_types", None) or ())[: config.num_hidden_layers]
    layers = [layer for layer, kind in enumerate(kinds) if kind in STATEFUL]
    takers: dict[int, list[nn.Module]] = {layer: [] for layer in layers}
    for module in decoder.modules():
        layer = getattr(module, "layer_idx", None)
        if layer not in takers or isinstance(module, GradientCheckpointingLayer):
            continue
        if "cache" in inspect.signature(module.forward).parameters:
            takers[layer].append(module)
    for layer, found in takers.items():
        if len(found) != 1:
            raise BackendError(f"{len(found)} parts of layer {layer} ({kinds[layer]}) take a cache")
        (module,) = found
        first = next(iter(inspect.signature(module.forward).parameters))
        module.forward = partial(_uncompiled(), layer, module.forward, first)
    return frozenset(layers)


@cache  # one for all layers, so that they share what is compiled
def _uncompiled() -> Callable[..., Any]:
    return torch.compiler.disable(_carried)  # no decorator: it imports the compiler


def _carried(layer: int, forward: Callable[..., Any], first: str, *args: Any, **kwargs: Any) -> Any:
    attend = kwargs.pop("rlvr_attend", None)
    if attend is None:  # the model is called as a whole
        return forward(*args, **kwargs)
    if kwargs.get("attention_mask") is not None:
        raise BackendError(f"layer {layer} is given a mask of its own")

    def step(inputs: Tensor, state: State) -> tuple[Tensor, State]:
        cache = _StateCache(state)
        return forward(inputs, cache=cache), cache.state

    return carry_of(attend)(layer, args[0] if args else kwargs[first], step)


class _StateCache:
    """The `cache` of one call of one layer: transformers' `Cache`, without writing in place."""

    def __init__(self, state: State) -> None:
        self.state: dict[Hashable, Tensor] = dict(state)

    def is_recording_past(self, layer_idx: int) -> bool:
        return False

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """The end of the convolution's input, (B, channels, kernel); the caller may write there."""
        if ("conv", state_idx) in self.state:
            self.state["conv", state_idx] = self.state["conv", state_idx].clone()
        return self.state.get(("conv", state_idx))

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self.state.get(("recurrent", state_idx))

    def update_conv_state(
        self,
        conv_states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        conv_kernel_size: int | None = None,
    ) -> Tensor:
        """Inputs (B, channels, T) after those that are kept, or padded to the kernel's width."""
        width = conv_kernel_size or conv_states.shape[-1]
        before = self.state.get(("conv", state_idx))
        if before is not None:
            whole = torch.cat([before, conv_states], dim=-1)
        else:
            whole = F.pad(conv_states, (max(0, width - conv_states.shape[-1]), 0))
        self.state["conv", state_idx] = whole[..., -width:].contiguous()
        return whole

    def update_recurrent_state(
        self, recurrent_states: Tensor, layer_idx: int, state_idx: int = 0
    ) -> Tensor:
        self.state["recurrent", state_idx] = recurrent_states
        return recurrent_states
