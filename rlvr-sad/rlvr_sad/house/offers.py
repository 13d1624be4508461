"""What the house adds to the plugin's offers."""

from __future__ import annotations

from rlvr.specs import CommandSpec, RewardSpec, TaskSpec

TASK = TaskSpec(
    name="house",
    target="rlvr_sad.house.task:HouseTask",
    summary="Find, change and put away things in a house of text, turn by turn",
    config="rlvr_sad.house.config:HouseConfig",
    reward="house",
    starter="rlvr_sad.starter.model_path:student_model",
    # a turn ends with its action's bracket; the solver's longest has 21 tokens
    values={"sampler.stop": ("]",), "sampler.max_tokens": 40},
)

REWARD = RewardSpec(
    name="house",
    target="rlvr_sad.house.reward:HouseReward",
    summary="1 when the commands, done again in a fresh house, reach the goal",
    config="rlvr_sad.house.config:HouseConfig",
)

COMMANDS = (
    CommandSpec(
        name="house-play",
        target="rlvr_sad.house.write:house_play",
        summary="Let a model or the solver live in houses; write the trajectories",
    ),
    CommandSpec(
        name="house-models",
        target="rlvr_sad.house.write:house_models",
        summary="Print the specs of the small models that ship for the house",
    ),
)
