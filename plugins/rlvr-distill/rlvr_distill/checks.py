"""Options of distillation that contradict each other, refused before anything is sampled."""

from __future__ import annotations

from rlvr import ConfigError, Teacher
from rlvr_distill.config import DistillConfig


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
