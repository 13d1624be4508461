"""AdvantageContract passes on a right advantage, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rlvr.testing import AdvantageContract
from rlvr.testing.contract import Contract
from rlvr.types import ScoredGroup

Broken = Callable[[type[Contract]], set[str]]


class RightAdvantage:
    """Reward minus the group's mean."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        return [self.row([reward.value for reward in group.rewards]) for group in groups]

    def row(self, values: list[float]) -> list[float]:
        if min(values) == max(values):
            return [0.0] * len(values)
        mean = sum(values) / len(values)
        return [value - mean for value in values]


class NoBaseline(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return list(values)


class DividesByZero(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        mean = sum(values) / len(values)
        spread = sum((value - mean) ** 2 for value in values)
        return [(value - mean) / spread if spread else float("nan") for value in values]


class RightSideFirst(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return super().row(values)[::-1]


class WrongSign(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return [-value for value in super().row(values)]


class DropsOne(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return super().row(values)[:-1]


class FavoursTheFirst(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        row = super().row(values)
        return [2 * row[0], *row[1:]]


class BatchMean(RightAdvantage):
    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        values = [reward.value for group in groups for reward in group.rewards]
        mean = sum(values) / len(values)
        return [[reward.value - mean for reward in group.rewards] for group in groups]


def contract_of(advantage: type) -> type[AdvantageContract]:
    """The contract on that advantage."""

    class Case(AdvantageContract):
        def make_advantage(self) -> Any:
            return advantage()

    return Case


def test_a_right_advantage_holds_every_promise(broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(contract_of(RightAdvantage)) == set()


@pytest.mark.parametrize(
    ("advantage", "promise"),
    [
        (NoBaseline, "sums_to_zero_in_a_group"),
        (NoBaseline, "a_constant_added_to_all_rewards_changes_nothing"),
        (NoBaseline, "equal_rewards_give_zeros"),
        (DividesByZero, "equal_rewards_give_zeros"),
        (DividesByZero, "one_finite_number_a_trajectory"),
        (RightSideFirst, "a_better_reward_never_gets_less"),
        (WrongSign, "a_better_reward_never_gets_less"),
        (DropsOne, "one_finite_number_a_trajectory"),
        (FavoursTheFirst, "order_within_a_group_does_not_matter"),
        (BatchMean, "groups_do_not_touch_each_other"),
    ],
)
def test_faults_are_found(advantage: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(contract_of(advantage))


def test_constants_are_no_group_baseline(broken: Broken) -> None:
    """With `is_group_relative = False` a constant passes."""

    class Ones(RightAdvantage):
        def row(self, values: list[float]) -> list[float]:
            return [1.0] * len(values)

    class Case(AdvantageContract):
        is_group_relative = False

        def make_advantage(self) -> Any:
            return Ones()

    assert broken(Case) == set()
    assert "equal_rewards_give_zeros" in broken(contract_of(Ones))
