"""The parts of rlvr-torch: the backend and the teacher `torch`. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import Advice, BackendSpec, Check, CommandSpec, ExitCode, TeacherSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_backends() -> Iterable[BackendSpec]:
    """The local backend."""
    yield BackendSpec(
        name="torch",
        target="rlvr_torch.backend:TorchBackend",
        summary="Local PyTorch: CPU, CUDA or Apple GPU; own GPT-2, transformers with LoRA",
        config="rlvr_torch.config:TorchConfig",
        models=("gpt2", "hf"),
        starts=("torch.adapter",),
        facts="rlvr_torch.fitting:model_facts",
        fit="rlvr_torch.fitting:fit_memory",
    )


@hookimpl
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """The local teacher."""
    yield TeacherSpec(
        name="torch",
        target="rlvr_torch.teacher:TorchTeacher",
        summary="A frozen model on this machine: own GPT-2, transformers",
        config="rlvr_torch.config:TorchConfig",
        models=("gpt2", "hf"),
    )


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """A check that names the device the backend would use."""
    yield Check(
        name="torch-device",
        target="rlvr_torch.runtime.device:check_device",
        summary="PyTorch works on the device it would choose",
        required=False,
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr torch`."""
    yield CommandSpec(
        name="export",
        target="rlvr_torch.models.export:main",
        summary="Write the model of a run as transformers or peft reads it",
    )
    yield CommandSpec(
        name="memory",
        target="rlvr_torch.memory_table:main",
        summary="Say how much memory a run needs, and which model fits which card",
    )


@hookimpl
def rlvr_explain_error(error: BaseException) -> Advice | None:
    """Advice for a device that ran out of memory."""
    kind = type(error)
    is_torch = kind.__module__.partition(".")[0] == "torch"
    if not (kind.__name__ == "OutOfMemoryError" and is_torch):
        return None
    return Advice(
        message=(
            "the device ran out of memory\n"
            f"  {str(error).splitlines()[0] if str(error) else kind.__name__}\n"
            "  try: torch.microbatch_tokens and torch.decode_rows at half their values, "
            "torch.checkpointing=layers, torch.optimizer=adamw-8bit, or torch.dtype=bfloat16"
        ),
        exit_code=ExitCode.BACKEND,
    )
