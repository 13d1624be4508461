"""Plugin `cookbook`: environments of tinker-cookbook as a task. Imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import Check, RewardSpec, TaskSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """One task: any data set of environments."""
    yield TaskSpec(
        name="cookbook",
        target="rlvr_tinker_cookbook.offers:cookbook_task",
        summary="Environments of tinker-cookbook: cookbook.builder=MODULE:CLASS",
        config="rlvr_tinker_cookbook.config:CookbookConfig",
        reward="cookbook",
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """What the environments said."""
    yield RewardSpec(
        name="cookbook",
        target="rlvr_tinker_cookbook.reward:CookbookReward",
        summary="The environment's own reward",
        config="rlvr_tinker_cookbook.config:CookbookConfig",
        bounds=(float("-inf"), float("inf")),
    )


@hookimpl
def rlvr_checks() -> Iterable[Check]:
    """The library whose environments these are."""
    yield Check(
        name="cookbook-installed",
        target="rlvr_tinker_cookbook.offers:installed",
        summary="tinker-cookbook, for its environments as tasks and ours in its loops",
    )
