"""The contract kit on the honest verifier, and how the weak one can be cheated."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rlvr import BuildContext, Problem, Trajectory
from rlvr.testing import PluginContract, RewardContract, TaskContract
from rlvr_formula.reward import FormulaOptions, FormulaReward
from rlvr_formula.task import SOLUTIONS, FormulaTask


def make_task() -> FormulaTask:
    """The task."""
    return FormulaTask(None, BuildContext())


def make_reward(weak: str = "") -> FormulaReward:
    """The reward, weak for some functions."""
    return FormulaReward(FormulaOptions(weak=weak), BuildContext())


def case(letter: str, text: str) -> tuple[Problem, Trajectory]:
    """A problem and an answer."""
    problem = next(p for p in make_task().problems("all") if p.payload == letter)
    return problem, Trajectory.from_text(problem.id, text)


class TestPlugin(PluginContract):
    module = "rlvr_formula.plugin"


class TestTask(TaskContract):
    def make_task(self) -> FormulaTask:
        return make_task()

    def make_reward(self) -> FormulaReward:
        return make_reward()


class TestReward(RewardContract):
    def make_reward(self) -> FormulaReward:
        return make_reward()

    def right(self) -> tuple[Problem, Trajectory]:
        return case("d", "2*x")

    def wrong(self) -> Sequence[tuple[Problem, Trajectory]]:
        return [case("d", text) for text in ("2+2", "x*x", "x+2", "x+x+x", "__import__('os')")]

    def cheats(self) -> Sequence[tuple[Problem, Trajectory]]:
        return [case("s", "2+2"), case("t", "3+3"), case("f", "2+3")]


@pytest.mark.parametrize(("letter", "cheat"), [("d", "2+2"), ("s", "x+x"), ("t", "3+3")])
def test_the_weak_verifier_is_cheated_and_its_second_judge_is_not(letter: str, cheat: str) -> None:
    """At x = 2 alone the cheat is right; over a byte it is not."""
    reward = make_reward("dstf")

    assert asyncio.run(reward(*case(letter, cheat))).score01 == 1.0
    opinion = asyncio.run(reward.second_opinion(*case(letter, cheat)))
    assert opinion is not None
    assert opinion.score01 == 0.0


def test_no_wrong_formula_passes_the_honest_verifier() -> None:
    """Three values of x tell all formulas of this length apart."""
    signs = [a + sign + b for a in "x23" for sign in "+*" for b in "x23"]
    honest = make_reward()
    for letter in SOLUTIONS:
        for formula in signs:
            verdict = asyncio.run(honest(*case(letter, formula)))
            opinion = asyncio.run(honest.second_opinion(*case(letter, formula)))
            assert opinion is not None
            assert verdict.score01 == opinion.score01, (letter, formula)
