"""Shaping, filters, limits and the advantages rloo and best, with numbers worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr import (
    BuildContext,
    ConfigError,
    Finish,
    Message,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    Segment,
    Trajectory,
)
from rlvr.testing import ToyTask, random_data
from rlvr.training.stages import collate
from rlvr_algos.advantages.best import BestAdvantage
from rlvr_algos.advantages.credit import Credit
from rlvr_algos.advantages.global_batch import GaeAdvantage, GlobalAdvantage
from rlvr_algos.advantages.group import GroupAdvantage, RlooAdvantage

CONTEXT = BuildContext(sampling=SamplingParams(max_tokens=100, group_size=4))
Answer = tuple[float, int] | tuple[float, int, Finish]


def answer(length: int, finish: Finish) -> Trajectory:
    """A trajectory of `length` tokens of the policy."""
    policy = Segment(author="policy", tokens=[1] * length, logprobs=[-1.0] * length)
    return Trajectory(problem_id="p", segments=[policy], finish=finish)


def group(answers: Sequence[Answer]) -> ScoredGroup:
    """Answers (reward, length, finish) to one problem; score01 is 1 for rewards of 1 or more."""
    return ScoredGroup(
        problem=Problem(id="p", prompt=[Message(role="user", content="?")]),
        trajectories=[answer(a[1], a[2] if len(a) == 3 else "stop") for a in answers],
        outcomes=[Reward(value=a[0], score01=float(a[0] >= 1)) for a in answers],
    )


def centred(**options: Any) -> GroupAdvantage:
    """Reward minus mean, so that shaped rewards can be read off."""
    options = {"normalise_std": False, **options}
    return GroupAdvantage(GroupAdvantage.config_class(**options), CONTEXT)


def of_task(task: str, rewards: Sequence[float]) -> ScoredGroup:
    """A group whose problem has the label `task`."""
    found = group([(reward, 3) for reward in rewards])
    return attrs.evolve(found, problem=attrs.evolve(found.problem, labels={"task": task}))


def data_of(groups: Sequence[ScoredGroup], part: Credit) -> list[list[float]]:
    """The advantages of all tokens, as a step computes them: call, collate, refine."""
    data = part.per_token(collate(groups, part(groups), ToyTask()))
    return [datum.advantages[datum.mask].tolist() for datum in data]


@pytest.mark.parametrize("make", [GlobalAdvantage, GroupAdvantage], ids=lambda m: m.name)
def test_tasks_of_different_scale_are_whitened_apart(make: type[Credit]) -> None:
    """
    Each task gets what it would get alone, though one's rewards are a thousand times the other's.

    Together the small one would all but vanish.
    """
    small = [of_task("policy", [0.1, 0.2, 0.4, 0.1]), of_task("policy", [0.3, 0.2, 0.2, 0.0])]
    large = [of_task("environment", [100.0, 900.0, 400.0, 0.0])]
    options = {"whiten": True, **({} if make is GlobalAdvantage else {"normalise_std": False})}
    apart = make(make.config_class(whiten_by="task", **options), CONTEXT)
    together = make(make.config_class(**options), CONTEXT)

    found = data_of([small[0], large[0], small[1]], apart)

    assert found[:4] + found[8:] == data_of(small, together)
    assert found[4:8] == data_of(large, together)
    mixed = data_of([small[0], large[0], small[1]], together)
    assert np.ptp(mixed[:4]) < 0.01 < 1 < np.ptp(found[:4])


def test_gae_is_whitened_apart_too() -> None:
    """Mean 0 and deviation 1 in each task's tokens, worked out of the unwhitened estimates."""
    data = [
        attrs.evolve(datum, labels={"task": "ab"[i % 2]})
        for i, datum in enumerate(random_data(seed=4, needs={"value"}))
    ]
    plain = GaeAdvantage(GaeAdvantage.config_class(whiten=False), CONTEXT).per_token(data)
    found = GaeAdvantage(GaeAdvantage.config_class(whiten_by="task"), CONTEXT).per_token(data)

    for task in "ab":
        before, after = (
            np.concatenate([d.advantages[d.mask] for d in some if d.labels["task"] == task])
            for some in (plain, found)
        )
        wanted = (before - before.mean()) / before.std(ddof=1)
        assert after == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_a_label_without_whitening_is_refused() -> None:
    """It would do nothing."""
    with pytest.raises(ConfigError, match=r"whiten_by=task(.|\n)*whiten=false"):
        centred(whiten_by="task")


@given(rewards=st.lists(st.floats(-10, 10), min_size=2, max_size=8))
def test_rloo_leaves_each_one_out(rewards: list[float]) -> None:
    """Reward minus the mean of the other rewards, computed by leaving each out in turn."""
    (found,) = RlooAdvantage(None, CONTEXT)([group([(r, 1) for r in rewards])])

    wanted = [
        reward - np.mean([other for j, other in enumerate(rewards) if j != i])
        for i, reward in enumerate(rewards)
    ]
    assert found == pytest.approx(wanted, abs=1e-9)


def test_rloo_worked_by_hand() -> None:
    """Rewards 1, 0, 0: the first beats a mean of 0 by 1, the others miss one of 1/2."""
    assert RlooAdvantage(None, CONTEXT)([group([(1, 1), (0, 1), (0, 1)])]) == [[1.0, -0.5, -0.5]]


def test_length_penalty_is_per_thousand_tokens() -> None:
    """Both right, 100 and 300 tokens at 0.5 a thousand: 0.95 and 0.85, 0.05 from their mean."""
    (found,) = centred(length_penalty=0.5)([group([(1, 100), (1, 300)])])

    assert found == pytest.approx([0.05, -0.05])


def test_overlong_penalty_grows_over_the_buffer() -> None:
    """Limit 100, buffer a fifth, penalty 2: up to 80 tokens free, at 90 it is 1, at 100 it is 2."""
    (found,) = centred(overlong_buffer=0.2, overlong_penalty=2.0)(
        [group([(0, 10), (0, 80), (0, 90), (0, 100)])]
    )

    assert found == pytest.approx([0.75, 0.75, -0.25, -1.25])


def test_a_budget_too_small_for_a_buffer_has_none() -> None:
    """A fifth of four tokens is no token: answers that fill the budget cost nothing."""
    context = BuildContext(sampling=SamplingParams(max_tokens=4, group_size=2))
    config = GroupAdvantage.config_class(normalise_std=False, overlong_buffer=0.2)

    assert GroupAdvantage(config, context)([group([(1, 4), (0, 1)])]) == [[0.5, -0.5]]


def test_truncated_answers_can_be_masked() -> None:
    """A cut answer stays in the mean (1/3 here) and leaves the training data."""
    cut = group([(1, 5), (0, 100, "length"), (0, 5)])

    (kept,) = centred()([cut])
    (masked,) = centred(truncated="mask")([cut])

    assert kept == pytest.approx([2 / 3, -1 / 3, -1 / 3])
    assert masked == [kept[0], None, kept[2]]


def test_truncated_answers_can_be_penalised() -> None:
    """Taken off the reward before the mean: 1 and 1 - 0.5."""
    cut = group([(1, 5), (1, 100, "length")])

    (found,) = centred(truncated="penalise", truncated_penalty=0.5)([cut])

    assert found == pytest.approx([0.25, -0.25])


def test_clip_limits_both_sides() -> None:
    """Advantages 2.25 and -0.75 with a clip of 1 become 1 and -0.75."""
    (found,) = centred(clip=1.0)([group([(3, 1), (0, 1), (0, 1), (0, 1)])])

    assert found == [1.0, -0.75, -0.75, -0.75]


def test_whitening_is_over_the_whole_step() -> None:
    """Centred 1, -1 and 3, -3: mean 0, sample deviation sqrt(20 / 3), shared by both groups."""
    found = centred(whiten=True)([group([(2, 1), (0, 1)]), group([(6, 1), (0, 1)])])

    scale = (20 / 3) ** 0.5
    wanted = [[1 / scale, -1 / scale], [3 / scale, -3 / scale]]
    assert [list(row) for row in found] == [pytest.approx(row, rel=1e-5) for row in wanted]


def test_groups_of_equal_verdicts_are_dropped_if_asked() -> None:
    """By verdict, not by shaped reward: right answers of different lengths are still all right."""
    equal, mixed = group([(1, 5), (1, 90)]), group([(1, 5), (0, 5)])
    dropping = centred(drop_equal=True, refills=3, length_penalty=1.0)

    assert [dropping.keep(equal), dropping.keep(mixed)] == [False, True]
    assert dropping.refill_limit == 3
    assert centred().keep(equal)
    assert centred().refill_limit == 0


def test_best_takes_the_first_of_the_best_right_answers() -> None:
    """Right answers 1, 1.5 and 1.5: the first 1.5 is learned; of wrong ones none is."""
    best = BestAdvantage(BestAdvantage.config_class(refills=2), CONTEXT)
    right = group([(1, 5), (1.5, 5), (0.9, 5), (1.5, 5)])
    wrong = group([(0.9, 5), (0, 5)])

    assert best([right, wrong]) == [[None, 1.0, None, None], [None, None]]
    assert [best.keep(right), best.keep(wrong)] == [True, False]
    assert best.refill_limit == 2


def test_best_heeds_threshold_length_and_truncation() -> None:
    """Threshold 0: the best of any. Of right ones the shorter, and no cut one, if asked."""
    wrong = group([(0.2, 5), (0.9, 5)])
    right = group([(1, 90), (1, 5), (1, 1, "length")])

    def best(**options: Any) -> list[list[float | None]]:
        return BestAdvantage(BestAdvantage.config_class(**options), CONTEXT)([wrong, right])

    assert best(threshold=0.0)[0] == [None, 1.0]
    assert best(length_penalty=0.1, truncated="mask")[1] == [None, 1.0, None]


@pytest.mark.parametrize(
    ("part", "options", "sampling", "fix"),
    [
        (GroupAdvantage, {}, SamplingParams(group_size=1), "sampler.group_size=8"),
        (RlooAdvantage, {}, SamplingParams(group_size=1), r"--algo ppo, reinforce\+\+ or sft"),
        (BestAdvantage, {}, SamplingParams(group_size=1), "sampler.group_size=8"),
        (GlobalAdvantage, {"drop_equal": True}, SamplingParams(group_size=1), "group_size=8"),
        (GroupAdvantage, {"refills": 2}, None, "advantage.drop_equal=true"),
        (GroupAdvantage, {"overlong_buffer": 0.5}, None, "advantage.overlong_buffer=0"),
        (GroupAdvantage, {"truncated": "penalise"}, None, "advantage.truncated_penalty=0.5"),
        (RlooAdvantage, {"truncated_penalty": 0.5}, None, "advantage.truncated=penalise"),
        (GaeAdvantage, {"kl_target": 0.1}, None, "advantage.kl_coef=0.01"),
    ],
    ids=str,
)
def test_contradictions_are_refused_with_the_fix(
    part: type[Credit], options: dict[str, Any], sampling: SamplingParams | None, fix: str
) -> None:
    """When the part is built, so before anything is sampled; the message says what to set."""
    with pytest.raises(ConfigError, match=fix):
        part(part.config_class(**options), BuildContext(sampling=sampling))


@pytest.mark.parametrize("part", [GlobalAdvantage, GaeAdvantage], ids=lambda p: p.name)
def test_groups_of_one_are_enough_where_no_group_is_compared(part: type[Credit]) -> None:
    """`global` and `gae` take a single answer a problem and train on it."""
    found = part(None, BuildContext(sampling=SamplingParams(group_size=1)))([group([(0.5, 3)])])

    assert found == [[0.5]]


def test_whitening_by_a_label_that_no_problem_has_is_refused() -> None:
    """A misspelt label would whiten everything together without a word."""
    advantage = GroupAdvantage(GroupAdvantage.config_class(whiten=True, whiten_by="tsak"), CONTEXT)
    with pytest.raises(ConfigError, match=r"whiten_by=tsak(.|\n)*task"):
        advantage.bounded([np.array([1.0, 2.0])], [{"task": "a"}])
