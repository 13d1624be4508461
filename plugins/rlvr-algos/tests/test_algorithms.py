"""The algorithms: names of parts that exist, and values within their options."""

from __future__ import annotations

import attrs
import pytest

from rlvr.specs import AlgorithmSpec
from rlvr_algos import plugin
from rlvr_algos.config import GroupAdvantageConfig, GrpoConfig

ALGORITHMS = {spec.name: spec for spec in plugin.rlvr_algorithms()}


@pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda spec: spec.name)
def test_parts_are_offered(algorithm: AlgorithmSpec) -> None:
    """Loss and advantage of an algorithm come from this plugin."""
    assert algorithm.loss in {spec.name for spec in plugin.rlvr_losses()}
    assert algorithm.advantage in {spec.name for spec in plugin.rlvr_advantages()}


def test_vetted_values_build() -> None:
    """What grpo vets passes the validators of their records."""
    values = ALGORITHMS["grpo"].values
    for namespace, record in (("grpo", GrpoConfig), ("advantage", GroupAdvantageConfig)):
        own = {
            key.split(".")[1]: value
            for key, value in values.items()
            if key.split(".")[0] == namespace
        }
        built = record(**own)
        assert attrs.asdict(built).items() >= own.items()


def test_grpo_runs_no_reference_by_default() -> None:
    """The vetted values leave the KL out: one model in memory, one forward pass less."""
    assert ALGORITHMS["grpo"].values["grpo.kl_coef"] == 0.0
