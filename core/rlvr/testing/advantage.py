"""The promises of an advantage, as tests to inherit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar

import pytest

from rlvr.parts import Advantage
from rlvr.testing.contract import Contract, not_given
from rlvr.types import Message, Problem, Reward, ScoredGroup, Trajectory

REWARDS_P_G = ((0.0, 1.0, 0.5, 1.0), (0.3, 0.1, 0.2), (1.0, 0.0), (0.5, 0.5, 0.5))


class AdvantageContract(Contract):
    """
    What every advantage must hold. Give `make_advantage`.

    Set `is_group_relative = False` where a group's mean is no baseline (constants, values): the
    promises about baselines are then skipped, aloud. Set `is_per_group = False` where groups are
    normalised together.
    """

    is_group_relative: ClassVar[bool] = True
    is_per_group: ClassVar[bool] = True

    def make_advantage(self) -> Advantage:
        """A new advantage, as its spec's target builds it."""
        raise not_given(self, "make_advantage")

    # --- promises -------------------------------------------------------------------------------

    def test_one_finite_number_a_trajectory(self) -> None:
        """The result has the ragged shape (P, G) of the groups, in their order."""
        advantages = self._advantages(REWARDS_P_G)
        assert [len(row) for row in advantages] == [len(row) for row in REWARDS_P_G]
        assert all(math.isfinite(value) for row in advantages for value in row)

    def test_equal_rewards_give_zeros(self) -> None:
        """A group that is all right, all wrong or all alike teaches nothing: exact zeros."""
        self._only_for_group_relative()
        for reward in (0.0, 0.1, 1.0, -3.0):
            for size in (2, 3, 7):
                rows = self._advantages([[reward] * size])
                assert rows == [[0.0] * size], (reward, size, rows)

    def test_sums_to_zero_in_a_group(self) -> None:
        """What one trajectory gains the others of its group lose."""
        self._only_for_group_relative()
        for row in self._advantages(REWARDS_P_G):
            assert abs(math.fsum(row)) < 1e-6, row

    def test_a_constant_added_to_all_rewards_changes_nothing(self) -> None:
        """Only differences within a group count."""
        self._only_for_group_relative()
        shifted = [[value + 4.0 for value in row] for row in REWARDS_P_G]
        _same(self._advantages(shifted), self._advantages(REWARDS_P_G))

    def test_a_better_reward_never_gets_less(self) -> None:
        """Within a group advantages keep the order of the rewards."""
        for rewards, row in zip(REWARDS_P_G, self._advantages(REWARDS_P_G), strict=True):
            ordered = [value for _, value in sorted(zip(rewards, row, strict=True))]
            assert all(a <= b + 1e-9 for a, b in pairwise(ordered))

    def test_order_within_a_group_does_not_matter(self) -> None:
        """Turning a group round turns its advantages round."""
        turned = self._advantages([row[::-1] for row in REWARDS_P_G])
        _same([row[::-1] for row in turned], self._advantages(REWARDS_P_G))

    def test_groups_do_not_touch_each_other(self) -> None:
        """Each group alone gets what it gets among others, in any order."""
        if not self.is_per_group:
            pytest.skip("this advantage normalises groups together (is_per_group = False)")
        alone = [self._advantages([row])[0] for row in REWARDS_P_G]
        _same(alone, self._advantages(REWARDS_P_G))
        _same(self._advantages(REWARDS_P_G[::-1])[::-1], alone)

    def test_stays_finite_at_extreme_rewards(self) -> None:
        """Rewards of 1e8, and differences of 1e-12, never make infinity or NaN."""
        for row in self._advantages([(1e8, -1e8), (0.0, 1e-12), (1e8, 1e8 + 1e-7, 0.0)]):
            assert all(math.isfinite(value) for value in row), row

    # --- helpers --------------------------------------------------------------------------------

    def _advantages(self, rewards_P_G: Sequence[Sequence[float]]) -> list[list[float]]:
        groups = [_group(place, rewards) for place, rewards in enumerate(rewards_P_G)]
        return self.make_advantage()(groups)

    def _only_for_group_relative(self) -> None:
        if not self.is_group_relative:
            pytest.skip("this advantage has no group baseline (is_group_relative = False)")


def _group(place: int, rewards_G: Sequence[float]) -> ScoredGroup:
    problem = Problem(id=f"problem-{place}", prompt=(Message(role="user", content="?"),))
    return ScoredGroup(
        problem=problem,
        trajectories=tuple(Trajectory.from_text(problem.id, str(value)) for value in rewards_G),
        outcomes=tuple(
            Reward(value=value, score01=min(max(value, 0.0), 1.0)) for value in rewards_G
        ),
    )


def _same(found: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> None:
    for row, other in zip(found, wanted, strict=True):
        assert row == pytest.approx(other, rel=1e-6, abs=1e-9)
