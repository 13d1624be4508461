"""The weights a run started from, whenever their logprobs are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from attrs import define

from rlvr import BackendError
from rlvr_torch.models.interface import Net
from rlvr_torch.models.weight_storage import store_lower
from rlvr_torch.runtime.weights_digest import WeightsDigest


@define(kw_only=True, eq=False)
class Reference:
    """
    Gives the net whose logprobs are the reference's.

    Either a frozen copy, read again from where the model came from, or the same weights with the
    adapters off, which takes no memory.
    """

    _net: Net  # the net that is trained
    _is_adapter_off: bool  # which of the two
    _start_digest: str  # of the weights the run started from
    _read: Callable[[], Net]  # makes the start weights again, on the device they are used on
    _source: object  # what to call them in errors
    _dtype: torch.dtype = torch.float32  # of the products
    _copy: Net | None = None

    @contextmanager
    def opened(self) -> Iterator[Net]:
        """
        The net, for use inside.

        `BackendError` where the start weights are not what they were.
        """
        if self._is_adapter_off:
            from rlvr_torch.models.lora.adapters import without_adapter

            with without_adapter(self._net):  # type: ignore[arg-type]
                yield self._net
            return
        if self._copy is None:
            copy = self._read()
            if WeightsDigest(copy)() != self._start_digest:
                raise BackendError(
                    "the reference cannot be had: the model's files changed since the run started"
                    f"\n  {self._source} must hold the weights of the start"
                )
            copy.module.requires_grad_(False)
            store_lower(copy, self._dtype)
            self._copy = copy
        yield self._copy


def is_adapter_off(net: Net, option: str, has_start_adapter: bool) -> bool:
    """
    Whether `torch.reference` (`option`) means the weights without adapters.

    `auto` does where the run started from the bare model: with adapters, none of them saved before.
    """
    has_adapters = getattr(net, "adapted", None) is not None
    return option == "adapter-off" or (option == "auto" and has_adapters and not has_start_adapter)


def on_device(net: Net, device: torch.device) -> Net:
    """The net, its weights on a device; those that a quantiser placed are left where they are."""
    if not getattr(getattr(net, "model", None), "is_quantized", False):
        net.module.to(device)
    return net
