"""Every hook, in the order of a run. Hooks offer records or announce facts; none runs a stage.

Offers take no arguments, are cheap, and return an iterable of frozen records. Announcements return
nothing, are called one plugin at a time, and a failing one is logged while the run goes on.
An implementation may take fewer arguments than its specification, and no default values.
"""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from rlvr.specs import (
        AdvantageSpec,
        Advice,
        AlgorithmSpec,
        BackendSpec,
        CallbackSpec,
        Check,
        CheckpointerSpec,
        CommandSpec,
        CurriculumSpec,
        LossSpec,
        RewardSpec,
        SamplerSpec,
        TaskSpec,
        TeacherSpec,
    )
    from rlvr.types import Checkpoint, EvalReport, RunInfo, ScoredGroup

hookspec = pluggy.HookspecMarker("rlvr")


# --- offers -------------------------------------------------------------------------------------


@hookspec
def rlvr_tasks() -> Iterable[TaskSpec]:
    """Offer tasks: where problems come from."""


@hookspec
def rlvr_rewards() -> Iterable[RewardSpec]:
    """Offer rewards: verifiers that judge trajectories."""


@hookspec
def rlvr_curricula() -> Iterable[CurriculumSpec]:
    """Offer curricula: which problems a step takes."""


@hookspec
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Offer samplers: how groups of trajectories are drawn."""


@hookspec
def rlvr_advantages() -> Iterable[AdvantageSpec]:
    """Offer advantages: how rewards become credit."""


@hookspec
def rlvr_losses() -> Iterable[LossSpec]:
    """Offer losses: what the backend minimises."""


@hookspec
def rlvr_algorithms() -> Iterable[AlgorithmSpec]:
    """Offer algorithms: names of parts and vetted values."""


@hookspec
def rlvr_backends() -> Iterable[BackendSpec]:
    """Offer backends: machines and services that train."""


@hookspec
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """Offer teachers: frozen models that score what the policy wrote."""


@hookspec
def rlvr_checkpointers() -> Iterable[CheckpointerSpec]:
    """Offer checkpointers: where states are kept."""


@hookspec
def rlvr_callbacks() -> Iterable[CallbackSpec]:
    """Offer callbacks: observers of a run with options of their own."""


@hookspec
def rlvr_checks() -> Iterable[Check]:
    """Offer prerequisite checks, for `rlvr doctor` and the start of a run."""


@hookspec
def rlvr_commands() -> Iterable[CommandSpec]:
    """Offer subcommands of the plugin's own: `rlvr PLUGIN NAME`."""


# --- announcements ------------------------------------------------------------------------------


@hookspec
def rlvr_run_started(run: RunInfo) -> None:
    """The run directory exists and every part is open; nothing was sampled yet."""


@hookspec
def rlvr_evaluated(run: RunInfo, step: int, report: EvalReport) -> None:
    """An evaluation of the policy finished (`step` 0: before training)."""


@hookspec
def rlvr_groups_scored(run: RunInfo, step: int, groups: Sequence[ScoredGroup]) -> None:
    """All groups of a step have their outcomes."""


@hookspec
def rlvr_step_finished(run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
    """The weights were updated; `metrics` are the step's, names are paths (`reward/mean`)."""


@hookspec
def rlvr_checkpoint_saved(run: RunInfo, checkpoint: Checkpoint) -> None:
    """A checkpoint is complete on disk."""


@hookspec
def rlvr_run_finished(run: RunInfo, outcome: str) -> None:
    """
    The run ended: "done", "interrupted" or "failed".

    Announced after a failure too; not where a resume is refused, which changes nothing.
    """


@hookspec
def rlvr_run_summarised(directory: Path, entries: dict[str, Any]) -> None:
    """A run that is done is summarised: add an entry of yours, under your plugin's name."""


# --- one answer ---------------------------------------------------------------------------------


@hookspec(firstresult=True)
def rlvr_explain_error(error: BaseException) -> Advice | None:
    """Turn an exception of your domain into advice. Stops at the first result that is not None."""


__all__ = [name for name in dir() if name.startswith("rlvr_")]
