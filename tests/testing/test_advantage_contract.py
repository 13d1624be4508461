"""AdvantageContract passes on a right advantage, and finds each planted fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Advantage, Datum, Needs, ScoredGroup
from rlvr.testing import AdvantageContract
from tests.testing.conftest import Broken, Faults

breaks = Faults()


class RightAdvantage(Advantage):
    """Reward minus the group's mean."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        return [self.row([reward.value for reward in group.rewards]) for group in groups]

    def row(self, values: list[float]) -> list[float]:
        if min(values) == max(values):
            return [0.0] * len(values)
        mean = sum(values) / len(values)
        return [value - mean for value in values]


@breaks(
    "sums_to_zero_in_a_group",
    "a_constant_added_to_all_rewards_changes_nothing",
    "equal_rewards_give_zeros",
)
class NoBaseline(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return list(values)


@breaks("equal_rewards_give_zeros", "one_finite_number_a_trajectory")
class DividesByZero(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        mean = sum(values) / len(values)
        spread = sum((value - mean) ** 2 for value in values)
        return [(value - mean) / spread if spread else float("nan") for value in values]


@breaks("keeps_nothing_between_calls")
class GrowsWithEachCall(RightAdvantage):
    calls = 0

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        self.calls += 1
        return [[self.calls * value for value in row] for row in super().__call__(groups)]


@breaks("a_better_reward_never_gets_less")
class RightSideFirst(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return super().row(values)[::-1]


@breaks("a_better_reward_never_gets_less")
class WrongSign(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return [-value for value in super().row(values)]


@breaks("one_finite_number_a_trajectory")
class DropsOne(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        return super().row(values)[:-1]


@breaks("order_within_a_group_does_not_matter")
class FavoursTheFirst(RightAdvantage):
    def row(self, values: list[float]) -> list[float]:
        row = super().row(values)
        return [2 * row[0], *row[1:]]


@breaks("groups_do_not_touch_each_other")
class BatchMean(RightAdvantage):
    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        values = [reward.value for group in groups for reward in group.rewards]
        mean = sum(values) / len(values)
        return [[reward.value - mean for reward in group.rewards] for group in groups]


@breaks("a_better_reward_never_gets_less")
class LeavesOutTheBest(RightAdvantage):
    """Imitates the worst of a group."""

    def row(self, values: list[float]) -> list[float]:
        worst = values.index(min(values))
        return [1.0 if i == worst else None for i in range(len(values))]  # type: ignore[misc]


class Refines(RightAdvantage):
    """Takes a multiple of a token's gap to the reference off its advantage; drops equal groups."""

    needs = Needs(annotations={"reference"})
    refill_limit = 2

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        return [self.refined(d) for d in data]

    def refined(self, d: Datum) -> Datum:
        gap = np.where(d.mask, d.logprobs - d.annotations["reference"], 0.0)
        return attrs.evolve(d, advantages=d.advantages - 0.1 * gap)

    def keep(self, group: ScoredGroup) -> bool:
        return len({reward.value for reward in group.rewards}) > 1


@breaks("refines_advantages_and_nothing_else")
class RefinesThePrompt(Refines):
    def refined(self, d: Datum) -> Datum:
        return attrs.evolve(d, advantages=d.advantages - 0.1)


@breaks("refines_advantages_and_nothing_else")
class RefinesBackwards(Refines):
    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        return super().per_token(data)[::-1]


@breaks("refines_advantages_and_nothing_else")
class DropsData(Refines):
    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        return super().per_token(data)[1:]


@breaks("refines_advantages_and_nothing_else")
class RefinesInPlace(Refines):
    def refined(self, d: Datum) -> Datum:
        d.annotations["reference"][:] = 0.0
        return super().refined(d)


@breaks("refines_advantages_and_nothing_else")
class RefinesWeights(Refines):
    def refined(self, d: Datum) -> Datum:
        return attrs.evolve(super().refined(d), weights=2 * d.weights)


@breaks("refines_the_policys_tokens_only")
class LetsThePromptLeak(Refines):
    def refined(self, d: Datum) -> Datum:
        mean = float(d.annotations["reference"].mean())
        return attrs.evolve(d, advantages=(d.advantages - mean) * d.mask)


@breaks("refines_by_what_it_declares")
class AsksForNothingItUses(Refines):
    needs = Needs(annotations={"reference", "teacher"})


@breaks("refines_by_what_it_declares")
class UsesWhatItDoesNotAskFor(Refines):
    def refined(self, d: Datum) -> Datum:
        d = super().refined(d)
        return attrs.evolve(d, advantages=d.advantages * (2.0 if "teacher" in d.annotations else 1))


@breaks("refines_nothing_to_nothing")
class FailsOnNothing(Refines):
    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        top = max(float(d.advantages.max()) for d in data)
        return [attrs.evolve(d, advantages=d.advantages / max(top, 1.0)) for d in data]


@breaks("drops_only_groups_that_teach_nothing")
class DropsWhatTeaches(Refines):
    def keep(self, group: ScoredGroup) -> bool:
        return group.rewards[0].value > 0.2


@breaks("drops_only_groups_that_teach_nothing")
class RefillsByHalves(Refines):
    refill_limit = 0.5  # type: ignore[assignment]  # the fault


@breaks("is_a_part_without_slips")
class RefillsWithoutDropping(RightAdvantage):
    refill_limit = 1


@breaks("is_a_part_without_slips")
class AsksAndDoesNotListen(RightAdvantage):
    needs = Needs(annotations={"reference"})


@breaks("is_a_part_without_slips")
class NeedsAnEntropy(RightAdvantage):
    needs = Needs(outputs={"entropy"})


class GivesReturns(Refines):
    """Annotates for the loss, and says so."""

    needs = Needs(annotations={"reference"}, provides={"return"})

    def refined(self, d: Datum) -> Datum:
        d = super().refined(d)
        return attrs.evolve(d, annotations={**d.annotations, "return": d.advantages})

    def metrics(self, data: Sequence[Datum]) -> dict[str, Any]:
        return {"return/mean": float(np.mean([d.annotations["return"].sum() for d in data]))}


@breaks("refines_advantages_and_nothing_else")
class GivesWhatItDoesNotDeclare(GivesReturns):
    needs = Needs(annotations={"reference"})


@breaks("refines_advantages_and_nothing_else")
class DeclaresWhatItDoesNotGive(Refines):
    needs = Needs(annotations={"reference"}, provides={"return"})


@breaks("metrics_are_plain_numbers")
class MeasuresInArrays(GivesReturns):
    def metrics(self, data: Sequence[Datum]) -> dict[str, Any]:
        return {"return/mean": np.ones(3)}


@breaks("is_a_part_without_slips")
class RemembersInVain(RightAdvantage):
    def adapted(self, memory: Any, metrics: Any) -> dict[str, float]:
        return {"steps": memory.get("steps", 0.0) + 1}


@breaks("is_a_part_without_slips")
class DerivesFromNothing:
    """Does all that is essential."""

    needs = Needs()
    __call__ = RightAdvantage.__call__
    row = RightAdvantage.row


@pytest.mark.parametrize("advantage", [RightAdvantage, Refines, GivesReturns])
def test_a_right_advantage_holds_every_promise(advantage: type, broken: Broken) -> None:
    """The kit raises no false alarm."""
    assert broken(AdvantageContract, make_advantage=advantage) == set()


@pytest.mark.parametrize(("advantage", "promise"), breaks.cases)
def test_faults_are_found(advantage: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(AdvantageContract, promise, make_advantage=advantage)


def test_constants_are_no_group_baseline(broken: Broken) -> None:
    """With `is_group_relative = False` a constant passes."""

    class Ones(RightAdvantage):
        def row(self, values: list[float]) -> list[float]:
            return [1.0] * len(values)

    class SaysSo(Ones):
        is_group_relative = False

    assert broken(AdvantageContract, make_advantage=SaysSo) == set()
    assert "equal_rewards_give_zeros" in broken(AdvantageContract, make_advantage=Ones)
