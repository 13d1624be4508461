"""The parts of rlvr-algos, by name. Light: torch is imported with the chosen loss."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import AdvantageSpec, AlgorithmSpec, LossSpec, hookimpl
from rlvr_algos.algorithms import ALGORITHMS

RLVR_API = 1

_GROUP = "reward minus the group's mean, over its standard deviation if asked"
_OTHERS = "reward minus the mean of the others of its group"
_RETURNS = "returns of tokens, normalised over the batch of the step"
_CRITIC = "generalised advantage estimates with a critic"
_TAUGHT = "reward minus the group's mean, less each token's KL to a teacher"
_BEST = "1 for the best right answer of a group, the others are left out"
_ADVANTAGES = (
    ("group", "group:GroupAdvantage", "GroupAdvantageConfig", _GROUP),
    ("rloo", "group:RlooAdvantage", "RlooAdvantageConfig", _OTHERS),
    ("global", "global_batch:GlobalAdvantage", "GlobalAdvantageConfig", _RETURNS),
    ("gae", "global_batch:GaeAdvantage", "GaeConfig", _CRITIC),
    ("opd", "opd:OpdAdvantage", "OpdConfig", _TAUGHT),
    ("best", "best:BestAdvantage", "BestConfig", _BEST),
)
"""Name, class, options, summary."""
_LOSSES = (
    ("grpo", "grpo:Grpo", "clipped importance ratio of each token"),
    ("gspo", "grpo:Gspo", "clipped importance ratio of each sequence"),
    ("cispo", "grpo:Cispo", "clipped importance weight that keeps every token's gradient"),
    ("reinforce", "grpo:Reinforce", "importance-weighted policy gradient, nothing clipped"),
    ("ppo", "ppo:Ppo", "clipped importance ratio and a critic's clipped error"),
)
"""Name, class (without "Loss"), summary."""


@hookimpl
def rlvr_advantages() -> Iterable[AdvantageSpec]:
    """How rewards become credit."""
    for name, target, config, summary in _ADVANTAGES:
        yield AdvantageSpec(
            name=name,
            target=f"rlvr_algos.advantages.{target}",
            config=f"rlvr_algos.shaping.config:{config}",
            namespace="advantage",
            teachers=("advantage.teacher",) if name == "opd" else (),
            summary=summary,
        )
    yield AdvantageSpec(
        name="one",
        target="rlvr_algos.advantages.best:OneAdvantage",
        summary="1 for every trajectory: imitate all of them",
    )


@hookimpl
def rlvr_losses() -> Iterable[LossSpec]:
    """What the backend minimises."""
    for name, target, summary in _LOSSES:
        yield LossSpec(
            name=name,
            target=f"rlvr_algos.losses.{target}Loss",
            config=f"rlvr_algos.config:{target.partition(':')[2]}Config",
            summary=f"{summary}, optional KL to the reference",
        )
    yield LossSpec(
        name="sft",
        target="rlvr_algos.losses.sft:SftLoss",
        summary="negative logprob, times the advantage",
    )


@hookimpl
def rlvr_algorithms() -> Iterable[AlgorithmSpec]:
    """Parts that go together, and values that work."""
    return ALGORITHMS
