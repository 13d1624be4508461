"""The parts, checks and commands of rlvr-tinker. Imports neither torch nor the SDK."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rlvr import Advice, BackendSpec, Check, CommandSpec, ExitCode, TeacherSpec, hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr import RunInfo

RLVR_API = 1


@hookimpl
def rlvr_backends() -> Iterable[BackendSpec]:
    """Training on the service."""
    yield BackendSpec(
        name="tinker",
        target="rlvr_tinker.backend:TinkerBackend",
        summary="LoRA on the Tinker service, or on any server that speaks its API",
        config="rlvr_tinker.config:TinkerConfig",
        models=("tinker",),
        default_model="tinker:",
        find_model="rlvr_tinker.service.model_spec:only_model",
    )


@hookimpl
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """Models of the service that score what a student wrote."""
    yield TeacherSpec(
        name="tinker",
        target="rlvr_tinker.teacher:TinkerTeacher",
        summary="A model of the Tinker service, or weights saved there",
        config="rlvr_tinker.config:TinkerConfig",
        models=("tinker",),
    )


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """Checks of `rlvr doctor`: can a run on the service begin?"""
    yield Check(
        name="tinker-key",
        target="rlvr_tinker.service.client:check_key",
        summary="A key for the Tinker service is set",
        required=False,
    )
    yield Check(
        name="tinker-service",
        target="rlvr_tinker.service.client:check_service",
        summary="The Tinker service answers and takes the key",
        required=False,
        is_slow=True,
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr tinker`."""
    yield CommandSpec(
        name="models",
        target="rlvr_tinker.commands.models:main",
        summary="List the models that the service offers",
    )
    yield CommandSpec(
        name="cost",
        target="rlvr_tinker.commands.cost:main",
        summary="What a run has cost, by a table of prices",
    )


@hookimpl
def rlvr_run_finished(run: RunInfo) -> None:
    """Print the tokens that a run on the service has used so far, crashes included."""
    from rlvr_tinker.commands.cost import say_used

    say_used(run.directory)


@hookimpl
def rlvr_run_summarised(directory: Path, entries: dict[str, Any]) -> None:
    """Put the tokens of each model of the run into its summary."""
    from rlvr_tinker.commands.cost import tokens_of

    if parts := tokens_of(directory):
        entries["tinker"] = parts


@hookimpl
def rlvr_explain_error(error: BaseException) -> Advice | None:
    """Advice for an error of the SDK that no other code has caught."""
    if type(error).__module__.partition(".")[0] != "tinker":
        return None
    from rlvr_tinker.service.errors import explained

    found = explained(error, "the Tinker service was asked for something")
    return Advice(message=str(found), exit_code=ExitCode(found.exit_code))
