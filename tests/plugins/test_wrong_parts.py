"""What a part's method may give by mistake: an error that names part, method and value."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from rlvr import PartError, Policy, SamplingParams, SingleTurn
from rlvr.border.abilities import adapted_by, metrics_of
from rlvr.border.kinds import curriculum_of
from rlvr.border.promises import (
    drawer_of,
    logprobs_of,
    policy_of,
    reason_of,
    score_of,
    unsupported_by,
)
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.rollout import rollout, with_stop_texts
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss, ScriptedPolicy, TinyBackend, ToyTask
from rlvr.testing.fakes.data import random_data
from rlvr.training.stages import weighed

DATA = random_data(seed=1, count=2, needs=())
PROBLEM = next(iter(ToyTask().problems("train")))
PARAMS = SamplingParams(max_tokens=2)
WRONG: dict[str, Any] = {
    "nothing": None, "truth": True, "number": 1.5, "text": "ab", "numbers": [1],
    "record": {"a": object()}, "object": object(), "class": int, "nested": [[None], [None]],
}  # fmt: skip
RIGHT = {
    ("with_stop_texts", "record"): True,
    ("reason_of", "text"): True,
    ("why_empty", "text"): True,
    ("curriculum_of", "nothing"): True,
    ("score_of", "nothing"): True,
    ("version", "truth"): True,
    ("digest", "text"): True,
}


def giving(part: Any, method: str, value: Any) -> Any:
    """A part of its class whose method gives this; what is awaited in its kind is awaited."""
    if inspect.iscoroutinefunction(getattr(part, method)):

        async def wrong(self: Any, *given: Any) -> Any:
            return value
    else:

        def wrong(self: Any, *given: Any) -> Any:  # type: ignore[misc]
            return value

    part.__class__ = type("Mine", (type(part),), {method: wrong, "__module__": "rlvr_mine"})
    return part


class Strange(TinyBackend):
    """Its policy says of itself what it is told."""

    def __init__(self, **told: Any) -> None:
        super().__init__()
        self._told = told

    async def policy(self) -> Any:
        policy = await super().policy()
        vars(policy).update(self._told)
        return policy


def policy() -> ScriptedPolicy:
    return ScriptedPolicy(["a"])


CALLS: dict[str, Callable[[Any], Any]] = {
    "reason_of": lambda v: reason_of(
        giving(ToyTask(), "why_unanswerable", v), "why_unanswerable", PROBLEM
    ),
    "why_empty": lambda v: reason_of(giving(GroupSampler(), "why_empty", v), "why_empty"),
    "unsupported_by": lambda v: unsupported_by(giving(ToyTask(), "unsupported", v)),
    "curriculum_of": lambda v: curriculum_of(giving(ToyTask(), "curriculum", v)),
    "logprobs_of": lambda v: logprobs_of(giving(TinyBackend(), "logprobs", v), DATA, "policy"),
    "score_of": lambda v: score_of(giving(policy(), "score", v), DATA),
    "drawer_of": lambda v: drawer_of(giving(GroupSampler(), "drawn_by", v), policy()),
    "metrics_of": lambda v: metrics_of(giving(CentredAdvantage(), "metrics", v), DATA),
    "adapted_by": lambda v: adapted_by(giving(ReinforceLoss(), "adapted", v), {}, {}),
    "weighed": lambda v: weighed(giving(ReinforceLoss(), "token_weights", v), DATA),
    "with_stop_texts": lambda v: with_stop_texts(
        PARAMS, giving(SingleTurn(PROBLEM.prompt), "stop_texts", v)
    ),
    "generate": lambda v: rollout(giving(policy(), "generate", v), ToyTask(), PROBLEM, PARAMS),
    "version": lambda v: policy_of(Strange(version=v)),
    "digest": lambda v: policy_of(Strange(digest=v)),
}
METHODS = {
    "reason_of": "why_unanswerable", "unsupported_by": "unsupported", "weighed": "token_weights",
    "curriculum_of": "curriculum", "logprobs_of": "logprobs", "score_of": "score",
    "drawer_of": "drawn_by", "metrics_of": "metrics", "adapted_by": "adapted",
    "with_stop_texts": "stop_texts",
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_return_names_its_part_and_method(call: str, wrong: str) -> None:
    """Nothing else than what is promised goes on into the run, whatever it could pass for."""

    def asked() -> None:
        found = CALLS[call](WRONG[wrong])
        if inspect.iscoroutine(found):
            asyncio.run(found)

    if RIGHT.get((call, wrong)):
        asked()
        return
    with pytest.raises(PartError, match=f"did not keep its promise: .*{METHODS.get(call, '')}"):
        asked()


def test_a_policy_that_says_no_version_is_named() -> None:
    """Not a bug of ours, though nothing asks for the version before the rollouts do."""

    class Bare(Policy):
        digest, context_length = "d", 8

        async def generate(self, request: Any) -> Any:
            raise NotImplementedError

    with pytest.raises(PartError, match=r"policy .*Bare did not keep[^/]*'version'"):
        asyncio.run(policy_of(giving(TinyBackend(), "policy", Bare())))


def test_the_policy_is_blamed_for_its_completion() -> None:
    """Not the sampler that asked it."""
    mute = giving(policy(), "generate", "text")
    with pytest.raises(PartError, match=r"^policy rlvr_mine.Mine .*generate for problem "):
        asyncio.run(rollout(mute, ToyTask(), PROBLEM, PARAMS))
