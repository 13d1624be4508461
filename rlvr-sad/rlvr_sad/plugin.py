"""What rlvr-sad offers: trajectories to learn from, their formats, commands. Nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rlvr import hookimpl
from rlvr.specs import (
    AlgorithmSpec,
    CommandSpec,
    CurriculumSpec,
    RewardSpec,
    SamplerSpec,
    TaskSpec,
    TeacherSpec,
)
from rlvr_sad.house import offers as house
from rlvr_sad.presets import PRESETS

if TYPE_CHECKING:
    from rlvr_sad.formats.spec import FormatSpec

RLVR_API = 1
RLVR_HOOKSPECS = "rlvr_sad.hookspecs"


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """Recorded trajectories, and a house of text to live in."""
    yield house.TASK
    yield TaskSpec(
        name="sad",
        target="rlvr_sad.task:SadTask",
        config="rlvr_sad.task:SadConfig",
        reward="recorded",
        summary="Recorded trajectories of agents: --dataset FILE_OR_FOLDER,MORE",
        presets=PRESETS,
        reads_several=True,
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """A reward for what is not judged, and the house's."""
    yield house.REWARD
    yield RewardSpec(
        name="recorded",
        target="rlvr_sad.reward:RecordedReward",
        summary="The same for every trajectory: nothing is judged",
    )


@hookimpl
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Recorded trajectories in the place of rollouts."""
    yield SamplerSpec(
        name="replay",
        target="rlvr_sad.replay.sampler:ReplaySampler",
        config="rlvr_sad.replay.sampler:ReplayConfig",
        summary="Recorded trajectories as the policy's tokens (for sad, sft)",
    )


@hookimpl
def rlvr_algorithms() -> Iterable[AlgorithmSpec]:
    """Structured agent distillation."""
    yield AlgorithmSpec(
        name="sad",
        sampler="replay",
        advantage="one",
        loss="distill",
        summary="structured agent distillation from a teacher on recorded trajectories "
        "(arXiv:2505.13820, --teacher)",
        values={
            "sampler.group_size": 1,
            "sampler.temperature": 1.0,
            "sampler.max_tokens": 1,  # nothing is drawn: a teacher needs no room for answers
            "train.aggregation": "token",
            "train.passes": 1,
            "train.lr": 2e-5,
            "eval.samples": 1,
            "checkpoint.keep": 2,
        },
    )


@hookimpl
def rlvr_curricula() -> Iterable[CurriculumSpec]:
    """Easy trajectories first."""
    yield CurriculumSpec(
        name="complexity",
        target="rlvr_sad.complexity:ByComplexity",
        config="rlvr_sad.complexity:ComplexityOptions",
        namespace="curriculum",
        summary="Recorded trajectories by length of their spans and the teacher's entropy",
    )


@hookimpl
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """Answers that a teacher gave before."""
    yield TeacherSpec(
        name="file",
        target="rlvr_sad.filing.teacher:FileTeacher",
        summary="Answers kept by rlvr sad cache-teacher",
        models=("file",),
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr sad`: look at trajectories, write their spans, measure, ask teachers."""
    return [
        CommandSpec(
            name="inspect",
            target="rlvr_sad.commands.inspect:inspect",
            summary="Show trajectories with their spans coloured, and what was read from each file",
        ),
        CommandSpec(
            name="spans",
            target="rlvr_sad.commands.spans:spans",
            summary="Write the spans of each record as JSON lines",
        ),
        CommandSpec(
            name="gold",
            target="rlvr_sad.commands.gold:gold",
            summary="Compare spans with labelled ones: share of characters right, by source",
        ),
        CommandSpec(
            name="formats",
            target="rlvr_sad.commands.formats:formats_command",
            summary="List the formats that can be read",
        ),
        CommandSpec(
            name="cache-teacher",
            target="rlvr_sad.commands.cache_teacher:cache_teacher",
            summary="Ask a teacher once about recorded trajectories, and keep its answers in files",
        ),
        *house.COMMANDS,
    ]


@hookimpl
def sad_formats() -> Iterable[FormatSpec]:
    """The formats of rlvr-sad itself, through the hook that others use."""
    from rlvr_sad.formats.builtin import FORMATS

    return FORMATS
