"""Admission, collation, credit, checks."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import (
    BackendError,
    Datum,
    Failed,
    Needs,
    Problem,
    Reward,
    ScoredGroup,
    Segment,
    Trajectory,
    Unscorable,
    check_data,
)
from rlvr.testing.fakes import ToyTask
from rlvr.training import stages

PROBLEM = Problem(id="p", prompt=())


def trajectory(logprobs: Sequence[float] = (-1.0, -2.0)) -> Trajectory:
    tokens = list(range(5, 5 + len(logprobs)))
    return Trajectory(
        problem_id="p",
        segments=[
            Segment(author="prompt", tokens=[1, 2]),
            Segment(author="policy", tokens=tokens, logprobs=logprobs),
            Segment(author="env", tokens=[3]),
            Segment(author="policy", tokens=[4], logprobs=[-0.5]),
        ],
    )


class Trainer:
    """Scores what it is shown with an offset from the sampler's logprobs."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[Any]:
        return [d.logprobs + self.offset * d.mask for d in data]


def test_a_datum_trains_the_policys_tokens_only() -> None:
    """The mask says who wrote what over several turns."""
    datum = stages.datum_of(trajectory(), advantage=2.0)

    assert datum.tokens.tolist() == [1, 2, 5, 6, 3, 4]
    assert datum.mask.tolist() == [False, False, True, True, False, True]
    assert datum.logprobs.tolist() == [0, 0, -1, -2, 0, -0.5]
    assert datum.advantages.tolist() == [0, 0, 2, 2, 0, 2]


def test_a_step_without_data_asks_nobody() -> None:
    """No trajectory was left: no backend is asked for what only an advantage makes."""
    nobody: Any = object()
    assert asyncio.run(stages.annotate(nobody, [], Needs(annotations={"return", "value"}))) == []


def test_what_was_not_scored_leaves_the_baseline() -> None:
    """Unscorable and failed trajectories reach neither advantage nor training."""
    group = ScoredGroup(
        problem=PROBLEM,
        trajectories=[trajectory()] * 4,
        outcomes=[
            Reward(value=1, score01=1),
            Failed(reason="x"),
            Unscorable(reason="y"),
            Reward(value=0, score01=0),
        ],
    )
    lonely = attrs.evolve(group, outcomes=[Reward(value=1, score01=1), *[Failed(reason="x")] * 3])

    (admitted,) = stages.admit([group, lonely], smallest=2)

    assert [r.value for r in admitted.rewards] == [1, 0]
    assert len(stages.collate([admitted], [[1.0, -1.0]], ToyTask())) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"advantages": [0.0, float("nan"), 0.0]}, "advantages holds a number that is not finite"),
        ({"logprobs": [0.0, 0.0]}, r"logprobs has shape \(2,\), tokens \(3,\)"),
        ({"tokens": [1, -2, 3]}, "a negative token id"),
        (
            {"annotations": {"reference": np.array([0.0, np.inf, 0.0])}},
            "annotation 'reference' holds",
        ),
    ],
)
def test_unfit_data_are_not_sent(change: dict[str, Any], said: str) -> None:
    """Checked before sent: the problem and the array are named."""
    zeros = [0.0, 0.0, 0.0]
    good = Datum(
        tokens=[1, 2, 3],
        mask=[False, True, True],
        logprobs=zeros,
        advantages=zeros,
        weights=zeros,
        problem_id="p7",
    )
    check_data([good])

    with pytest.raises(BackendError, match=said) as caught:
        check_data([good, attrs.evolve(good, **change)])
    assert "p7" in str(caught.value)
