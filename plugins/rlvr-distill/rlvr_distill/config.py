"""The options of distillation; field defaults are plain token-level distillation."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, gt, le, lt

from rlvr import ConfigError, Teacher, option

LOSSES = (
    "forward_kl",
    "reverse_kl",
    "jeffreys",
    "jsd",
    "skew_kl",
    "skew_rkl",
    "alpha",
    "akl",
    "focal",
    "wasserstein",
    "tv",
)
WEIGHTINGS = (
    "uniform",
    "reasoning_heavy",
    "action_heavy",
    "adaptive",
    "curriculum",
    "confidence",
    "difficulty",
)
REDUCTIONS = ("token", "span", "paper")


@frozen(kw_only=True)
class DivergenceConfig:
    """Which divergence, and its own numbers."""

    loss: str = option(
        "forward_kl",
        "Divergence of student and teacher, see docs/algorithms/distill",
        choices=LOSSES,
    )
    beta: float = option(
        0.5, "JSD: share of the teacher in the mixture", validator=and_(ge(0), le(1))
    )
    normalize: str = option(
        "gkd",
        "JSD: gkd as published, its ends are the KLs; scaled by 1 / (beta (1 - beta)): continuous",
        choices=("gkd", "scaled"),
    )
    skew: float = option(
        0.1,
        "Skew KL: share in the mixture of the teacher (skew_kl) or the student (skew_rkl)",
        validator=and_(ge(0), lt(1)),
    )
    alpha: float = option(
        0.5,
        "Alpha: 1 is forward KL, 0 reverse KL, 0.5 between; beyond 0..1 it explodes",
        validator=and_(ge(-1), le(2)),
    )
    head_mass: float = option(
        0.5, "AKL: probability that the teacher's head holds", validator=and_(gt(0), lt(1))
    )
    gamma: float = option(2.0, "Focal: power of the disagreement", validator=ge(0))
    focal_on: str = option(
        "overlap",
        "Focal: agreement by overlap of the two, or by the student's mass on the teacher's best",
        choices=("overlap", "top"),
    )
    cost: str = option(
        "embedding",
        "Wasserstein: embedding (Sinkhorn on the likeliest), discrete (is tv), energy",
        choices=("embedding", "discrete", "energy"),
    )
    support: int = option(
        32, "Wasserstein: likeliest tokens of each side that are moved one by one", validator=gt(0)
    )
    blur: float = option(0.1, "Wasserstein: entropic smoothing, in units of cost", validator=gt(0))
    iterations: int = option(50, "Wasserstein: iterations of Sinkhorn", validator=gt(0))


@frozen(kw_only=True)
class TokenDistillConfig(DivergenceConfig):
    """Divergence, what the teacher is asked, and what tokens count: also of the loss `opd`."""

    top_k: int = option(
        0,
        "Most likely tokens a position that the teacher gives; 0: its whole distribution",
        validator=ge(0),
    )
    tail: str = option(
        "rest",
        "Treatment of tokens beyond top_k: rest (one bucket), renorm (as if there were none)",
        choices=("rest", "renorm"),
    )
    temperature: float = option(1.0, "Logits of both sides are divided by this", validator=gt(0))
    scale_t2: bool = option(
        False, "Multiply by temperature squared, for use beside a loss without temperature"
    )
    adapt_temperature: float = option(
        0.0,
        "Rise of the temperature with the teacher's excess entropy; 0: none",
        validator=ge(0),
    )
    min_temperature: float = option(0.5, "Lowest of an adapted temperature", validator=gt(0))
    max_temperature: float = option(4.0, "Highest of an adapted temperature", validator=gt(0))
    weighting: str = option(
        "uniform", "Weights of tokens, see docs/algorithms/distill/index.md", choices=WEIGHTINGS
    )
    reasoning_weight: float = option(1.0, "Weight of tokens in reasoning spans", validator=ge(0))
    action_weight: float = option(
        1.0,
        "Weight of tokens in action spans; of all tokens if there are no spans",
        validator=ge(0),
    )
    reduction: str = option(
        "token",
        "token: weighted mean of all; span: mean of each kind of span; paper: plain sums",
        choices=REDUCTIONS,
    )
    ema: float = option(0.95, "Memory of running means, by step", validator=and_(ge(0), lt(1)))
    adaptive_power: float = option(
        0.5, "Adaptive: power of a span type's divergence over the mean", validator=ge(0)
    )
    confidence_power: float = option(
        1.0, "Confidence: power of the teacher's certainty", validator=ge(0)
    )
    span_metrics: bool = option(
        True, "Log KL, accuracy, entropy and overlap by span type at each step"
    )
    chunk_rows: int = option(
        256, "Positions whose logits exist at one time", unit="tokens", validator=gt(0)
    )


@frozen(kw_only=True)
class DistillConfig(TokenDistillConfig):
    """Namespace `distill`: divergence, weights of tokens, and teacher."""

    teacher: str = option("", "Model spec of the teacher: hf:PATH_OR_ID, gpt2:PATH, file:DIR, ...")


def check(config: DistillConfig) -> None:
    """
    Refuse what cannot work.

    Raises:
        ConfigError: What was asked, what was found, what to do.
    """
    if not config.teacher:
        raise ConfigError(
            "distillation was asked for without a teacher.",
            "found: the option `teacher` of the loss is empty",
            "name one: --teacher hf:PATH_OR_ID, --teacher gpt2:PATH, --teacher file:DIR",
        )
    if config.adapt_temperature > 0 and config.top_k > 0:
        raise ConfigError(
            f"adapt_temperature={config.adapt_temperature:g} was asked for.",
            f"found: top_k={config.top_k}; other temperatures cannot be had of few logprobs",
            "set top_k=0 (a teacher with whole distributions), or adapt_temperature=0",
        )
    if config.min_temperature > config.max_temperature:
        raise ConfigError(
            f"temperatures from {config.min_temperature:g} to {config.max_temperature:g} "
            "were asked for.",
            "found: min_temperature is above max_temperature",
            "exchange them",
        )
    if config.reasoning_weight == 0 and config.action_weight == 0:
        raise ConfigError(
            "reasoning_weight=0 and action_weight=0 were asked for.",
            "found: then no token teaches anything",
            "set one of them above 0",
        )


def check_teacher(config: DistillConfig, teacher: Teacher) -> None:
    """
    Refuse what this teacher cannot do.

    Raises:
        ConfigError: Temperatures by token, of a teacher that tells few tokens at one temperature.
    """
    if config.adapt_temperature > 0 and teacher.capabilities.is_partial:
        raise ConfigError(
            f"adapt_temperature={config.adapt_temperature:g} was asked for.",
            f"found: teacher {teacher.name} has another tokenizer and tells only the tokens "
            "that both have, at one temperature",
            "set adapt_temperature=0, or choose a teacher with the policy's tokenizer",
        )
