"""A function becomes a part by a decorator."""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

import rlvr
from rlvr import BuildContext, Needs, Problem, Reward, RewardFn, ScoredGroup, Trajectory
from rlvr.border.kinds import fault_of_part
from rlvr.testing.contract import check_part
from rlvr.verification.runner import VerificationRunner


@rlvr.reward
def length(problem: Problem, trajectory: Trajectory) -> Reward:
    """Longer is better."""
    return Reward(value=1.0, score01=1.0, tests_passed=1, tests_total=1)


@rlvr.reward
async def waiting(problem: Problem, trajectory: Trajectory) -> Reward:
    await asyncio.sleep(0)
    return Reward(value=0.5, score01=0.5, tests_passed=1, tests_total=2)


@rlvr.advantage
def first(groups: Sequence[ScoredGroup]) -> list[list[float]]:
    return [[1.0 for _ in group.trajectories] for group in groups]


@rlvr.loss(needs=Needs(annotations={"reference"}), importance_weighted=False)
def nothing(data: Any, logprobs: Any, outputs: Any) -> tuple[Any, dict[str, float]]:
    return 0.0, {"n": float(len(data))}


PROBLEM = Problem(id="p", prompt=())
ANSWER = Trajectory(problem_id="p", segments=(), finish="stop")


@pytest.mark.parametrize(("made", "value"), [(length, 1.0), (waiting, 0.5)])
def test_a_plain_and_a_waiting_function_are_rewards(made: type[RewardFn], value: float) -> None:
    """The runner calls both, one in a thread, one on the event loop."""
    built = made(None, BuildContext())  # type: ignore[call-arg]
    check_part(built, RewardFn)
    assert fault_of_part(built, "reward") == ""
    (outcome,) = asyncio.run(VerificationRunner(reward=built).pairs([(PROBLEM, ANSWER)]))
    assert isinstance(outcome, Reward)
    assert outcome.value == value


def test_names_and_words_are_those_of_the_function() -> None:
    """So a message names it, and another process finds it."""
    assert (length.__name__, length.__doc__) == ("length", "Longer is better.")
    assert pickle.loads(pickle.dumps(length())) is not None


def test_a_loss_says_what_it_needs() -> None:
    """`importance_weighted` has no default: forgotten, ratios would be biased in silence."""
    assert nothing().needs.annotations == {"reference"}
    assert nothing().importance_weighted is False
    assert nothing()([1, 2], [], {}) == (0.0, {"n": 2.0})  # type: ignore[list-item]
    assert first()([]) == []
    with pytest.raises(TypeError, match="importance_weighted"):
        rlvr.loss()  # type: ignore[call-arg]


def test_an_advantage_says_which_promises_apply() -> None:
    """As the attributes of its class; a decorator without arguments changes none."""

    @rlvr.advantage(is_group_relative=False, breaks_ties=True)
    def declared(groups: Sequence[ScoredGroup]) -> list[list[float]]:
        return first()(groups)  # type: ignore[return-value]

    flags = ("is_group_relative", "is_per_group", "breaks_ties")
    assert [getattr(first, name) for name in flags] == [True, True, False]
    assert [getattr(declared, name) for name in flags] == [False, True, True]
    assert declared()([]) == []
    with pytest.raises(TypeError, match="breaks_ties of an advantage: expected True or False"):
        rlvr.advantage(breaks_ties=1)  # type: ignore[call-overload]


def graded(problem: Problem, trajectory: Trajectory, top: float = 1.0) -> Reward:
    return Reward(value=top, score01=1.0)


def nowhere(problem: Problem, trajectory: Trajectory) -> Reward:
    return Reward(value=0.75, score01=0.0)


nowhere.__module__ = None  # type: ignore[assignment]  # as functions in C have it, like {}.get


class Judge:
    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        return Reward(value=0.25, score01=0.0)


def test_whatever_can_be_called_is_a_function() -> None:
    """With its defaults, some of its arguments given, a method, an object; its name stays."""
    for function, name, value in (
        (graded, "graded", 1.0),
        (functools.partial(graded, top=0.5), "graded", 0.5),
        (Judge(), "Judge", 0.25),
        (Judge().__call__, "__call__", 0.25),
        (nowhere, "nowhere", 0.75),
    ):
        made = rlvr.reward(function)
        assert (made.__name__, made.__doc__) == (name, None)
        (outcome,) = asyncio.run(VerificationRunner(reward=made()).pairs([(PROBLEM, ANSWER)]))
        assert isinstance(outcome, Reward)
        assert outcome.value == value


async def slow(groups: Any) -> Any:
    return groups


@pytest.mark.parametrize(
    ("decorator", "function", "said"),
    [
        (rlvr.reward, 3, r"a reward is made of a function \(problem, trajectory\); found: 3"),
        (rlvr.reward, max, "found: max: no signature"),
        (rlvr.reward, Judge, "found: <class .*A class derives from rlvr.RewardFn"),
        (rlvr.reward, length, "A class derives from rlvr.RewardFn"),
        (rlvr.reward, lambda problem: 1, r"found: <lambda>\(problem\): too many positional"),
        (rlvr.reward, Judge.__call__, "missing a required argument: 'trajectory'"),
        (
            rlvr.advantage,
            slow,
            r"^an advantage .*\(groups\); found: async def slow, which nobody",
        ),
        (rlvr.loss(importance_weighted=False), slow, r"\(data, logprobs, outputs\); found: slow"),
    ],
)
def test_what_cannot_be_called_so_is_refused_at_once(
    decorator: Any, function: Any, said: str
) -> None:
    """Where it is decorated, not in the middle of a run."""
    with pytest.raises(TypeError, match=said):
        decorator(function)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"importance_weighted": "no"}, "importance_weighted .*True or False; found: 'no'"),
        ({"importance_weighted": None}, "importance_weighted .*found: None"),
        ({"is_policy_gradient": 0}, "is_policy_gradient .*True or False; found: 0"),
        ({"needs": {"x"}}, r"needs .*rlvr\.Needs\(annotations=.*found: {'x'}"),
        ({"needs": set()}, r"needs .*found: set\(\)"),
        ({"needs": Needs}, "needs .*found: <class"),
    ],
)
def test_what_a_loss_cannot_say_is_refused_at_once(given: dict[str, Any], said: str) -> None:
    """Before there is a function."""
    with pytest.raises(TypeError, match=said):
        rlvr.loss(**{"importance_weighted": False, **given})
