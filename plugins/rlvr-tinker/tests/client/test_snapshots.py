"""Sampling clients of versions: kept for as long as somebody samples with them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.policy import TinkerPolicy
from rlvr_tinker.service.usage import Usage
from rlvr_tinker.training.snapshots import Samplers

END = 0


class Client:
    """Answers when it is let go."""

    def __init__(self, version: int) -> None:
        self.version = version
        self.asked: list[asyncio.Future[Any]] = []

    def sample(self, *_: Any) -> asyncio.Future[Any]:
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]

    def answer(self) -> None:
        sequence = SimpleNamespace(tokens=[END], logprobs=[-0.5], stop_reason="stop")
        for one in self.asked:
            if not one.done():
                one.set_result(SimpleNamespace(sequences=[sequence]))


class Trainer:
    """Weights whose saving can be held up."""

    def __init__(self) -> None:
        self.config, self.epoch, self.version, self.start = TinkerConfig(), 0, 0, "x"
        self.digest, self.client = "d", object()
        self.may_save = asyncio.Event()
        self.may_save.set()

    async def training(self) -> Any:
        return SimpleNamespace(save_weights_and_get_sampling_client=self._save)

    async def _save(self) -> Client:
        await self.may_save.wait()
        return Client(self.version)

    async def wait(self, request: Any, _doing: str) -> Any:
        return await request

    async def steadily(self, work: Callable[[], Awaitable[Any]], _doing: str) -> Any:
        return await work()


class Chars(CharTokenizer):
    """Letters, whose bytes are known."""

    has_bytes, stop_ids = True, frozenset({END})

    def bytes_of(self, token: int) -> bytes:
        return b"%d" % token


async def policy_of(samplers: Samplers) -> TinkerPolicy:
    tokenizer: Any = Chars()
    return TinkerPolicy(
        await samplers.newest(), samplers, tokenizer=tokenizer, context_length=99, usage=Usage()
    )


def asking(policy: TinkerPolicy, **changes: Any) -> asyncio.Task[Any]:
    request = GenerateRequest(prompt=[1], params=SamplingParams(max_tokens=2), seed=3)
    return asyncio.create_task(policy.generate(request))


@pytest.fixture(autouse=True)
def _sdk() -> None:
    pytest.importorskip("tinker", reason="the SDK is not installed")


def made() -> tuple[Samplers, Trainer]:
    trainer: Any = Trainer()
    return Samplers(trainer=trainer), trainer


def test_a_version_lives_while_a_rollout_holds_it() -> None:
    """However many updates come meanwhile; when nobody holds it, the service may forget it."""

    async def work() -> None:
        samplers, trainer = made()
        first = await policy_of(samplers)
        for version in range(1, 40):
            trainer.version = version
            await policy_of(samplers)
        assert set(samplers._made) == {(0, 0), (0, 39)}
        client = (await samplers.of(0)).client
        later = asking(first)
        await asyncio.sleep(0.01)
        client.answer()
        assert (await later).tokens.tolist() == [END]
        del first, later, client
        assert set(samplers._made) == {(0, 39)}
        with pytest.raises(BackendError, match="version 0 is gone"):
            await samplers.of(0)

    asyncio.run(work())


def test_a_version_that_is_being_saved_holds_up_no_earlier_one() -> None:
    """A rollout's next turn does not wait for the weights of the next step."""

    async def work() -> None:
        samplers, trainer = made()
        first = await policy_of(samplers)
        trainer.version = 1
        trainer.may_save.clear()
        newest = asyncio.create_task(samplers.newest())
        await asyncio.sleep(0.01)
        turn = asking(first)
        await asyncio.sleep(0.01)
        (await samplers.of(0)).client.answer()
        async with asyncio.timeout(5):
            assert (await turn).finish == "stop"
        assert not newest.done()
        trainer.may_save.set()
        assert (await newest).version == 1

    asyncio.run(work())


def test_one_request_of_many_is_cancelled_alone() -> None:
    """All are in flight at once; the others are answered."""

    async def work() -> None:
        samplers, _ = made()
        policy = await policy_of(samplers)
        client = (await samplers.of(0)).client
        asks = [asking(policy) for _ in range(5)]
        await asyncio.sleep(0.01)
        assert len(client.asked) == 5
        asks[2].cancel()
        await asyncio.sleep(0.01)
        assert [one.cancelled() for one in client.asked] == [False, False, True, False, False]
        client.answer()
        done = await asyncio.gather(*asks, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in done].count(True) == 1

    asyncio.run(work())
