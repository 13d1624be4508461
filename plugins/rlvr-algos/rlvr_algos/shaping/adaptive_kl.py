"""A KL weight that follows the training: the proportional controller of Ziegler et al."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

import attrs

from rlvr import BuildContext, ConfigError

MEASURED = "kl/reference"
MEMORY = "kl_coef"
LARGEST_ERROR = 0.2


class AdaptiveKl:
    """
    Base of losses and advantages: holds the options, and lets `kl_coef` follow `kl_target`.

    Raises:
        ConfigError: `kl_target` is set and `kl_coef` is 0: there is no KL to steer.
    """

    config_class: ClassVar[type[Any]]

    def __init__(self, config: Any, context: BuildContext, namespace: str) -> None:
        self._config: Any = config if config is not None else self.config_class()
        self._context = context
        if self._config.kl_target > 0 and self._config.kl_coef == 0:
            raise ConfigError(
                f"{namespace}.kl_target={self._config.kl_target:g} was asked for.",
                f"found: {namespace}.kl_coef=0, which no factor changes: there would be no KL",
                f"set {namespace}.kl_coef=0.01 to start from, or leave the target out",
            )

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """
        The memory after a step: the KL weight a little larger where the KL was above its target.

        `coef <- coef * (1 + e / horizon)` with `e = clip((kl - target) / target, -0.2, 0.2)`
        (arXiv:1909.08593, section 2.2; their K is 1 / horizon). The KL is the metric
        `kl/reference`, nats a token. A step without that metric, or a target of 0, changes nothing.
        """
        config = self._config
        if config.kl_target == 0 or MEASURED not in metrics:
            return dict(memory)
        error = metrics[MEASURED] / config.kl_target - 1
        error = min(max(error, -LARGEST_ERROR), LARGEST_ERROR)
        now = memory.get(MEMORY, config.kl_coef)
        return {**memory, MEMORY: now * (1 + error / config.kl_horizon)}

    def with_memory(self, memory: Mapping[str, float]) -> Self:
        """The same part with the KL weight of the memory."""
        if MEMORY not in memory:
            return self
        config: Any = attrs.evolve(self._config, kl_coef=memory[MEMORY])
        return type(self)(config, self._context)  # type: ignore[call-arg]  # subclasses take two
