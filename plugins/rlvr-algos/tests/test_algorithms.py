"""The algorithms: names of parts that exist, and values within their options."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

from rlvr import (
    AlgorithmSpec,
    BuildContext,
    PartSpec,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    Segment,
    Trajectory,
)
from rlvr.plugins.resolve import load_object
from rlvr.training.minibatches import weigh
from rlvr.training.stages import datum_of
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


def test_dr_grpo_weighs_every_token_of_several_turns_alike() -> None:
    """
    Hand-worked: turns of 2 and 3 tokens, reward 1, and one of 4 tokens, reward 0; at most 4 a turn.

    arXiv:2503.20783, section 3.2: advantages r - mean, here 1/2 and -1/2, neither divided by a
    deviation nor by the answer's own length; the divisor is the budget of all completions, 3 turns
    of 4 tokens. On policy the gradient of a token's logprob is -A / 12.
    """
    spec = ALGORITHMS["dr-grpo"]
    advantage, loss = (
        part(kind[name], dict(spec.values))
        for kind, name in ((ADVANTAGES, spec.advantage), (LOSSES, spec.loss))
    )
    turns = [[2, 3], [4]]
    group = ScoredGroup(
        problem=Problem(id="p", prompt=()),
        trajectories=[
            Trajectory(
                problem_id="p",
                segments=[
                    segment
                    for length in lengths
                    for segment in (
                        Segment(author="env", tokens=[7]),
                        Segment(author="policy", tokens=[1] * length, logprobs=[-1.0] * length),
                    )
                ],
            )
            for lengths in turns
        ],
        outcomes=[Reward(value=1.0, score01=1.0), Reward(value=0.0, score01=0.0)],
    )
    (credit,) = advantage([group])
    data = weigh(
        [datum_of(t, a) for t, a in zip(group.trajectories, credit, strict=True)],
        str(spec.values["train.aggregation"]),
        4,
    )
    logprobs = [torch.tensor(d.logprobs, requires_grad=True) for d in data]
    loss(data, logprobs, {})[0].backward()

    first, second = [(row.grad * 24).tolist() for row in logprobs]
    assert first == pytest.approx([0, -1, -1, 0, -1, -1, -1])
    assert second == pytest.approx([0, 1, 1, 1, 1])
