"""The options of the advantages, all under the namespace `advantage`.

One run has one advantage, so each class here may declare the same names. Field defaults are the
published formulas; what an algorithm vets instead stands in `plugin.py`.
"""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, gt, le

from rlvr import option


@frozen(kw_only=True)
class ShapingConfig:
    """Changes to rewards before they are compared."""

    length_penalty: float = option(
        0.0, "Taken off the reward for each 1000 tokens of the policy", validator=ge(0)
    )
    overlong_buffer: float = option(
        0.0,
        "Last share of sampler.max_tokens in which a penalty grows; 0: none",
        validator=[ge(0), le(1)],
    )
    overlong_penalty: float = option(
        1.0, "Taken off the reward at sampler.max_tokens", unit="reward", validator=gt(0)
    )
    truncated: str = option(
        "keep",
        "Answers cut at the token limit: keep, mask or penalise",
        choices=("keep", "mask", "penalise"),
    )
    truncated_penalty: float = option(
        0.0, "Taken off the reward of a cut answer", unit="reward", validator=ge(0)
    )


@frozen(kw_only=True)
class CreditConfig(ShapingConfig):
    """Options of every advantage besides its own formula."""

    whiten: bool = option(False, "Mean 0 and deviation 1 over the step's batch")
    whiten_by: str = option(
        "", "Label of problems (task, say), to whiten each value separately; empty: all together"
    )
    clip: float = option(0.0, "Largest absolute advantage; 0: no limit", validator=ge(0))
    epsilon: float = option(1e-6, "Added to every deviation", unit="reward", validator=gt(0))
    kl_coef: float = option(
        0.0, "Weight of the KL to the reference in the reward; 0: none", validator=ge(0)
    )
    kl_target: float = option(
        0.0,
        "Target of the KL, which adapts kl_coef; 0: kl_coef stays",
        unit="nats",
        validator=ge(0),
    )
    kl_horizon: float = option(
        10.0, "Steps in which kl_coef adapts to the KL; more: slower", unit="steps", validator=gt(1)
    )
    drop_equal: bool = option(False, "Leave out groups whose rewards are all equal")
    refills: int = option(
        0,
        "Groups drawn in place of dropped ones: at most this times train.problems",
        validator=ge(0),
    )


@frozen(kw_only=True)
class GroupAdvantageConfig(CreditConfig):
    """Advantage `group`."""

    normalise_std: bool = option(True, "Divide by the group's standard deviation (false: Dr. GRPO)")


@frozen(kw_only=True)
class OpdConfig(GroupAdvantageConfig):
    """Advantage `opd`."""

    normalise_std: bool = option(
        False, "Divide the reward's part by the group's standard deviation"
    )
    teacher: str = option("", "Model spec of the teacher: hf:PATH_OR_ID, gpt2:PATH, ...")
    kl_penalty_coef: float = option(
        1.0, "Weight of the KL to the teacher; 0: no teacher is asked", validator=ge(0)
    )
    kl_discount_factor: float = option(
        0.0,
        "Discount factor of later tokens' KL, per token; 0: only the token's own KL",
        validator=[ge(0), le(1)],
    )
    kl_in: str = option(
        "token",
        "token: A - coef * KL, each token its own; reward: R - coef * KL of the whole answer",
        choices=("token", "reward"),
    )
    reward_coef: float = option(
        1.0, "Weight of the reward; 0: the teacher alone (pure distillation)", validator=ge(0)
    )


@frozen(kw_only=True)
class RlooAdvantageConfig(CreditConfig):
    """Advantage `rloo`."""


@frozen(kw_only=True)
class GlobalAdvantageConfig(CreditConfig):
    """Advantage `global`."""

    whiten: bool = option(True, "Mean 0 and deviation 1 over the step's batch")
    discount: float = option(
        1.0, "Discount factor of later rewards, per token", validator=[gt(0), le(1)]
    )


@frozen(kw_only=True)
class GaeConfig(GlobalAdvantageConfig):
    """Advantage `gae`."""

    gae_lambda: float = option(
        0.95,
        "1: the return alone, unbiased; 0: one step ahead, low variance",
        validator=[ge(0), le(1)],
    )


@frozen(kw_only=True)
class BestConfig(ShapingConfig):
    """Advantage `best`."""

    threshold: float = option(
        1.0, "score01 that an answer needs to be learned", validator=[ge(0), le(1)]
    )
    refills: int = option(
        0,
        "Groups drawn in place of those without such an answer: at most this times train.problems",
        validator=ge(0),
    )
