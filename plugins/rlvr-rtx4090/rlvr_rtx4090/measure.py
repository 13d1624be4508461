"""What a device reaches: matrix products and memory traffic, timed. Any torch device will do."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

_SECONDS = 0.3
"""Least time of a measurement."""


def seconds_of(
    work: Callable[[], object], device: torch.device, least_s: float = _SECONDS
) -> float:
    """Seconds of one call: the best of three rounds, each of as many calls as take `least_s`."""
    work()  # libraries choose their kernels
    calls, best = 1, float("inf")
    for _ in range(3):
        while True:
            synchronize(device)
            started = time.perf_counter()
            for _ in range(calls):
                work()
            synchronize(device)
            taken = time.perf_counter() - started
            if taken >= least_s:
                break
            calls *= 2
        best = min(best, taken / calls)
    return best


def synchronize(device: torch.device) -> None:
    """Wait for all work of the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def matmul_peak(
    device: torch.device,
    dtype: torch.dtype = torch.bfloat16,
    sizes: tuple[int, ...] = (4096, 8192),
    least_s: float = _SECONDS,
) -> float:
    """Most TFLOP/s of a product of two square matrices, over some sizes."""
    best = 0.0
    for size in sizes:
        a = torch.randn(size, size, device=device).to(dtype)
        b = torch.randn(size, size, device=device).to(dtype)
        out = torch.empty_like(a)

        def product(a: torch.Tensor = a, b: torch.Tensor = b, out: torch.Tensor = out) -> object:
            return torch.mm(a, b, out=out)

        best = max(best, 2 * size**3 / seconds_of(product, device, least_s) / 1e12)
    return best


def bandwidth(device: torch.device, mib: int = 1024, least_s: float = _SECONDS) -> float:
    """GB/s of a copy within the device's memory, bytes read and written."""
    source = torch.ones(mib * 2**18, device=device)
    target = torch.empty_like(source)
    taken = seconds_of(lambda: target.copy_(source), device, least_s)
    return 2 * source.nbytes / taken / 1e9
