"""Settings that do not go together: refused with the fix, or said."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from rlvr import ConfigError, Needs, SamplingParams
from rlvr.assembly.compatibility import check_together
from rlvr.config.core import TrainOptions
from rlvr.testing.fakes import ReinforceLoss


class Part(ReinforceLoss):
    """A loss or a sampler, as far as it is asked."""

    def __init__(
        self, *, weighted: bool = True, draws: bool = True, needs: Sequence[str] = ()
    ) -> None:
        self.importance_weighted = weighted
        self.draws_from_policy = draws
        self.needs = Needs(annotations=needs)


def check(
    *,
    weighted: bool = True,
    draws: bool = True,
    staleness: int = 0,
    minibatches: int = 1,
    needs: Sequence[str] = (),
    credit_needs: Sequence[str] = (),
    **params: Any,
) -> list[str]:
    """The events that were logged."""
    part: Any = Part(weighted=weighted, draws=draws, needs=needs)
    advantage: Any = Part(needs=credit_needs)
    with structlog.testing.capture_logs() as logs:
        check_together(
            sampler=part,
            params=SamplingParams(**{"group_size": 4, **params}),
            advantage=advantage,
            loss=part,
            train=TrainOptions(problems=3, minibatches=minibatches),
            max_staleness=staleness,
        )
    return [line["event"] for line in logs]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"top_p": 0.9}, "set sampler.top_p=1 sampler.top_k=0"),
        ({"top_k": 5}, "set sampler.top_p=1 sampler.top_k=0"),
        ({"draws": False}, "use sampler 'group'"),
        ({"needs": ["reference"], "credit_needs": ["value", "reference"]}, "one of the two to 0"),
        ({"minibatches": 13}, "set train.minibatches to 12 or less"),
        ({"group_size": 10**6}, "train.problems=3 times sampler.group_size=1000000, and at most"),
        ({"staleness": 10**12}, "times 1000000000001 steps (run.max_staleness), and at most"),
    ],
)
def test_what_cannot_mean_what_it_says_is_refused(settings: Any, said: str) -> None:
    """Each with the option to change."""
    with pytest.raises(ConfigError) as caught:
        check(**settings)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"top_p": 0.9, "weighted": False},
        {"draws": False, "weighted": False, "group_size": 1, "minibatches": 3},
        {"minibatches": 12},
        {"needs": ["policy", "reference"], "credit_needs": ["policy"]},
        {"staleness": 2},
        {"staleness": 1000},
        {"staleness": 10**6, "draws": False, "weighted": False},
        {"staleness": 2, "draws": False, "weighted": False},
    ],
)
def test_what_goes_together_is_left_alone(settings: Any) -> None:
    """Nothing is refused and nothing said, staleness with references included."""
    assert check(**settings) == []


def test_stale_samples_without_a_ratio_are_said() -> None:
    """The policy's own samples, learnt from late and uncorrected, are worth a warning."""
    assert check(staleness=1, weighted=False) == ["stale_samples_uncorrected"]
