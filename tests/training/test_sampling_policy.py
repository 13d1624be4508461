"""The policy that follows the weights where steps overlap: all that it is asked goes on to them."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import Completion, GenerateRequest, Policy, SamplingParams
from rlvr.records.run_state import ProblemStream
from rlvr.testing.fakes import CharTokenizer
from rlvr.training.rollout_queue import RolloutQueue
from rlvr.training.sampling_policy import DECLARED, SamplingPolicy, _Following

METHODS = [
    name for name, _ in inspect.getmembers(Policy, inspect.isfunction) if not name.startswith("_")
]
TOKENIZER = CharTokenizer()
REQUEST = GenerateRequest(prompt=[1], params=SamplingParams(), seed=0)
GIVEN: dict[str, tuple[Any, ...]] = {
    "generate": (REQUEST,),
    "generate_many": ([REQUEST],),
    "rollout": (None, None, SamplingParams(), 3),
    "score": ([],),
    "export_weights": (Path("somewhere"),),
}


class Weights:
    """The weights of now, and which of their versions was asked for what."""

    def __init__(self) -> None:
        self.version = 1
        self.asked: list[tuple[str, int]] = []
        self.capabilities = SimpleNamespace(partial_rollouts=False)

    async def policy(self) -> Policy:
        return Exact(self)


class Exact(Policy):
    """Exactly these weights; every flag is set, every method says what it was asked."""

    is_strict = can_export = draws_on_server = makes_rollouts = True

    def __init__(self, weights: Weights) -> None:
        self.version, self.digest = weights.version, f"d{weights.version}"
        self.tokenizer = TOKENIZER
        self.context_length, self.image_processor = 7, None
        self._weights = weights

    async def _asked(self, name: str) -> None:
        await asyncio.sleep(0.05)
        assert self._weights.version == self.version, "the weights changed meanwhile"
        self._weights.asked.append((name, self.version))

    async def generate(self, request: GenerateRequest) -> Completion:
        await self._asked("generate")
        return Completion(tokens=[1], logprobs=[-1.0], text="", finish="stop")

    async def generate_many(self, requests: Any) -> list[Completion]:
        await self._asked("generate_many")
        return [Completion(tokens=[1], logprobs=[-1.0], text="", finish="stop")]

    async def rollout(self, *given: Any) -> Any:
        await self._asked("rollout")
        return given[-1]

    async def score(self, data: Any) -> Any:
        await self._asked("score")
        return [np.zeros(1, np.float32)]

    async def export_weights(self, directory: Path) -> None:
        await self._asked("export_weights")


@asynccontextmanager
async def following() -> Any:
    """The following policy, its queue and its weights."""
    weights = Weights()
    queue = RolloutQueue(per_step=1, staleness=1, steps=9, problem_stream=ProblemStream())
    recipe: Any = SimpleNamespace(backend=weights, sampler=SimpleNamespace(exports_weights=True))
    policy, _ = await SamplingPolicy(recipe=recipe, queue=queue).newest()
    assert isinstance(policy, _Following)
    yield policy, queue, weights


def test_it_declares_what_the_policy_declares() -> None:
    """All but that it is strict, which it is not: it waits."""

    async def work() -> None:
        async with following() as (policy, _, weights):
            told = await weights.policy()
            same = {name for name in DECLARED if getattr(policy, name) == getattr(told, name)}
            assert same == DECLARED - {"is_strict"}

    asyncio.run(work())


def test_every_ability_of_a_policy_is_tried_here() -> None:
    """A method that `Policy` gets is forwarded, and tried below."""
    assert set(METHODS) == set(GIVEN) == set(METHODS) & vars(_Following).keys()


@pytest.mark.parametrize("name", sorted(GIVEN))
def test_it_asks_the_newest_weights_which_stay_meanwhile(name: str) -> None:
    """Asked before and after an update; the update waits for what is under way."""

    async def work() -> None:
        async with following() as (policy, queue, weights):
            first = asyncio.create_task(getattr(policy, name)(*GIVEN[name]))
            await asyncio.sleep(0.01)
            async with queue.changing_weights():
                assert first.done()
                weights.version = 2
            assert policy.version == 1
            second = await getattr(policy, name)(*GIVEN[name])
            assert weights.asked == [(name, 1), (name, 2)]
            assert (policy.version, policy.digest) == (2, "d2")
            found = second if isinstance(second, list) else [second]
            if "generate" in name:
                assert [attrs.asdict(one)["versions"] for one in found] == [(2,)]

    asyncio.run(work())
