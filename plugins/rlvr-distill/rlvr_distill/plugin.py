"""What rlvr-distill offers. Light: names and vetted values only, torch comes with the losses."""

from __future__ import annotations

from rlvr import AlgorithmSpec, LossSpec, TeacherSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_losses() -> list[LossSpec]:
    """What the backend minimises."""
    return [
        LossSpec(
            name="distill",
            target="rlvr_distill.loss:DistillLoss",
            config="rlvr_distill.config:DistillConfig",
            teachers=("distill.teacher",),
            summary="divergence of the student's distributions from a teacher's",
        ),
        LossSpec(
            name="opd",
            target="rlvr_distill.opd.loss:OpdLoss",
            config="rlvr_distill.opd.config:OpdLossConfig",
            around="reinforce",
            summary="reinforce, and a divergence from the teacher's distributions if asked",
        ),
    ]


@hookimpl
def rlvr_teachers() -> list[TeacherSpec]:
    """The adapter of teachers with another tokenizer."""
    return [
        TeacherSpec(
            name="aligned",
            target="rlvr_distill.cross_tokenizer.choose:adapt",
            adapts=True,
            summary="a teacher with another tokenizer, aligned with the policy's tokens by bytes",
        )
    ]


@hookimpl
def rlvr_algorithms() -> list[AlgorithmSpec]:
    """On-policy distillation; its advantage and its policy gradient are rlvr-algos'."""
    return [
        AlgorithmSpec(
            name="opd",
            sampler="group",
            advantage="opd",
            loss="opd",
            summary="on-policy distillation from a teacher, with or without a reward (--teacher)",
            values={
                "sampler.group_size": 4,
                "sampler.temperature": 1.0,
                "train.aggregation": "token",
                "train.lr": 1e-6,
                "train.grad_clip": 1.0,
                "advantage.normalise_std": False,
                "advantage.kl_penalty_coef": 1.0,
                "advantage.kl_discount_factor": 0.0,
                "advantage.reward_coef": 1.0,
                "advantage.clip": 5.0,
                "opd.mode": "pg",
                "opd.kl_coef": 0.0,
                "opd.loss": "reverse_kl",
            },
        )
    ]
