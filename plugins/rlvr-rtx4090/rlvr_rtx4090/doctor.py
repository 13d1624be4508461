"""`rlvr doctor --plugin rtx4090`: the card and its state, which kernels run, how fast it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from rlvr import CheckResult, PrerequisiteError
from rlvr_rtx4090.card import FIX, Card, read_card, require_card
from rlvr_rtx4090.measure import bandwidth, matmul_peak

NO_CARD = CheckResult(ok=False, found="no NVIDIA card: nothing was measured", fix=FIX)


def check_card() -> CheckResult:
    """Name, memory, power and temperature; `ok` for every card that the backend takes."""
    try:
        card = require_card()
    except PrerequisiteError as error:
        found = str(error).splitlines()[1].strip().removeprefix("found: ")
        return CheckResult(ok=False, found=found, fix=FIX)
    parts = [str(card)]
    if not card.is_meant:
        parts.append("not the RTX 4090: plans follow its memory")
    if reading := read_card(card):
        parts.append(
            f"{reading.power_w:.0f} of {reading.limit_w:.0f} W, {reading.temperature_c:.0f} C"
        )
        parts += [f"slowed by {cause}" for cause in reading.slowed_by]
    else:
        parts.append("nvidia-smi tells nothing: no power and temperature in the metrics")
    return CheckResult(ok=True, found=", ".join(parts))


def check_kernels() -> CheckResult:
    """Which of the fast ways run on this card; those that do not are named with the reason."""
    if Card.find() is None:
        return NO_CARD
    runs: list[str] = []
    fails: list[str] = []
    for name, work in (
        ("flash attention", _flash),
        ("torch.compile", _compiled),
        ("CUDA graphs", _graph),
    ):
        try:
            work()
            runs.append(name)
        except Exception as error:  # whatever a kernel's library raises
            fails.append(f"{name} ({type(error).__name__}: {str(error).splitlines()[0][:80]})")
    for name in ("bitsandbytes", "vllm"):
        (runs if importlib.util.find_spec(name) else fails).append(name)
    return CheckResult(
        ok=bool(runs),
        found=f"run: {', '.join(runs) or 'none'}; do not: {', '.join(fails) or 'none'}",
        fix="install a torch build for this card",
    )


def check_speed() -> CheckResult:
    """Measured TFLOP/s and GB/s beside the data sheet's; figures above it are refused."""
    card = Card.find()
    if card is None:
        return NO_CARD
    device = torch.device("cuda")
    tflops, speed = matmul_peak(device), bandwidth(device)
    found = f"{tflops:.1f} TFLOP/s in bfloat16, {speed:.0f} GB/s"
    if card.limits is None:
        return CheckResult(ok=True, found=f"{found} (no data sheet of {card.name} is known)")
    most, fastest = card.limits
    is_believable = tflops <= most and speed <= fastest
    return CheckResult(
        ok=is_believable,
        found=f"{found}; the data sheet's limits are {most:g} and {fastest:g}",
        fix="" if is_believable else "no figure above the limit is believable: check the clock",
    )


def _flash() -> None:
    q = torch.ones(1, 2, 64, 64, device="cuda", dtype=torch.bfloat16)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        F.scaled_dot_product_attention(q, q, q, is_causal=True)


def _compiled() -> None:
    work: Callable[[torch.Tensor], torch.Tensor] = torch.compile(lambda x: x * 2 + 1)
    work(torch.ones(64, device="cuda"))


def _graph() -> None:
    value = torch.ones(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        value.mul_(2)
    graph.replay()
