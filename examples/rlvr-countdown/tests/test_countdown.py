"""The contract kit on this plugin, and the promises that are countdown's own."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from rlvr import BuildContext, Problem, Trajectory
from rlvr.testing import PluginContract, RewardContract, TaskContract
from rlvr_countdown.reward import CountdownOptions, CountdownReward, evaluate
from rlvr_countdown.task import CountdownTask


def make_task() -> CountdownTask:
    """The task on its embedded puzzles."""
    return CountdownTask(None, BuildContext())


def make_reward() -> CountdownReward:
    """The reward with its default options."""
    return CountdownReward(CountdownOptions(), BuildContext())


def answer(problem: Problem, text: str) -> tuple[Problem, Trajectory]:
    """What the contracts call a case: a problem and what a model said."""
    return problem, Trajectory.from_text(problem.id, text)


class TestPlugin(PluginContract):
    module = "rlvr_countdown.plugin"


class TestTask(TaskContract):
    def make_task(self) -> CountdownTask:
        return make_task()

    def make_reward(self) -> CountdownReward:
        return make_reward()


class TestReward(RewardContract):
    def make_reward(self) -> CountdownReward:
        return make_reward()

    def problem(self) -> Problem:
        """Reach 60 with 11, 5 and 10."""
        return next(p for p in make_task().problems("all") if p.id == "countdown-001")

    def right(self) -> tuple[Problem, Trajectory]:
        return answer(self.problem(), "11 - 5 is 6, so <answer>(11 - 5) * 10</answer>")

    def wrong(self) -> Sequence[tuple[Problem, Trajectory]]:
        texts = ("<answer>11 + 5 + 10</answer>", "(11 - 5) * 10", "<answer>5 / (10 - 10)</answer>")
        return [answer(self.problem(), text) for text in texts]

    def cheats(self) -> Sequence[tuple[Problem, Trajectory]]:
        texts = (
            "<answer>60</answer>",  # the target itself is no number of the puzzle
            "<answer>6 * 10</answer>",
            "<answer>(11 - 5) * 10 * 10 / 10</answer>",  # a number used three times
            "<answer>__import__('os').abort()</answer>",
            "<answer>9 ** 9 ** 9 ** 9</answer>",
            "<answer>" + "(" * 199 + "</answer>",
        )
        return [answer(self.problem(), text) for text in texts]


def test_every_embedded_solution_is_right() -> None:
    """No puzzle of the data set has a wrong solution."""
    task, reward = make_task(), make_reward()

    for problem in task.problems("all"):
        verdict = asyncio.run(reward(problem, task.reference(problem)))

        assert verdict.score01 == 1.0, problem.id


def test_values_are_exact() -> None:
    """1/3 + 1/3 + 1/3 is 1, not 0.9999."""
    numbers, value = evaluate("1 / 3 + 1 / 3 + 1 / 3")

    assert numbers == [1, 3, 1, 3, 1, 3]
    assert value == 1


@pytest.mark.parametrize("text", ["", "2 ** 9", "-3 + 5", "abs(3)", "1.5 + 2", "True + 1"])
def test_anything_but_arithmetic_is_refused(text: str) -> None:
    """Only whole numbers, + - * / and parentheses are evaluated."""
    with pytest.raises((ValueError, SyntaxError)):
        evaluate(text)


def test_broken_lines_are_listed_and_the_rest_is_kept(tmp_path: Path) -> None:
    """A line that is no puzzle is named with its number and its reason."""
    good = '{"id": "a", "split": "train", "numbers": [1, 2], "target": 3, "solution": "1 + 2"}'
    path = tmp_path / "puzzles.jsonl"
    path.write_text(f'{good}\n{{"id": \n{{"id": "b"}}\n', encoding="utf-8")

    task = CountdownTask(None, BuildContext(dataset=path))

    assert [p.id for p in task.problems("all")] == ["a"]
    assert list(task.unsupported()) == ["line 2", "line 3"]
