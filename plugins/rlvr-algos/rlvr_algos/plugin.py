"""What rlvr-algos offers. Light: names and vetted values only, torch comes with the chosen loss."""

from __future__ import annotations

from rlvr import hookimpl
from rlvr.specs import AdvantageSpec, AlgorithmSpec, LossSpec

RLVR_API = 1


@hookimpl
def rlvr_advantages() -> list[AdvantageSpec]:
    """How rewards become credit."""
    return [
        AdvantageSpec(
            name="group",
            target="rlvr_algos.group:GroupAdvantage",
            config="rlvr_algos.config:GroupAdvantageConfig",
            namespace="advantage",
            summary="reward minus the group's mean, over its standard deviation if asked",
        ),
        AdvantageSpec(
            name="one",
            target="rlvr_algos.one:OneAdvantage",
            summary="1 for every trajectory: imitate all of them",
        ),
    ]


@hookimpl
def rlvr_losses() -> list[LossSpec]:
    """What the backend minimises."""
    return [
        LossSpec(
            name="grpo",
            target="rlvr_algos.grpo:GrpoLoss",
            config="rlvr_algos.config:GrpoConfig",
            summary="clipped importance ratio, optional KL to the reference",
        ),
        LossSpec(
            name="sft",
            target="rlvr_algos.sft:SftLoss",
            summary="negative logprob, times the advantage",
        ),
    ]


@hookimpl
def rlvr_algorithms() -> list[AlgorithmSpec]:
    """Parts that go together, and values that work."""
    return [
        AlgorithmSpec(
            name="grpo",
            sampler="group",
            advantage="group",
            loss="grpo",
            summary="group relative policy optimisation (arXiv:2402.03300)",
            values={
                "sampler.group_size": 8,
                "sampler.temperature": 1.0,
                "train.aggregation": "token",
                "train.lr": 1e-6,
                "train.grad_clip": 1.0,
                "advantage.normalise_std": True,
                "grpo.clip_low": 0.2,
                "grpo.clip_high": 0.28,
                "grpo.kl_coef": 0.0,
            },
        ),
        AlgorithmSpec(
            name="sft",
            sampler="reference",
            advantage="one",
            loss="sft",
            summary="supervised fine-tuning on the task's reference answers",
            values={
                "sampler.group_size": 1,
                "train.aggregation": "token",
                "train.lr": 1e-5,
                "train.grad_clip": 1.0,
            },
        ),
    ]
