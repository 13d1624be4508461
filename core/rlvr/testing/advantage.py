"""The promises of an advantage, as tests to inherit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr.border.abilities import is_kept, numbers_of
from rlvr.border.calls import shown
from rlvr.border.promises import credited
from rlvr.parts import Advantage
from rlvr.testing.contract import not_given, same
from rlvr.testing.distilling import met, taught
from rlvr.testing.fakes.data import random_data
from rlvr.testing.forward import annotated_more, padded, soiled
from rlvr.testing.learning_part import LearningPartContract
from rlvr.testing.process import nothing_changed
from rlvr.types import Datum, Message, Problem, Reward, ScoredGroup, Trajectory

REWARDS_P_G = ((0.0, 1.0, 0.5, 1.0), (0.3, 0.1, 0.2), (1.0, 0.0), (0.5, 0.5, 0.5))
NO_TIES_P_G = ((0.0, 1.0, 0.5, 0.2), (0.3, 0.1, 0.2), (1.0, 0.0))
_NO_BASELINE = "; an advantage without a group's baseline declares is_group_relative = False"
_TOGETHER = "; one that normalises groups together declares is_per_group = False"
_TIES = "; one that chooses between equally good answers declares breaks_ties = True"


class AdvantageContract(LearningPartContract):
    """
    Tests of an advantage's promises. Define `make_advantage`.

    Promises that do not apply by what it declares (`is_group_relative`, `is_per_group`,
    `breaks_ties`) are skipped, aloud. Methods that an advantage leaves as they are hold the
    promises about them, too.
    """

    _base = Advantage

    def make_advantage(self) -> Advantage:
        """A new advantage, as its spec's target builds it."""
        raise not_given(self, "make_advantage")

    # --- promises -------------------------------------------------------------------------------

    def test_one_finite_number_a_trajectory(self) -> None:
        """The result has the ragged shape (P, G) of the groups, in their order; None leaves out."""
        with nothing_changed():
            advantages = self._advantages(REWARDS_P_G)
        for rewards, row in zip(REWARDS_P_G, advantages, strict=True):
            is_one_each = len(row) == len(rewards) and all(map(math.isfinite, _numbers(row)))
            assert is_one_each, f"rewards {rewards} give {row}"

    def test_keeps_nothing_between_calls(self) -> None:
        """The same object, called again, gives the same: what adapts is in the memory."""
        part = self.make_advantage()
        first, second, third = (self._advantages(REWARDS_P_G, part) for _ in range(3))
        _same(second, first)
        _same(third, first)

    def test_equal_rewards_give_zeros(self) -> None:
        """A group that is all right, all wrong or all alike teaches nothing: zeros."""
        self._only_for_group_relative()
        for reward in (0.0, 0.1, 1.0, -3.0):
            for size in (2, 3, 7):
                rows = self._advantages([[reward] * size])
                found = np.asarray(rows, float)  # None is not a number, and fails
                says = f"{size} rewards of {reward:g} give {rows[0]}{_NO_BASELINE}"
                assert np.abs(found).max() < 1e-9, says

    def test_sums_to_zero_in_a_group(self) -> None:
        """Advantages of a group sum to zero."""
        self._only_for_group_relative()
        for row in self._advantages(REWARDS_P_G):
            total = math.fsum(_numbers(row))
            assert abs(total) < 1e-6, f"{row} sums to {total:g}{_NO_BASELINE}"

    def test_a_constant_added_to_all_rewards_changes_nothing(self) -> None:
        """Only differences within a group count."""
        self._only_for_group_relative()
        shifted = [[value + 4.0 for value in row] for row in REWARDS_P_G]
        _same(self._advantages(shifted), self._advantages(REWARDS_P_G), _NO_BASELINE)

    def test_a_better_reward_never_gets_less(self) -> None:
        """Within a group advantages keep the order of the rewards; the worst is not chosen."""
        for rewards, row in zip(REWARDS_P_G, self._advantages(REWARDS_P_G), strict=True):
            pairs = [(r, a) for r, a in zip(rewards, row, strict=True) if a is not None]
            ordered = [value for _, value in sorted(pairs)]
            says = f"rewards {rewards} give {row}"
            assert all(a <= b + 1e-9 for a, b in pairwise(ordered)), says
            assert not pairs or max(pairs)[0] == max(rewards), says

    def test_order_within_a_group_does_not_matter(self) -> None:
        """Reversing a group reverses its advantages."""
        rewards = NO_TIES_P_G if self.make_advantage().breaks_ties else REWARDS_P_G
        turned = self._advantages([row[::-1] for row in rewards])
        _same([row[::-1] for row in turned], self._advantages(rewards), _TIES)

    def test_groups_do_not_touch_each_other(self) -> None:
        """Each group alone gets what it gets among others, in any order."""
        if not self.make_advantage().is_per_group:
            pytest.skip("this advantage normalises groups together (is_per_group = False)")
        alone = [self._advantages([row])[0] for row in REWARDS_P_G]
        _same(alone, self._advantages(REWARDS_P_G), _TOGETHER)
        _same(self._advantages(REWARDS_P_G[::-1])[::-1], alone, _TOGETHER)

    def test_stays_finite_at_extreme_rewards(self) -> None:
        """Rewards of 1e8, and differences of 1e-12, never make infinity or NaN."""
        for row in self._advantages([(1e8, -1e8), (0.0, 1e-12), (1e8, 1e8 + 1e-7, 0.0)]):
            assert all(map(math.isfinite, _numbers(row))), f"an advantage is not finite: {row}"

    def test_refines_advantages_and_nothing_else(self) -> None:
        """Data keep number, order and content; advantages are finite, and 0 outside the mask."""
        part, data = self._case()
        before = _contents(data)
        refined = part.per_token(data)
        assert _contents(data) == before, "per_token changed the data that it was given"
        is_listed = isinstance(refined, list) and len(refined) == len(data)
        assert is_listed, f"per_token gave {shown(refined)} for {len(data)} data"
        for old, new in zip(data, refined, strict=True):
            plain = attrs.evolve(new, advantages=old.advantages, annotations=old.annotations)
            assert plain == old, "per_token changed more of a datum than its advantages"
            wanted = {*old.annotations, *part.needs.provides}
            same("annotations after per_token", {*new.annotations}, wanted)
            for name, values in new.annotations.items():
                same(f"shape of the annotation {name}", values.shape, old.tokens.shape)
                is_kept_so = np.array_equal(values, old.annotations.get(name, values))
                assert is_kept_so, f"per_token changed the annotation {name}, which was given"
            same("shape of the advantages", new.advantages.shape, old.tokens.shape)
            assert np.isfinite(new.advantages).all(), f"per_token gave {new.advantages}"
            outside = new.advantages[~old.mask]
            assert not outside.any(), f"per_token gave {outside} outside the mask"

    def test_refines_by_what_it_declares(self) -> None:
        """All annotations that it needs are used, and others change nothing."""
        part, data = self._case()
        wanted = part.per_token(data)
        more = annotated_more(data, ("reference", "teacher", "policy", "value"))
        _same_advantages(part.per_token(more), wanted)
        self._assert_read(part, data, "annotations")

    def test_refines_the_policys_tokens_only(self) -> None:
        """NaN outside the mask, padding and the order of the data change no advantage."""
        part, data = self._case()
        wanted = part.per_token(data)
        _same_advantages(part.per_token([soiled(d) for d in data]), wanted)
        _same_advantages(part.per_token(data[::-1])[::-1], wanted)
        longer = part.per_token([padded(d, 3) for d in data])
        cut = [attrs.evolve(d, advantages=d.advantages[:-3]) for d in longer]
        _same_advantages(cut, wanted)
        padding = [d.advantages[-3:] for d in longer]
        assert not np.any(padding), f"per_token gave {padding} at three tokens of padding"

    def test_refines_nothing_to_nothing(self) -> None:
        """A step without data is no error."""
        part, _ = self._case()
        same("per_token of no data", part.per_token([]), [])

    def test_drops_only_groups_that_teach_nothing(self) -> None:
        """`keep` is False only for groups of zeros and Nones; `refill_limit` is a count."""
        part = self.make_advantage()
        limit = part.refill_limit
        assert isinstance(limit, int), f"refill_limit is {limit!r}, no whole number"
        assert limit >= 0, f"refill_limit is {limit}, below 0"
        for rewards in REWARDS_P_G:
            group = _group(0, rewards)
            keep = is_kept(part, group)
            same(f"keep, called again on rewards {rewards}", is_kept(part, group), keep)
            if part.is_group_relative and any(_numbers(credited(part, [group])[0])):
                assert keep, f"a group of rewards {rewards} is dropped"

    def test_reads_the_distributions_that_it_needs(self) -> None:
        """Teachers' distributions are used in `per_token`; without them it does not guess."""
        part, data = self._case()
        if not part.needs.distributions:
            pytest.skip("this advantage asks for no distributions")
        self._assert_read(part, data, "distributions")

    def test_metrics_are_plain_numbers(self) -> None:
        """Finite floats under string names: a function of the data, which stay as they are."""
        part, data = self._case()
        data = part.per_token(data)
        before = _contents(data)
        metrics = numbers_of(part, "advantage", "metrics", part.metrics(data))
        assert all(map(math.isfinite, metrics.values())), f"a metric is not finite: {metrics}"
        same("metrics, called again", part.metrics(data), metrics)
        assert _contents(data) == before, "metrics changed the data that it was given"

    # --- helpers --------------------------------------------------------------------------------

    def _part(self) -> Advantage:
        return self.make_advantage()

    def _assert_read(self, part: Advantage, data: Sequence[Datum], field: str) -> None:
        """Without one of the needed annotations, or distributions, `per_token` raises."""
        for name in getattr(part.needs, field):
            fewer: list[Datum] = []
            for datum in data:
                kept: Any = {k: v for k, v in getattr(datum, field).items() if k != name}
                fewer.append(attrs.evolve(datum, **{field: kept}))
            with pytest.raises(Exception, match=name):
                part.per_token(fewer)

    def _advantages(
        self, rewards_P_G: Sequence[Sequence[float]], part: Advantage | None = None
    ) -> list[list[float | None]]:
        groups = [_group(place, rewards) for place, rewards in enumerate(rewards_P_G)]
        return [list(row) for row in credited(part or self.make_advantage(), groups)]

    def _case(self) -> tuple[Advantage, list[Datum]]:
        part = met(self.make_advantage())
        needed = part.needs.annotations - part.needs.provides
        data = random_data(seed=5, count=5, needs=needed)
        return part, taught(data, part.needs.distributions)

    def _only_for_group_relative(self) -> None:
        if not self.make_advantage().is_group_relative:
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


def _numbers(row: Sequence[float | None]) -> list[float]:
    return [value for value in row if value is not None]


def _contents(data: Sequence[Datum]) -> list[dict[str, bytes]]:
    return [
        {
            name: np.asarray(values).tobytes()
            for name, values in {
                "logprobs": d.logprobs,
                "advantages": d.advantages,
                "weights": d.weights,
                **{f"annotations/{k}": v for k, v in d.annotations.items()},
            }.items()
        }
        for d in data
    ]


def _same(
    found: Sequence[Sequence[float | None]],
    wanted: Sequence[Sequence[float | None]],
    or_declare: str = "",
) -> None:
    for row, other in zip(found, wanted, strict=True):
        wanted_row = pytest.approx([math.nan if v is None else v for v in other], 1e-6, 1e-9, True)
        assert [math.nan if v is None else v for v in row] == wanted_row, (
            f"{row}, not {other}{or_declare}"
        )


def _same_advantages(found: Sequence[Datum], wanted: Sequence[Datum]) -> None:
    for datum, other in zip(found, wanted, strict=True):
        is_same = np.allclose(datum.advantages, other.advantages, rtol=1e-5, atol=1e-6)
        assert is_same, f"advantages {datum.advantages}, not {other.advantages}"
