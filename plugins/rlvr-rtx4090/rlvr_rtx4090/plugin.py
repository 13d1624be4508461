"""What rlvr-rtx4090 offers: a backend and checks of the card. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import BackendSpec, Check, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_backends() -> Iterable[BackendSpec]:
    """
    The backend of one card. Its options are those of `torch`, with other values proposed.

    It names no schemes of models: without `--backend rtx4090` the backend `torch` stays chosen.
    """
    yield BackendSpec(
        name="rtx4090",
        target="rlvr_rtx4090.backend:Rtx4090Backend",
        summary="One GeForce RTX 4090 (or another NVIDIA card): torch with planned memory",
        config="rlvr_torch.config:TorchConfig",
        namespace="torch",
        starts=("torch.adapter",),
        facts="rlvr_torch.fitting:model_facts",
        fit="rlvr_rtx4090.presets:fit_card",
    )


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """The card, what it can compute, and how fast. None is required: a machine may have none."""
    for name, function, summary in (
        ("rtx4090-card", "check_card", "An NVIDIA card with bfloat16, its driver and state"),
        ("rtx4090-kernels", "check_kernels", "Flash attention, compiler, CUDA graphs, 4 bits"),
        ("rtx4090-speed", "check_speed", "Matrix products and memory, measured"),
    ):
        yield Check(
            name=name,
            target=f"rlvr_rtx4090.doctor:{function}",
            summary=summary,
            required=False,
            is_slow=name == "rtx4090-speed",
        )
