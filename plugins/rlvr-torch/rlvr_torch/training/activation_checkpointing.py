"""Activation checkpointing: a layer keeps its input, and computes the rest again when it is needed.

Source: Chen et al. 2016 (arXiv:1604.06174), with one segment a layer.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rlvr_torch.config import TorchConfig
from rlvr_torch.memory_plan import trained_bytes
from rlvr_torch.models.attention import attend_over
from rlvr_torch.models.hf.load import import_compiler, import_transformers, quietly
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.interface import Net
from rlvr_torch.models.lora.adapters import attach
from rlvr_torch.runtime.device import free_memory

_PROBE = 128
"""Tokens of the longer pass that measures what layers keep."""


_SHARE = 0.5
"""Most of the free memory that activations may take before they are computed again."""


def is_checkpointed(
    option: str,
    net: Net,
    *,
    tokens: int,
    dtype: torch.dtype,
    free: int | None,
    optimizer: str = "adamw",
) -> bool:
    """
    Whether `torch.checkpointing` (`option`) means checkpointed layers.

    Args:
        option: `auto`: where activations would take more than half of what weights leave free.
        net: The model, on its device.
        tokens: Of a micro-batch.
        dtype: Of the products.
        free: Bytes of the device that are free, its weights already there; None: a CPU's.
        optimizer: `torch.optimizer`, whose state comes with the first update.
    """
    if option != "auto":
        return option == "layers"
    if free is None:
        return False
    trained = sum(value.numel() for value in net.module.parameters() if value.requires_grad)
    room = free - trained_bytes(optimizer) * trained
    return tokens * activation_bytes(net, dtype) > _SHARE * room


def checkpoint_where_meant(config: TorchConfig, net: Net, tokens: int, dtype: torch.dtype) -> None:
    """`checkpoint_layers` where the options mean it (`is_checkpointed`), on the net's device."""
    free, optimizer = free_memory(net.head.device), config.optimizer
    if is_checkpointed(
        config.checkpointing, net, tokens=tokens, dtype=dtype, free=free, optimizer=optimizer
    ):
        checkpoint_layers(net)


def checkpoint_layers(net: Net) -> None:
    """From now on each layer of the net keeps only its input for the backward pass."""
    import_compiler()  # as `torch.utils.checkpoint` does when it is called
    for layer in net.layers:
        layer.forward = partial(_recomputed, layer.forward)


def _recomputed(forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*args, **kwargs)
    from torch.utils.checkpoint import checkpoint

    context = copy_context()  # on a GPU the backward pass runs in a thread of autograd's
    return checkpoint(
        partial(context.run, forward),
        *args,
        use_reentrant=False,
        preserve_rng_state=False,  # there is no dropout
        **kwargs,
    )


def activation_bytes(net: Net, dtype: torch.dtype) -> float:
    """
    Bytes a token that the net keeps for the backward pass, without checkpointing.

    The difference of two short passes, so copies of weights do not count. `dtype` is the type of
    the products.
    """
    most = min(_PROBE, net.positions)
    few = most // 2
    return (_kept(net, most, dtype) - _kept(net, few, dtype)) / (most - few)


def planned_bytes(config: Any, dtype: str, rank: int) -> float:
    """
    `activation_bytes` of a layer, by a configuration of transformers alone: no weights are made.

    Args:
        config: Of a language model without experts, whose products cannot be planned so.
        dtype: `torch.dtype`, but "auto".
        rank: Of adapters; 0: all weights are trained.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode  # imports the compiler

    products: torch.dtype = getattr(torch, dtype)
    kind = import_transformers().AutoModelForCausalLM
    with quietly(), torch.device("meta"):
        net = HFNet(kind.from_config(config, dtype=products if rank else torch.float32))
        if rank:
            attach(net, TorchConfig(lora_rank=rank, dtype=dtype))
    with FakeTensorMode(allow_non_fake_inputs=True):
        net.module.to_empty(device="cpu")  # autocast passes over "meta"
        return activation_bytes(net, products) / len(net.layers)


def _kept(net: Net, count: int, dtype: torch.dtype) -> int:
    """Bytes that a pass of `count` tokens keeps, each tensor's memory once."""
    kept: dict[int, torch.UntypedStorage] = {}  # held, so no place is used twice

    def note(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        kept[storage._cdata] = storage
        return saved

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None) -> Tensor:
        return attend_over(net.heads[layer], q, k, v, None, sinks)

    device = net.head.device
    tokens = torch.zeros(1, count, dtype=torch.long, device=device)
    hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved)
    with torch.autocast(device.type, dtype, enabled=dtype != torch.float32), hooks:
        net.hidden(tokens, torch.arange(count, device=device)[None], attend)
    return sum(storage.nbytes() for storage in kept.values())
