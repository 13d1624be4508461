"""What this distribution offers to rlvr. Imports nothing heavy: the parts are named as text."""

from __future__ import annotations

from collections.abc import Iterable

from rlvr import RewardSpec, TaskSpec, hookimpl

RLVR_API = 1


@hookimpl
def rlvr_tasks() -> Iterable[TaskSpec]:
    """Four functions, with a tiny start model that learns them in a minute on a CPU."""
    yield TaskSpec(
        name="formula",
        target="rlvr_formula.task:FormulaTask",
        reward="formula",
        starter="rlvr_formula.task:starter",
        summary="Write a formula over x, such as x+x",
        presets={
            "starter": {
                "run.steps": 60,
                "train.lr": 1e-2,
                "train.problems": 16,
                "sampler.group_size": 8,
                "sampler.max_tokens": 3,
                "verify.store": "off",
            }
        },
    )


@hookimpl
def rlvr_rewards() -> Iterable[RewardSpec]:
    """The verifier, weak where it is asked to be, and its second judge."""
    yield RewardSpec(
        name="formula",
        target="rlvr_formula.reward:FormulaReward",
        config="rlvr_formula.reward:FormulaOptions",
        summary="Computes the formula at a few values of x; the second judge at all",
    )
