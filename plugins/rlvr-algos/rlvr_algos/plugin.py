"""What rlvr-algos offers. Light: names and vetted values only, torch comes with the chosen loss."""

from __future__ import annotations

from rlvr import AdvantageSpec, AlgorithmSpec, LossSpec, hookimpl
from rlvr_algos.algorithms import ALGORITHMS

RLVR_API = 1


@hookimpl
def rlvr_advantages() -> list[AdvantageSpec]:
    """How rewards become credit."""
    return [
        _advantage(
            "group",
            "rlvr_algos.advantages.group:GroupAdvantage",
            "GroupAdvantageConfig",
            "reward minus the group's mean, over its standard deviation if asked",
        ),
        _advantage(
            "rloo",
            "rlvr_algos.advantages.rloo:RlooAdvantage",
            "RlooAdvantageConfig",
            "reward minus the mean of the others of its group",
        ),
        _advantage(
            "global",
            "rlvr_algos.advantages.global_batch:GlobalAdvantage",
            "GlobalAdvantageConfig",
            "returns of tokens, normalised over the batch of the step",
        ),
        _advantage(
            "gae",
            "rlvr_algos.advantages.gae:GaeAdvantage",
            "GaeConfig",
            "generalised advantage estimates with a critic",
        ),
        AdvantageSpec(
            name="opd",
            target="rlvr_algos.advantages.opd:OpdAdvantage",
            config="rlvr_algos.shaping.config:OpdConfig",
            namespace="advantage",
            teachers=("advantage.teacher",),
            summary="reward minus the group's mean, less each token's KL to a teacher",
        ),
        _advantage(
            "best",
            "rlvr_algos.advantages.best:BestAdvantage",
            "BestConfig",
            "1 for the best right answer of a group, the others are left out",
        ),
        AdvantageSpec(
            name="one",
            target="rlvr_algos.advantages.one:OneAdvantage",
            summary="1 for every trajectory: imitate all of them",
        ),
    ]


@hookimpl
def rlvr_losses() -> list[LossSpec]:
    """What the backend minimises."""
    return [
        _loss("grpo", "Grpo", "clipped importance ratio of each token"),
        _loss("gspo", "Gspo", "clipped importance ratio of each sequence"),
        _loss("cispo", "Cispo", "clipped importance weight that keeps every token's gradient"),
        _loss("reinforce", "Reinforce", "importance-weighted policy gradient, nothing clipped"),
        _loss("ppo", "Ppo", "clipped importance ratio and a critic's clipped error"),
        LossSpec(
            name="sft",
            target="rlvr_algos.losses.sft:SftLoss",
            summary="negative logprob, times the advantage",
        ),
    ]


@hookimpl
def rlvr_algorithms() -> list[AlgorithmSpec]:
    """Parts that go together, and values that work."""
    return list(ALGORITHMS)


def _advantage(name: str, target: str, config: str, summary: str) -> AdvantageSpec:
    return AdvantageSpec(
        name=name,
        target=target,
        config=f"rlvr_algos.shaping.config:{config}",
        namespace="advantage",
        summary=summary,
    )


def _loss(name: str, prefix: str, summary: str) -> LossSpec:
    return LossSpec(
        name=name,
        target=f"rlvr_algos.losses.{name}:{prefix}Loss",
        config=f"rlvr_algos.config:{prefix}Config",
        summary=f"{summary}, optional KL to the reference",
    )
