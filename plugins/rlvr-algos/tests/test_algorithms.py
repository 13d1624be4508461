"""The algorithms: names of parts that exist, and values within their options."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from rlvr import AlgorithmSpec, BuildContext, PartSpec, SamplingParams
from rlvr.plugins.resolve import load_object
from rlvr_algos import plugin

ALGORITHMS = {spec.name: spec for spec in plugin.rlvr_algorithms()}
ADVANTAGES = {spec.name: spec for spec in plugin.rlvr_advantages()}
LOSSES = {spec.name: spec for spec in plugin.rlvr_losses()}
each = pytest.mark.parametrize("algorithm", ALGORITHMS.values(), ids=lambda spec: spec.name)


def part(spec: PartSpec, values: dict[str, Any]) -> Any:
    """The part, built as a run builds it from the algorithm's values."""
    own = {
        key.partition(".")[2]: value
        for key, value in values.items()
        if key.partition(".")[0] == spec.option_namespace
    }
    own |= {key.partition(".")[2]: "gpt2:x" for key in getattr(spec, "teachers", ())}
    config = load_object(spec.config, "algos")(**own) if spec.config else None
    sampling = SamplingParams(group_size=values["sampler.group_size"])
    return load_object(spec.target, "algos")(config, BuildContext(sampling=sampling))


def test_everything_the_field_asks_for_is_offered() -> None:
    """The names that people know."""
    assert set(ALGORITHMS) == {
        "grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce++", "ppo", "best-of-n",
        "sft",
    }  # fmt: skip


@each
def test_vetted_values_build_the_parts(algorithm: AlgorithmSpec) -> None:
    """Each value is an option of the core, the advantage or the loss, and contradicts no other."""
    parts = [ADVANTAGES[algorithm.advantage], LOSSES[algorithm.loss]]
    namespaces = {spec.option_namespace for spec in parts} | {"sampler", "train"}

    assert {key.partition(".")[0] for key in algorithm.values} <= namespaces
    for spec in parts:
        part(spec, dict(algorithm.values))


@each
def test_only_reinforce_plus_plus_runs_a_reference(algorithm: AlgorithmSpec) -> None:
    """Elsewhere one model is in memory; ppo asks for a critic."""
    values = dict(algorithm.values)
    advantage = part(ADVANTAGES[algorithm.advantage], values)
    loss = part(LOSSES[algorithm.loss], values)
    needs = advantage.needs.annotations | loss.needs.annotations

    wanted = {"reinforce++": {"reference"}, "ppo": {"value", "return"}}
    assert needs == wanted.get(algorithm.name, set())


def test_options_are_shared() -> None:
    """One advantage or loss in the place of another is given the same shared options."""
    for specs, shared in ((ADVANTAGES, "truncated"), (LOSSES, "kl_coef")):
        for spec in specs.values():
            if spec.config:
                assert shared in attrs.fields_dict(load_object(spec.config, "algos")), spec.name
