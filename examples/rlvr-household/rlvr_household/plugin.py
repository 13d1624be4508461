"""The plugin rlvr-household offers a task, its reward and two commands."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import CommandSpec, RewardSpec, TaskSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """A house of text to live in."""
    yield TaskSpec(
        name="house",
        target="rlvr_household.task:HouseTask",
        config="rlvr_household.config:HouseConfig",
        reward="house",
        summary="Find, change and put away things in a house of text, turn by turn",
        starter="rlvr_household.starter.model_path:student_model",
        # a turn ends with its action's bracket; the solver's longest has 21 tokens
        values={"sampler.stop": ("]",), "sampler.max_tokens": 40},
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """The reward of the house."""
    yield RewardSpec(
        name="house",
        target="rlvr_household.episode:HouseReward",
        config="rlvr_household.config:HouseConfig",
        summary="1 when the commands, done again in a fresh house, reach the goal",
    )


@hookimpl
def rlvr_commands() -> Iterable[CommandSpec]:
    """Subcommands of `rlvr household`."""
    yield CommandSpec(
        name="play",
        target="rlvr_household.commands:house_play",
        summary="Let a model or the solver act in houses; write the trajectories",
    )
    yield CommandSpec(
        name="models",
        target="rlvr_household.commands:house_models",
        summary="Print the specs of the small models that ship for the house",
    )
