"""The parts of rlvr-sad: trajectories to learn from, their formats, commands. Nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rlvr import (
    AlgorithmSpec,
    CommandSpec,
    CurriculumSpec,
    RewardSpec,
    SamplerSpec,
    TaskSpec,
    TeacherSpec,
    hookimpl,
)

FAST: Mapping[str, Any] = {
    "distill.loss": "forward_kl",
    "distill.weighting": "uniform",
    "distill.top_k": 20,
    "distill.temperature": 1.0,
    "distill.span_metrics": False,
    "eval.every": 0,
}
"""Forward KL on the teacher's 20 likeliest tokens and the rest; no metrics by span."""

PRODUCTION: Mapping[str, Any] = {
    "distill.loss": "jsd",
    "distill.beta": 0.5,
    "distill.weighting": "uniform",
    "distill.reduction": "token",
    "distill.reasoning_weight": 1.0,
    "distill.action_weight": 1.0,
    "distill.top_k": 64,
    "distill.span_metrics": True,
    "train.decay": "cosine",
    "train.warmup": 10,
    "eval.every": 20,
    "checkpoint.keep": 3,
}
"""JSD on the 64 likeliest and the rest; evaluated every 20 steps, three checkpoints."""

RESEARCH: Mapping[str, Any] = {
    "run.curriculum": "complexity",
    "distill.loss": "akl",
    "distill.weighting": "adaptive",
    "distill.reduction": "token",
    "distill.top_k": 0,
    "distill.span_metrics": True,
    "train.decay": "cosine",
    "train.warmup": 10,
    "eval.every": 10,
    "checkpoint.keep": 3,
}
"""Adaptive KL over whole distributions, adaptive span weights, easy trajectories first."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "fast": FAST,
    "production": PRODUCTION,
    "research": RESEARCH,
}


if TYPE_CHECKING:
    from rlvr_sad.formats.spec import FormatSpec

RLVR_API = 1
RLVR_HOOKSPECS = "rlvr_sad.hookspecs"


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """Recorded trajectories."""
    yield TaskSpec(
        name="sad",
        target="rlvr_sad.task:SadTask",
        config="rlvr_sad.config:SadConfig",
        reward="recorded",
        summary="Recorded trajectories of agents: --dataset FILE_OR_FOLDER,MORE",
        presets=PRESETS,
        reads_several=True,
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """A reward for trajectories that nothing judges."""
    yield RewardSpec(
        name="recorded",
        target="rlvr_sad.task:RecordedReward",
        bounds=(1.0, 1.0),
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
        target="rlvr_sad.corpus.complexity:ByComplexity",
        config="rlvr_sad.corpus.complexity:ComplexityOptions",
        namespace="curriculum",
        summary="Recorded trajectories by length of their spans and the teacher's entropy",
    )


@hookimpl
def rlvr_teachers() -> Iterable[TeacherSpec]:
    """Answers that a teacher gave before."""
    yield TeacherSpec(
        name="file",
        target="rlvr_sad.teacher_cache.teacher:FileTeacher",
        summary="Answers kept by rlvr sad cache-teacher",
        models=("file",),
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr sad`: look at trajectories, write their spans, measure, ask teachers."""
    for name, target, summary in (
        (
            "inspect",
            "inspect:inspect",
            "Show trajectories with their spans coloured, and what was read from each file",
        ),
        ("spans", "spans:spans", "Write the spans of each record as JSON lines"),
        (
            "gold",
            "gold:gold",
            "Compare spans with labelled ones: share of characters right, by source",
        ),
        ("formats", "formats:formats_command", "List the formats that can be read"),
        (
            "cache-teacher",
            "cache_teacher:cache_teacher",
            "Ask a teacher once about recorded trajectories, and keep its answers in files",
        ),
    ):
        yield CommandSpec(name=name, target=f"rlvr_sad.commands.{target}", summary=summary)


@hookimpl
def sad_formats() -> Iterable[FormatSpec]:
    """The formats of rlvr-sad itself, through the hook that others use."""
    from rlvr_sad.formats.spec import FormatSpec

    found = (
        ("toolbench", "ToolBench", "ToolBench answers: the chosen branch of a search tree"),
        (
            "swe_agent",
            "SweAgent",
            "SWE-agent .traj files and demonstrations (fences, <command>, tool calls)",
        ),
        ("openhands", "OpenHands", "OpenHands event streams and evaluation outputs"),
        (
            "chat",
            "Chat",
            "Messages: OpenAI tools, ShareGPT, typed and multi-modal parts, verifiers, "
            "Thought/Action chats, mini-swe-agent",
        ),
        ("alpaca", "Alpaca", "Instruction and output; the output may be a transcript"),
        (
            "transcript",
            "Transcript",
            "One text: ReAct, ALFWorld, tags, Hermes, Harmony, `role: text`, thought and fence",
        ),
    )
    for place, (module, adapter, summary) in enumerate(found):
        yield FormatSpec(
            name=module.replace("_", "-"),
            target=f"rlvr_sad.formats.{module}:{adapter}",
            summary=summary,
            order=100 + 10 * place,
        )
