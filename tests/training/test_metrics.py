"""Numbers of a step: means that mean the same whatever the weights sum to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rlvr import Datum, Loss, Problem, Reward, ScoredGroup, Trajectory
from rlvr.training import metrics, minibatches, stages


def datum(length: int, **annotations: Any) -> Datum:
    mask = np.arange(length + 2) >= 2
    return Datum(
        tokens=np.arange(length + 2),
        mask=mask,
        logprobs=np.where(mask, -1.0, 0.0),
        advantages=np.where(mask, 2.0, 0.0),
        weights=mask.astype(float),
        annotations=annotations,
    )


class Summing:
    """A backend whose step gives one nat a token, weighted as losses do, and its own numbers."""

    async def update(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
        total = sum(float(d.weights.sum()) for d in data)
        return {"loss": 3.0, "kl/reference": total, "ratio/max": 7.0, "grad/norm": 5.0, "lr": 0.1}


class Unused(Loss):
    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("aggregation", ["token", "sequence", "fixed"])
def test_a_nat_a_token_is_one_whatever_the_aggregation(aggregation: str) -> None:
    """Weighted sums become means; the loss, maxima and the optimiser's numbers stay."""
    parts = minibatches.updates(
        [datum(3), datum(5), datum(2)],
        passes=1,
        minibatches=1,
        aggregation=aggregation,
        max_tokens=1000,
        seed=1,
    )
    backend: Any = Summing()
    (found,) = asyncio.run(stages.update(backend, parts, Unused()))
    assert found["kl/reference"] == pytest.approx(1.0, rel=1e-5)
    assert {k: v for k, v in found.items() if k != "kl/reference"} == {
        "loss": 3.0,
        "ratio/max": 7.0,
        "grad/norm": 5.0,
        "lr": 0.1,
    }


def test_data_without_weight_divide_by_nothing() -> None:
    """No token, no mean: the numbers stay as they came."""
    assert metrics.per_token({"kl/x": 0.0, "loss": 1.0}, 0.0) == {"kl/x": 0.0, "loss": 1.0}


def test_what_is_trained_on_is_described() -> None:
    """Tokens, credit, and the KL of the sampler to the reference, k3 by hand."""
    reference = np.full(5, -1.5)
    found = metrics.of_data([datum(3, reference=reference)])
    assert found["data/tokens"] == 3.0
    assert found["data/trajectories"] == 1.0
    assert (found["advantage/mean"], found["advantage/std"]) == (2.0, 0.0)
    assert found["kl/reference"] == pytest.approx(np.exp(-0.5) - 1 + 0.5)
    assert metrics.of_data([]) == {"data/trajectories": 0.0, "data/tokens": 0.0}
    assert "kl/reference" not in metrics.of_data([datum(3)])


def group(task: str, *values: float) -> ScoredGroup:
    labels = {"task": task} if task else {}
    return ScoredGroup(
        problem=Problem(id=f"{task}{values}", prompt=(), labels=labels),
        trajectories=[Trajectory(problem_id="p") for _ in values],
        outcomes=[Reward(value=v, score01=float(v == 1.0)) for v in values],
    )


def test_tasks_that_are_mixed_are_told_apart() -> None:
    """Reward, pass rate and groups without a direction of each value of the label `task`."""
    found = metrics.of_groups([group("a", 1.0, 0.0), group("a", 0.5, 0.5), group("b", 1.0, 1.0)])
    apart = {name: value for name, value in found.items() if name.startswith("task/")}
    assert apart == {
        "task/a/reward": 0.5,
        "task/a/pass": 0.25,
        "task/a/groups_equal": 0.5,
        "task/a/groups": 2.0,
        "task/b/reward": 1.0,
        "task/b/pass": 1.0,
        "task/b/groups_equal": 1.0,
        "task/b/groups": 1.0,
    }


def test_problems_of_one_task_have_no_further_numbers() -> None:
    """Without the label there is nothing to tell apart."""
    assert not [name for name in metrics.of_groups([group("", 1.0)]) if name.startswith("task/")]


def test_a_mean_over_one_type_of_token_counts_where_that_type_is() -> None:
    """By hand: two updates of 10 and 30 tokens, of which 4 and 0 are reasoning, then 6."""
    first = {"kl/reasoning": 1.0, "share/reasoning": 0.4, "kl": 1.0, "kl/max": 1.0}
    none = {"kl/reasoning": 0.0, "share/reasoning": 0.0, "kl": 2.0, "kl/max": 5.0}
    third = {"kl/reasoning": 3.0, "share/reasoning": 0.2, "kl": 4.0, "kl/max": 2.0}

    found = metrics.mean_over_updates([first, none, third], [10, 30, 30])
    assert found["kl/reasoning"] == pytest.approx((4 * 1.0 + 6 * 3.0) / 10)
    assert found["share/reasoning"] == pytest.approx((4 + 0 + 6) / 70)
    assert found["kl"] == pytest.approx((10 * 1.0 + 30 * 2.0 + 30 * 4.0) / 70)
    assert found["kl/max"] == 5.0

    same = metrics.mean_over_updates([first, none])
    assert (same["kl/reasoning"], same["share/reasoning"], same["kl"]) == (1.0, 0.2, 1.5)
    assert metrics.mean_over_updates([none, none])["kl/reasoning"] == 0.0
