"""On-policy distillation against double sums, the cookbook's formula and numbers worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    Trajectory,
)
from rlvr.testing import random_data
from rlvr_algos.advantages.opd import OpdAdvantage

TEACHER = "gpt2:somewhere"


def opd(group_size: int = 4, **options: Any) -> OpdAdvantage:
    """The advantage with a teacher, without vetted values."""
    config = OpdAdvantage.config_class(**{"teacher": TEACHER, **options})
    return OpdAdvantage(config, BuildContext(sampling=SamplingParams(group_size=group_size)))


def datum(credit: float, student: Sequence[float | None], teacher: Sequence[float]) -> Datum:
    """A datum whose tokens the policy wrote where `student` has a logprob."""
    mask = np.array([value is not None for value in student])
    return Datum(
        tokens=np.zeros(len(mask)),
        mask=mask,
        logprobs=[value or 0.0 for value in student],
        advantages=credit * mask,
        weights=mask / mask.sum(),
        annotations={"teacher": np.array(teacher, np.float32)},
    )


def own(data: Sequence[Datum]) -> list[list[float]]:
    """The advantages at the policy's tokens."""
    return [d.advantages[d.mask].tolist() for d in data]


def group(*values: float) -> ScoredGroup:
    """A group with these rewards."""
    return ScoredGroup(
        problem=Problem(id="p", prompt=()),
        trajectories=[Trajectory.from_text("p", str(v)) for v in values],
        outcomes=[Reward(value=v, score01=v) for v in values],
    )


def test_each_token_answers_for_itself_worked_by_hand() -> None:
    """
    Student -1, -2, -1 and teacher -3, -1, -1 nats: log-ratios 2, -1 and 0; credit 0.5.

    Half of them is taken off the credit: -0.5, 1.0 and 0.5.
    """
    d = datum(0.5, [None, -1, -2, None, -1], [9, -3, -1, 9, -1])

    assert own(opd(kl_penalty_coef=0.5).per_token([d])) == [pytest.approx([-0.5, 1.0, 0.5])]


def test_a_discount_looks_ahead_worked_by_hand() -> None:
    """
    Log-ratios 2, -1 and 4, of which the last stands two tokens after the second.

    With 1/2 a token: 4; -1 + 4/4 = 0; 2 + 0/2 = 2 (an environment's token counts as one step).
    """
    d = datum(0.0, [None, -1, -2, None, -1], [9, -3, -1, 9, -5])

    found = own(opd(kl_discount_factor=0.5).per_token([d]))

    assert found == [pytest.approx([-2.0, 0.0, -4.0])]


def test_the_reward_is_relative_to_its_group_and_weighed() -> None:
    """Rewards 1, 0, 0, 0 with weight 2: 2 * (r - 1/4); no deviation unless it is asked for."""
    assert opd(reward_coef=2.0)([group(1, 0, 0, 0)]) == [pytest.approx([1.5, -0.5, -0.5, -0.5])]
    normalised = opd(normalise_std=True, epsilon=1e-9)([group(1, 0, 0, 0)])
    assert normalised == [pytest.approx([1.5, -0.5, -0.5, -0.5])]  # the deviation is 1/2


def test_pure_distillation_needs_no_group() -> None:
    """Without the reward's part a single answer teaches: by its teacher."""
    part = opd(group_size=1, reward_coef=0.0)

    assert part([group(1), group(0, 1)]) == [[0.0], [0.0, 0.0]]
    with pytest.raises(ConfigError, match="groups of one"):
        opd(group_size=1, reward_coef=1.0)


def brute_force(d: Datum, coef: float, gamma: float, credit: float) -> list[float]:
    """Each token's sum over all later ones, by two loops over positions."""
    ratio = [
        float(d.logprobs[s]) - float(d.annotations["teacher"][s]) if d.mask[s] else 0.0
        for s in range(len(d.tokens))
    ]
    return [
        credit - coef * sum(gamma ** (s - t) * ratio[s] for s in range(t, len(ratio)))
        for t in np.flatnonzero(d.mask)
    ]


@given(
    st.integers(0, 10**6),
    st.floats(0.01, 3.0),
    st.one_of(st.just(0.0), st.just(1.0), st.floats(0.01, 0.99)),
)
@settings(deadline=None)
def test_is_the_discounted_sum(seed: int, coef: float, gamma: float) -> None:
    """Against two loops, on ragged data of several turns."""
    data = random_data(seed=seed, needs={"teacher"})

    found = own(opd(kl_penalty_coef=coef, kl_discount_factor=gamma).per_token(data))

    for d, row in zip(data, found, strict=True):
        credit = float(d.advantages[d.mask][0])
        assert row == pytest.approx(brute_force(d, coef, gamma, credit), rel=1e-4, abs=1e-4)


def cookbook(
    sampled: NDArray[Any], teacher: NDArray[Any], mask: NDArray[Any], coef: float, gamma: float
) -> NDArray[Any]:
    """
    What tinker-cookbook's `incorporate_kl_penalty` adds to the advantages of a datum.

    The masked difference, times minus the coefficient; above a discount of 0 its discounted sum
    over the positions that follow.
    """
    added = -coef * mask * ((sampled - teacher) * mask)
    if gamma > 0:
        added = np.array(
            [sum(gamma**k * added[i + k] for k in range(len(added) - i)) for i in range(len(added))]
        )
    return added


@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
@settings(deadline=None)
def test_is_the_cookbooks_formula(seed: int, gamma: float) -> None:
    """With reward minus mean as its credit, the advantages are those of `train_on_policy`."""
    data = random_data(seed=seed, needs={"teacher"})

    for d, refined in zip(data, opd(kl_discount_factor=gamma).per_token(data), strict=True):
        wanted = d.advantages + cookbook(
            d.logprobs, d.annotations["teacher"], d.mask.astype(float), 1.0, gamma
        )
        assert refined.advantages[d.mask] == pytest.approx(wanted[d.mask], rel=1e-4, abs=1e-4)


def test_a_student_like_its_teacher_learns_from_the_reward_alone() -> None:
    """Where both agree nothing is taken off."""
    d = datum(0.75, [None, -1, -2], [0, -1, -2])

    assert own(opd(kl_discount_factor=1.0).per_token([d])) == [[0.75, 0.75]]


def test_an_absurd_token_is_bounded() -> None:
    """A log-ratio is cut at 20 nats, then the advantage at the clip; its share is told."""
    d = datum(0.0, [None, -0.5, -1.0], [0, -1e4, -1.25])
    part = opd(clip=5.0)

    refined = part.per_token([d])

    assert own(opd().per_token([d])) == [pytest.approx([-20.0, -0.25])]
    assert own(refined) == [pytest.approx([-5.0, -0.25])]
    assert part.metrics(refined) == {
        "teacher/kl": pytest.approx((20 + 0.25) / 2),
        "teacher/logprob": pytest.approx((-1e4 - 1.25) / 2),
        "advantage/clipped": 0.5,
    }


def test_both_kl_penalties_add_up() -> None:
    """The one to the reference (whole answers) and the one to the teacher (each token)."""
    d = datum(0.0, [None, -1, -1], [0, -2, -3])
    d = attrs.evolve(
        d, annotations={**d.annotations, "reference": np.array([0, -1.5, -1.25], np.float32)}
    )
    part = opd(kl_coef=2.0)

    assert part.needs.annotations == {"teacher", "reference"}
    assert own(part.per_token([d])) == [pytest.approx([-2 * 0.75 - 1, -2 * 0.25 - 2])]


def test_the_kl_of_whole_answers_is_taken_off_the_reward_by_hand() -> None:
    """
    Two answers to p: rewards 1 and 0 (credit 1/2 and -1/2), KLs 2 - 1 = 1 and 3 nats; one to q.

    R = r - KL / 2 are 1/2 and -3/2, their mean -1/2: every token of the first gets 1, of the
    second -1. The only answer to q is its own mean: nothing. The reward's share goes along.
    """
    first = datum(0.5, [None, -1, -2], [9, -3, -1])
    second = datum(-0.5, [None, -1, -1], [9, -2, -3])
    alone = attrs.evolve(datum(0.0, [None, -1], [9, -5]), problem_id="q")
    part = opd(kl_in="reward", kl_penalty_coef=0.5)

    refined = part.per_token([first, alone, second])

    assert own(refined) == [
        pytest.approx([1.0, 1.0]),
        pytest.approx([0.0]),
        pytest.approx([-1.0, -1.0]),
    ]
    rewarded = [d.annotations["credit/reward"].tolist() for d in refined]
    assert rewarded == [[0, 0.5, 0.5], [0, 0], [0, -0.5, -0.5]]


def test_the_kl_in_the_reward_is_the_group_advantage_of_that_reward() -> None:
    """R_env - coef * KL, compared with its group: what advantage `group` makes of these rewards."""
    rng = np.random.default_rng(3)
    rewards, coef = rng.random(4), 0.7
    student, teacher = -rng.exponential(size=(4, 3)), -rng.exponential(size=(4, 3))
    kl = (student - teacher).sum(1)
    part = opd(kl_in="reward", kl_penalty_coef=coef)
    (credit,) = part([group(*rewards)])

    data = [
        datum(float(c or 0), [None, *s], [0, *t])
        for c, s, t in zip(credit, student, teacher, strict=True)
    ]

    shaped = rewards - coef * kl
    assert own(part.per_token(data)) == [
        pytest.approx([value] * 3, abs=1e-5) for value in shaped - shaped.mean()
    ]
    with pytest.raises(ConfigError, match="groups of one"):
        opd(group_size=1, reward_coef=0.0, kl_in="reward")


def test_the_rewards_share_is_bounded_like_the_whole() -> None:
    """The annotation that `opd.mode=supervised` learns from: clipped, without the teacher."""
    d = datum(7.0, [None, -1, -2], [9, -3, -1])

    (refined,) = opd(clip=5.0).per_token([d])

    assert refined.annotations["credit/reward"].tolist() == [0, 5, 5]
    assert own([refined]) == [[5, 5]]


def test_names_its_teacher() -> None:
    """One, under its own annotation; none where the penalty is off."""
    part = opd()
    off = opd(kl_penalty_coef=0.0, teacher="")

    assert (part.needs.teachers, part.needs.annotations) == ({"teacher": TEACHER}, {"teacher"})
    assert (off.needs.teachers, off.needs.annotations) == ({}, frozenset())
    d = datum(0.5, [None, -1], [0, -3])
    assert own(off.per_token([d])) == [[0.5]]
    assert off.metrics([d]) == {}


def test_a_missing_annotation_is_named() -> None:
    """Rather than a run that learns from zeros."""
    d = attrs.evolve(datum(0.0, [None, -1], [0, -1]), annotations={})

    with pytest.raises(BackendError, match="'teacher'"):
        opd().per_token([d])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"teacher": ""}, "--teacher hf:PATH"),
        ({"kl_penalty_coef": 0.0, "reward_coef": 0.0}, "one of them above 0"),
        ({"kl_penalty_coef": 0.0}, "nothing it says would count"),
        ({"kl_in": "reward", "normalise_std": True}, "advantage.normalise_std=false and"),
        ({"kl_in": "reward", "kl_discount_factor": 0.5}, "advantage.kl_discount_factor=0"),
    ],
)
def test_settings_that_teach_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    """Each with what to change."""
    with pytest.raises(ConfigError) as caught:
        opd(**options)

    assert said in str(caught.value)
