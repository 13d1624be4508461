"""The built-in parts of the core."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import hookimpl
from rlvr.specs import (
    CallbackSpec,
    CheckpointerSpec,
    CurriculumSpec,
    RewardSpec,
    SamplerSpec,
    TaskSpec,
)

RLVR_API = 1


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """A task that learns in seconds, for tests and first tries."""
    yield TaskSpec(
        name="toy",
        target="rlvr.builtin.toy:ToyTask",
        config="rlvr.builtin.toy:ToyConfig",
        reward="toy",
        starter="rlvr.builtin.toy:starter",
        summary="Repeat a letter: learns in seconds on a CPU",
        presets={
            "starter": {
                "run.steps": 60,
                "train.lr": 7e-3,
                "train.problems": 16,
                "sampler.group_size": 8,
                "sampler.max_tokens": 4,
                "eval.samples": 4,
            }
        },
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """The toy task's verifier."""
    yield RewardSpec(
        name="toy", target="rlvr.builtin.toy:ToyReward", summary="Share of right letters"
    )


@hookimpl
def rlvr_curricula() -> Iterable[CurriculumSpec]:
    """Orders of training for any task; their options share the namespace `curriculum`."""
    yield CurriculumSpec(
        name="epochs",
        target="rlvr.curriculum.builtin:Epochs",
        summary="Each problem once before any is met twice",
    )
    yield CurriculumSpec(
        name="difficulty",
        target="rlvr.curriculum.builtin:ByDifficulty",
        config="rlvr.curriculum.builtin:DifficultyOptions",
        namespace="curriculum",
        summary="Stages by a label of the problems, one after another",
    )
    yield CurriculumSpec(
        name="pass-rate",
        target="rlvr.curriculum.builtin:ByPassRate",
        config="rlvr.curriculum.builtin:PassRateOptions",
        namespace="curriculum",
        summary="Problems neither always nor never solved, by their running pass rate",
    )
    yield CurriculumSpec(
        name="strength",
        target="rlvr.curriculum.builtin:ByStrength",
        config="rlvr.curriculum.builtin:StrengthOptions",
        namespace="curriculum",
        summary="Problems with a strong verifier more often, by the file of an audit",
    )


@hookimpl
def rlvr_samplers() -> Iterable[SamplerSpec]:
    """Groups drawn from the policy, and references in their place."""
    yield SamplerSpec(
        name="group",
        target="rlvr.rollouts.group:GroupSampler",
        summary="G trajectories a problem from the policy, any number of turns",
    )
    yield SamplerSpec(
        name="reference",
        target="rlvr.rollouts.references:ReferenceSampler",
        summary="Each problem's reference answer (for sft)",
    )


@hookimpl
def rlvr_checkpointers() -> Iterable[CheckpointerSpec]:
    """Checkpoints in the run directory."""
    yield CheckpointerSpec(
        name="file",
        target="rlvr.builtin.file_checkpoints:FileCheckpointer",
        config="rlvr.builtin.file_checkpoints:FileCheckpointOptions",
        namespace="checkpoint",
        summary="Atomic folders under RUN/checkpoints, verified by sha256",
    )


@hookimpl
def rlvr_callbacks() -> Iterable[CallbackSpec]:
    """The learning curve."""
    yield CallbackSpec(
        name="curve",
        target="rlvr.builtin.learning_curve:LearningCurve",
        config="rlvr.builtin.learning_curve:CurveOptions",
        summary="The learning curve as a picture in the run directory",
    )
