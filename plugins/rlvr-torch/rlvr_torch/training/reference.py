"""The weights a run started from, whenever their logprobs are asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import torch

from rlvr import BackendError
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.weights_digest import WeightsDigest


class Reference:
    """
    A context that gives the net whose logprobs are the reference's.

    Either a frozen copy, read again from where the model came from, or the same weights with the
    adapters off, which takes no memory.

    Args:
        net: The net that is trained.
        is_adapter_off: Which of the two.
        start_digest: The digest of the weights the run started from.
        read: Makes the start weights again, on the device they are used on.
        source: What to call them in errors.
    """

    def __init__(
        self,
        net: Net,
        *,
        is_adapter_off: bool,
        start_digest: str,
        read: Callable[[], Net],
        source: object,
    ) -> None:
        self._net, self._is_adapter_off = net, is_adapter_off
        self._start_digest, self._read, self._source = start_digest, read, source
        self._copy: Net | None = None

    def __enter__(self) -> Net:
        self._stack = contextlib.ExitStack()
        if self._is_adapter_off:
            from rlvr_torch.models.lora.adapters import without_adapter

            self._stack.enter_context(without_adapter(self._net))  # type: ignore[arg-type]
            return self._net
        if self._copy is None:
            copy = self._read()
            if WeightsDigest(copy)() != self._start_digest:
                raise BackendError(
                    "the reference cannot be had: the model's files changed since the run started"
                    f"\n  {self._source} must hold the weights of the start"
                )
            for value in copy.module.parameters():
                value.requires_grad_(False)
            self._copy = copy
        return self._copy

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def is_adapter_off(net: Net, option: str, has_start_adapter: bool) -> bool:
    """
    What `torch.reference` comes to: `auto` is the bare model where that is what a run started from.

    Args:
        net: The net that is trained.
        option: `torch.reference`.
        has_start_adapter: Whether the run goes on from saved adapters.
    """
    has_adapters = getattr(net, "adapted", None) is not None
    return option == "adapter-off" or (option == "auto" and has_adapters and not has_start_adapter)


def on_device(net: Net, device: torch.device) -> Net:
    """The net, its weights on a device; those that a quantiser placed are left where they are."""
    if not getattr(getattr(net, "model", None), "is_quantized", False):
        net.module.to(device)
    return net
