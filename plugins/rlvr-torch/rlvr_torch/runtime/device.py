"""The device to compute on, its type and its memory."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import torch
from attrs import evolve
from torch import Tensor

from rlvr import CheckResult, ConfigError, PrerequisiteError
from rlvr_torch.config import TorchConfig

_CGROUPS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def choose_device(name: str = "auto") -> torch.device:
    """
    The device of that name; `auto` is CUDA, else Apple's GPU, else the CPU.

    Raises:
        PrerequisiteError: The device is not there.
    """
    found = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == "auto":
        name = next(device for device, is_there in found.items() if is_there)
    if not found[name]:
        have = ", ".join(device for device, is_there in found.items() if is_there)
        raise PrerequisiteError(
            f"torch.device={name} was asked for\n"
            f"  torch {torch.__version__} finds: {have}\n"
            "  try: torch.device=auto, or install a torch build for your GPU (pytorch.org)"
        )
    return torch.device(name)


@contextmanager
def own_modes() -> Iterator[None]:
    """
    Undo the modes of the caller's thread: inference, no gradients, a default device.

    For what is made there; all else runs in threads of ours, where they do not hold.

    Raises:
        ConfigError: The process has another default type than float32, in all threads.
    """
    if (default := torch.get_default_dtype()) != torch.float32:
        raise ConfigError(
            "a model was to be loaded with PyTorch.",
            f"found: torch.set_default_dtype({default}) was called, which changes all of it",
            "call torch.set_default_dtype(torch.float32) before; torch.dtype is the option for "
            "the type of products",
        )
    cpu = torch.device("cpu")
    is_moved = torch.get_default_device() != cpu  # else compiled code would depend on this mode
    with torch.inference_mode(False), torch.enable_grad(), cpu if is_moved else nullcontext():
        yield


def settled(config: TorchConfig, device: torch.device) -> TorchConfig:
    """The options with the type of products that `torch.dtype=auto` means on this device."""
    if config.dtype != "auto":
        return config
    is_card = device.type == "cuda"
    has_it = is_card and torch.cuda.is_bf16_supported(including_emulation=False)
    return evolve(config, dtype="bfloat16" if has_it else "float32")


def allow_tf32(device: torch.device, is_allowed: bool) -> None:
    """Let float32 products of this process round their inputs to TF32, or not; NVIDIA cards."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high" if is_allowed else "highest")


def free_memory(device: torch.device) -> int | None:
    """Bytes of an NVIDIA card that nobody uses; None for other devices."""
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def memory_of(device: torch.device) -> int:
    """Bytes of the device's memory; on a CPU, what the machine or its container allows."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type == "mps":
        return int(torch.mps.recommended_max_memory())
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for place in _CGROUPS:
        with suppress(OSError, ValueError):  # no limit is written as "max"
            total = min(total, int(Path(place).read_text()))
    return total


def on_host(tensor: Tensor) -> Tensor:
    """A copy in the CPU's memory; of a card's tensor, in memory that the card reads fastest."""
    copy = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return copy.copy_(tensor.detach())


def check_device() -> CheckResult:
    """Multiply two matrices on the device that `auto` chooses."""
    device = choose_device()
    fix = "torch.device=cpu"
    try:
        ones = torch.ones(8, 8, device=device)
        is_right = bool(((ones @ ones) == 8).all())
    except RuntimeError as error:
        return CheckResult(ok=False, found=f"torch {torch.__version__}, {device}: {error}", fix=fix)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return CheckResult(ok=is_right, found=f"torch {torch.__version__} on {name}", fix=fix)


def vllm_is_for_cpu() -> bool:
    """Whether the vLLM that is installed was built for the CPU."""
    return bool(importlib.import_module("vllm.platforms").current_platform.is_cpu())
