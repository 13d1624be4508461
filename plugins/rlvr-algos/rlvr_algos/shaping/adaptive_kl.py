"""A KL weight that follows the training: the proportional controller of Ziegler et al."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rlvr import ConfigError

MEASURED = "kl/reference"
MEMORY = "kl_coef"
LARGEST_ERROR = 0.2


class KlOptions(Protocol):
    """The options that losses and advantages share."""

    @property
    def kl_coef(self) -> float: ...

    @property
    def kl_target(self) -> float: ...

    @property
    def kl_horizon(self) -> float: ...


def adapted(
    options: KlOptions, memory: Mapping[str, float], metrics: Mapping[str, float]
) -> dict[str, float]:
    """
    The memory after a step: the KL weight a little larger where the KL was above its target.

    `coef <- coef * (1 + e / horizon)` with `e = clip((kl - target) / target, -0.2, 0.2)`
    (arXiv:1909.08593, section 2.2; their K is 1 / horizon). The KL is the metric `kl/reference`,
    nats a token. A step without that metric, or a target of 0, changes nothing.
    """
    if options.kl_target == 0 or MEASURED not in metrics:
        return dict(memory)
    error = metrics[MEASURED] / options.kl_target - 1
    error = min(max(error, -LARGEST_ERROR), LARGEST_ERROR)
    now = memory.get(MEMORY, options.kl_coef)
    return {**memory, MEMORY: now * (1 + error / options.kl_horizon)}


def check_target(options: KlOptions, namespace: str) -> None:
    """
    Refuse a target for a KL that nothing pulls to.

    Raises:
        ConfigError: `kl_target` is set and `kl_coef` is 0.
    """
    if options.kl_target > 0 and options.kl_coef == 0:
        raise ConfigError(
            f"{namespace}.kl_target={options.kl_target:g} was asked for.",
            f"found: {namespace}.kl_coef=0, which no factor changes: there would be no KL",
            f"set {namespace}.kl_coef=0.01 to start from, or leave the target out",
        )
