"""The advantages against numbers worked by hand and an oracle in NumPy."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import (
    BuildContext,
    Failed,
    Message,
    Outcome,
    Problem,
    Reward,
    ScoredGroup,
    TaskError,
    Trajectory,
)
from rlvr_algos.advantages.best import OneAdvantage
from rlvr_algos.advantages.group import GroupAdvantage
from rlvr_algos.shaping.config import GroupAdvantageConfig

CONTEXT = BuildContext()
WITH_STD = GroupAdvantage(GroupAdvantageConfig(normalise_std=True), CONTEXT)
WITHOUT_STD = GroupAdvantage(GroupAdvantageConfig(normalise_std=False), CONTEXT)
VALUES = st.lists(st.floats(-10, 10), min_size=2, max_size=16)


def group(outcomes: Sequence[Outcome | float]) -> ScoredGroup:
    """A scored group; numbers become rewards of that value."""
    problem = Problem(id="sum", prompt=[Message(role="user", content="1 + 1")])
    return ScoredGroup(
        problem=problem,
        trajectories=[Trajectory.from_text(problem.id, str(n)) for n in range(len(outcomes))],
        outcomes=[o if not isinstance(o, float) else Reward(value=o, score01=0) for o in outcomes],
    )


def test_mean_worked_by_hand() -> None:
    """Rewards 1, 0, 0.5, 0.5 have mean 0.5; groups of different sizes keep to themselves."""
    found = WITHOUT_STD([group([1.0, 0.0, 0.5, 0.5]), group([0.0, 3.0, 0.0])])

    assert found == [[0.5, -0.5, 0.0, 0.0], [-1.0, 2.0, -1.0]]


def test_std_worked_by_hand() -> None:
    """Rewards 1, 0, 0, 0: mean 1/4, sample deviation 1/2, so 3/2 and -1/2 (but for epsilon)."""
    (found,) = WITH_STD([group([1.0, 0.0, 0.0, 0.0])])

    assert found == pytest.approx([1.5, -0.5, -0.5, -0.5], abs=1e-5)


@given(rewards=VALUES, epsilon=st.floats(1e-8, 1.0))
def test_equals_numpy(rewards: list[float], epsilon: float) -> None:
    """(r - mean) / (std + epsilon) with NumPy's sample deviation; without it r - mean."""
    config = GroupAdvantageConfig(epsilon=epsilon)
    (with_std,) = GroupAdvantage(config, CONTEXT)([group(rewards)])
    (without,) = WITHOUT_STD([group(rewards)])

    centred = np.array(rewards) - np.mean(rewards)
    assert without == pytest.approx(list(centred), abs=1e-9)
    spread = np.std(rewards, ddof=1) + epsilon
    assert with_std == pytest.approx(list(centred / spread), abs=1e-6)


@given(reward=st.floats(-1e6, 1e6), size=st.integers(2, 32))
def test_equal_rewards_are_exact_zeros(reward: float, size: int) -> None:
    """No rounding residue is blown up by a deviation of almost nothing."""
    for advantage in (WITH_STD, WITHOUT_STD):
        assert advantage([group([reward] * size)]) == [[0.0] * size]


@given(rewards=VALUES, scale=st.floats(0.1, 100))
def test_std_makes_the_scale_of_rewards_irrelevant(rewards: list[float], scale: float) -> None:
    """Ten times the reward, the same advantage (epsilon aside); without std ten times it."""
    if np.std(rewards) < 0.1:
        return
    (plain,) = WITH_STD([group(rewards)])
    (scaled,) = WITH_STD([group([scale * r for r in rewards])])

    assert scaled == pytest.approx(plain, abs=1e-3)


def test_a_lone_trajectory_is_left_out() -> None:
    """Nothing is relative to itself: where the others of a group failed, it is not learned."""
    assert WITH_STD([group([1.0]), group([1.0, 0.0])])[0] == [None]


def test_a_failed_verification_is_not_a_reward() -> None:
    """An outcome without a reward is refused; it never enters a baseline as 0."""
    with pytest.raises(TaskError, match=r"1 of its 3(.|\n)*scored_only"):
        WITH_STD([group([1.0, Failed(reason="no simulator"), 0.0])])


def test_one_is_one_for_everybody() -> None:
    """Advantage `one` looks at no reward, and keeps the ragged shape."""
    found = OneAdvantage(None, CONTEXT)([group([0.0, 1.0]), group([-3.0])])

    assert found == [[1.0, 1.0], [1.0]]


def test_defaults_are_the_published_ones() -> None:
    """Without options the deviation is divided out, as in arXiv:2402.03300."""
    (found,) = GroupAdvantage(None, CONTEXT)([group([0.0, 1.0])])

    assert found == pytest.approx([-math.sqrt(0.5), math.sqrt(0.5)], abs=1e-5)
