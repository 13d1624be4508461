"""KL in the reward, REINFORCE++ and GAE against double sums and numbers worked by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import BackendError, BuildContext, Datum
from rlvr.testing import random_data
from rlvr_algos.advantages.global_batch import GaeAdvantage, GlobalAdvantage
from rlvr_algos.advantages.group import GroupAdvantage
from rlvr_algos.config import GrpoConfig
from rlvr_algos.losses.grpo import GrpoLoss

CONTEXT = BuildContext()


def datum(rewards: float, mask: Sequence[bool], **columns: Sequence[float]) -> Datum:
    """A datum with the trajectory's number on the policy's tokens, and annotations (T,)."""
    logprobs = np.array(columns.pop("logprobs", np.zeros(len(mask))))
    return Datum(
        tokens=np.zeros(len(mask)),
        mask=mask,
        logprobs=logprobs,
        advantages=rewards * np.array(mask),
        weights=np.array(mask) / sum(mask),
        problem_id="p",
        annotations={name: np.array(v, np.float32) for name, v in columns.items()},
    )


def own(data: Sequence[Datum]) -> list[list[float]]:
    """The advantages at the policy's tokens."""
    return [d.advantages[d.mask].tolist() for d in data]


def token_rewards(d: Datum, beta: float) -> list[float]:
    """-beta * (log sampler - log reference) a token; the answer's reward on the last."""
    places = np.flatnonzero(d.mask)
    rewards = [
        -beta * float(d.logprobs[t] - d.annotations["reference"][t]) if beta else 0.0
        for t in places
    ]
    rewards[-1] += float(d.advantages[places[-1]])
    return rewards


def normalised(rows: Sequence[Sequence[float]], epsilon: float) -> list[list[float]]:
    """Over all numbers together, with NumPy's sample deviation."""
    flat = np.concatenate(rows)
    return [list((np.array(row) - flat.mean()) / (flat.std(ddof=1) + epsilon)) for row in rows]


def test_kl_in_the_reward_worked_by_hand() -> None:
    """
    Token KLs 0.1, 0.2 and 0.4, coefficient 1/2, advantage 1; an environment's token in between.

    Each token pays for itself and all later ones: 0.7, 0.6 and 0.4 nats, half of it.
    """
    d = datum(
        1.0,
        [False, True, True, False, True],
        logprobs=[0, -1, -1, 0, -1],
        reference=[9, -1.1, -1.2, 9, -1.4],
    )
    part = GroupAdvantage(GroupAdvantage.config_class(kl_coef=0.5), CONTEXT)

    assert part.needs.annotations == {"reference"}
    assert own(part.per_token([d])) == [pytest.approx([0.65, 0.7, 0.8])]


def test_without_a_kl_nothing_is_touched() -> None:
    """The same data come back, and no other model is asked for."""
    data = random_data()
    part = GroupAdvantage(None, CONTEXT)

    assert part.needs.annotations == frozenset()
    assert all(a is b for a, b in zip(part.per_token(data), data, strict=True))


@given(
    seed=st.integers(0, 10**6),
    discount=st.sampled_from([1.0, 0.9, 0.5]),
    beta=st.sampled_from([0.0, 0.1, 1.0]),
)
@settings(max_examples=40, deadline=None)
def test_global_equals_a_double_sum(seed: int, discount: float, beta: float) -> None:
    """The discounted sum of a token's and all later rewards, normalised over the step."""
    config = GlobalAdvantage.config_class(discount=discount, kl_coef=beta)
    part = GlobalAdvantage(config, CONTEXT)
    data = random_data(seed=seed, needs=part.needs.annotations)

    found = own(part.per_token(data))

    returns = []
    for d in data:
        rewards = token_rewards(d, beta)
        n = len(rewards)
        returns.append(
            [sum(discount ** (s - t) * rewards[s] for s in range(t, n)) for t in range(n)]
        )
    for row, wanted in zip(found, normalised(returns, config.epsilon), strict=True):
        assert row == pytest.approx(wanted, rel=1e-4, abs=1e-5)


def test_global_worked_by_hand() -> None:
    """Returns 1 on one token and 0 on three: mean 1/4, deviation 1/2, so 3/2 and -1/2."""
    part = GlobalAdvantage(None, CONTEXT)

    found = own(part.per_token([datum(1.0, [False, True]), datum(0.0, [True, True, True])]))

    assert found[0] == pytest.approx([1.5], rel=1e-5)
    assert found[1] == pytest.approx([-0.5] * 3, rel=1e-5)


def test_a_batch_of_equal_returns_gives_zeros() -> None:
    """Nothing is better than anything: exact zeros, and no rounding residue is blown up."""
    part = GlobalAdvantage(None, CONTEXT)

    assert own(part.per_token([datum(0.1, [True, True]), datum(0.1, [True])])) == [[0, 0], [0]]


@given(
    seed=st.integers(0, 10**6),
    discount=st.sampled_from([1.0, 0.9, 0.5]),
    decay=st.sampled_from([1.0, 0.95, 0.5, 0.0]),
    beta=st.sampled_from([0.0, 0.1]),
    is_white=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_gae_equals_a_double_sum(
    seed: int, discount: float, decay: float, beta: float, is_white: bool
) -> None:
    """A_t = sum_l (gamma lambda)^l delta_{t+l} over the policy's tokens, return = A + V."""
    options = {"discount": discount, "gae_lambda": decay, "kl_coef": beta, "whiten": is_white}
    config = GaeAdvantage.config_class(**options)
    part = GaeAdvantage(config, CONTEXT)
    data = random_data(seed=seed, needs=part.needs.annotations)

    found = part.per_token(data)

    rows = []
    for d, new in zip(data, found, strict=True):
        rewards = token_rewards(d, beta)
        values = [*d.annotations["value"][d.mask].tolist(), 0.0]
        n = len(rewards)
        deltas = [rewards[t] + discount * values[t + 1] - values[t] for t in range(n)]
        row = [
            sum((discount * decay) ** (s - t) * deltas[s] for s in range(t, n)) for t in range(n)
        ]
        rows.append(row)
        returns = new.annotations["return"]
        wanted = [a + v for a, v in zip(row, values, strict=False)]
        assert returns[d.mask].tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        assert not returns[~d.mask].any()
    wanted_rows = normalised(rows, config.epsilon) if is_white else rows
    for new_row, wanted in zip(own(found), wanted_rows, strict=True):
        assert new_row == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_gae_worked_by_hand() -> None:
    """
    Values 0.5, 0.8, reward 1, discount 1, lambda 1/2: deltas 0.3 and 0.2.

    Advantages 0.3 + 0.2 / 2 = 0.4 and 0.2; returns 0.9 and 1.
    """
    config = GaeAdvantage.config_class(gae_lambda=0.5, whiten=False)
    (found,) = GaeAdvantage(config, CONTEXT).per_token(
        [datum(1.0, [False, True, False, True], value=[7, 0.5, 7, 0.8])]
    )

    assert own([found]) == [pytest.approx([0.4, 0.2])]
    assert found.annotations["return"].tolist() == pytest.approx([0, 0.9, 0, 1.0])


def test_lambda_one_is_return_minus_value() -> None:
    """With lambda 1 and discount 1 the critic's estimates cancel but for the token's own."""
    config = GaeAdvantage.config_class(gae_lambda=1.0, whiten=False)
    part = GaeAdvantage(config, CONTEXT)
    data = random_data(seed=9, needs={"value"})

    for old, new in zip(data, part.per_token(data), strict=True):
        reward = float(old.advantages[old.mask][-1])
        wanted = reward - old.annotations["value"][old.mask]
        assert new.advantages[old.mask] == pytest.approx(wanted, abs=1e-5)
        assert new.annotations["return"][old.mask] == pytest.approx(reward, abs=1e-5)


def test_missing_values_are_an_error() -> None:
    """GAE without a critic says which annotation is missing, and of which problem."""
    with pytest.raises(BackendError, match=r"'value'(.|\n)*'p'"):
        GaeAdvantage(None, CONTEXT).per_token([datum(1.0, [True])])


@pytest.mark.parametrize(
    ("measured", "factor"),
    [(0.2, 1.02), (0.11, 1.01), (0.1, 1.0), (0.095, 0.995), (0.0, 0.98)],
)
def test_the_kl_weight_follows_its_target(measured: float, factor: float) -> None:
    """Target 0.1, horizon 10: the relative error, at most a fifth, times a tenth."""
    config = GrpoConfig(kl_coef=0.5, kl_target=0.1, kl_horizon=10.0)

    memory = GrpoLoss(config, CONTEXT).adapted({}, {"kl/reference": measured})

    assert memory == {"kl_coef": pytest.approx(0.5 * factor)}


@pytest.mark.parametrize("part", [GrpoLoss, GroupAdvantage, GaeAdvantage], ids=lambda p: p.name)
def test_what_is_recalled_is_used(part: Any) -> None:
    """The weight of the memory takes the option's place, in losses and in advantages."""
    config = part.config_class(kl_coef=0.5, kl_target=0.1)
    start = part(config, CONTEXT)
    memory = start.adapted({"kl_coef": 0.3}, {"kl/reference": 1.0})
    direct = part(attrs.evolve(config, kl_coef=memory["kl_coef"]), CONTEXT)
    data = random_data(seed=2, needs=start.needs.annotations)

    assert memory == {"kl_coef": pytest.approx(0.3 * 1.02)}
    again = start.with_memory(memory)
    if isinstance(again, GrpoLoss):
        torch = pytest.importorskip("torch")
        rows = [torch.tensor(d.logprobs) for d in data]
        assert again(data, rows, {})[0] == direct(data, rows, {})[0] != start(data, rows, {})[0]
    else:
        assert (
            own(again.per_token(data)) == own(direct.per_token(data)) != own(start.per_token(data))
        )


def test_a_fixed_weight_remembers_nothing() -> None:
    """Without a target, whatever the KL: no memory, and the same object is recalled."""
    loss = GrpoLoss(GrpoConfig(kl_coef=0.5), CONTEXT)

    assert loss.adapted({}, {"kl/reference": 9.0}) == {}
    assert loss.with_memory({}) is loss
