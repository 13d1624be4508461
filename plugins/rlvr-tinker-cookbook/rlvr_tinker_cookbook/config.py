"""Options of task and reward `cookbook`."""

from __future__ import annotations

import attrs
from attrs import frozen

from rlvr import option

NOTE = "cookbook"
"""Key of the environment's verdict in a trajectory's notes."""


@frozen(kw_only=True)
class CookbookConfig:
    """Environments of the cookbook that are the task, and the rule for solved ones."""

    builder: str = option("", "Dataset builder of the cookbook, `module:Class`")
    args: tuple[str, ...] = option(
        (), "The builder's fields as `name=value`, as the cookbook takes them"
    )
    batches: int = option(
        64, "Number of batches that problems are taken from", validator=attrs.validators.ge(1)
    )
    group_rewards: str = option(
        "refuse",
        "Environments whose reward compares the answers of a group: refused, or each one alone",
        choices=("refuse", "alone"),
    )
    solved_metric: str = option(
        "correct", "Metric of an environment that is 1 for a right answer, where it has one"
    )
    solved_at: float = option(1.0, "Least reward of a right answer in the other environments")
