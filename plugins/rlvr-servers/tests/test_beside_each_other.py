"""Many rollouts at the same time: as they end, cancelled alone, and while weights change."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlvr import BuildContext, Completion, GenerateRequest, SamplingParams, Trajectory
from rlvr.testing.fakes import CharTokenizer
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.fakes.toy import ToyTask
from rlvr_servers.backend import ServedBackend, ServerBackend
from rlvr_servers.chat_sampler import ChatSampler
from rlvr_servers.client.http import exchange
from rlvr_servers.config import ServerConfig, ServersConfig
from rlvr_servers.protocols.protocol import Drawn
from rlvr_servers.served_policy import FedPolicy
from rlvr_servers.server_sampler import VllmSampler

SOON_S = 10.0


async def until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(SOON_S):
        while not is_true():
            await asyncio.sleep(0.01)


class Stuck:
    """Holds one request up until it is let go."""

    def __init__(self) -> None:
        self.seen, self.free = threading.Event(), threading.Event()

    def hold(self) -> None:
        if not self.seen.is_set():
            self.seen.set()
            self.free.wait(60)


async def first_three(stream: AsyncGenerator[Trajectory]) -> list[int]:
    """Places of those that come while the fourth is held up; then nothing is left."""
    async with aclosing(stream), asyncio.timeout(SOON_S):
        found = [(await anext(stream)).index for _ in range(3)]
    assert len(asyncio.all_tasks()) == 1
    return found


def test_a_request_that_nobody_waits_for_is_cut() -> None:
    """Cancelled: its connection ends at once, so that the server may stop drawing."""
    asked, ended = asyncio.Event(), asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        asked.set()
        assert not await reader.read()  # the end of the connection
        ended.set()
        writer.close()

    async def work() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
            asking = exchange(url, key="", body={"a": 1}, timeout_s=60.0, is_local=True)
            task = asyncio.create_task(asking)
            await until(asked.is_set)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await until(ended.is_set)

    asyncio.run(work())


def test_chats_come_as_they_end_and_end_when_nobody_asks(server: Any) -> None:
    """One chat of four hangs: the other three come; then it is ended, too."""
    stuck = Stuck()
    server.decide = lambda _request, _n: stuck.hold() or server.Say("b")
    context = BuildContext(model=server.spec)

    async def work() -> list[int]:
        async with ServerBackend(ServerConfig(), context) as backend:
            task, params = ToyTask(turns=2), SamplingParams(group_size=4)
            (problem, *_) = task.problems("train")
            stream: Any = ChatSampler(None, context).sample(
                await backend.policy(), task, problem, params
            )
            return await first_three(stream)

    try:
        assert len(set(asyncio.run(work()))) == 3
    finally:
        stuck.free.set()


def test_served_rollouts_come_as_they_end_and_end_when_nobody_asks(
    double: Callable[..., Any], byte_model: Path
) -> None:
    """As chats: one completion of four hangs."""
    stuck = Stuck()
    server = double("vllm", byte_model)
    server.faults = lambda path, _r, _n: stuck.hold() if path == "/v1/completions" else None
    config, context = ServersConfig(), BuildContext(model=f"vllm:{server.url}#tiny")

    async def work() -> list[int]:
        async with ServedBackend(config, context) as backend, VllmSampler(config, context) as one:
            task, params = ToyTask(), SamplingParams(group_size=4, max_tokens=4)
            (problem, *_) = task.problems("train")
            stream: Any = one.sample(await backend.policy(), task, problem, params)
            return await first_three(stream)

    try:
        assert len(set(asyncio.run(work()))) == 3
    finally:
        stuck.free.set()


def test_one_request_at_a_time_serves_all_in_order(server: Any) -> None:
    """`servers.concurrency=1`: cancelled ones leave their place, and nobody waits for ever."""
    context = BuildContext(model=server.spec)
    server.decide = lambda _request, _n: server.Say("b", delay_s=0.05)

    async def work() -> list[int]:
        async with ServerBackend(ServerConfig(concurrency=1), context) as backend:
            policy, params = await backend.policy(), SamplingParams()
            task = ToyTask()
            (problem, *_) = task.problems("train")
            asks = [
                asyncio.create_task(policy.complete(problem.prompt, params, seed))
                for seed in range(6)
            ]
            await until(lambda: server.busy == 1)
            asks[0].cancel()  # under way
            asks[2].cancel()  # waiting
            async with asyncio.timeout(SOON_S):
                await asyncio.gather(*asks, return_exceptions=True)
            assert [ask.cancelled() for ask in asks] == [True, False, True, False, False, False]
            return [request["seed"] for request in server.requests]

    assert asyncio.run(work()) == [0, 1, 3, 4, 5]


# --- weights that change ----------------------------------------------------------------------


class Slow:
    """A protocol that draws when it is told to."""

    def __init__(self) -> None:
        self.asked: list[asyncio.Event] = []
        self.adapter = ""
        self.endpoint = SimpleNamespace(model="tiny", address=SimpleNamespace(base="here"))

    async def draw(self, *_: Any) -> Drawn:
        go = asyncio.Event()
        self.asked.append(go)
        await go.wait()
        return Drawn(tokens=[1], logprobs=[-1.0], is_stopped=True)


def fed(protocol: Any) -> FedPolicy:
    policy = FedPolicy(protocol, ScriptedPolicy(tokenizer=Chars()), context_length=64)
    policy.stand_for(ScriptedPolicy(["b"], version=1, digest="one"), "")
    return policy


class Chars(CharTokenizer):
    """Letters, whose bytes are known."""

    has_bytes = True

    def bytes_of(self, token: int) -> bytes:
        return self.decode([token]).encode()


def drawing(policy: FedPolicy) -> asyncio.Task[Completion]:
    request = GenerateRequest(prompt=[1, 2], params=SamplingParams(max_tokens=4), seed=0)
    return asyncio.create_task(policy.generate(request))


async def pushed(policy: FedPolicy, during: Callable[[], Awaitable[None]]) -> None:
    async with policy.resting():
        await during()
        policy.stand_for(ScriptedPolicy(["b"], version=2, digest="two"), "")


def test_weights_wait_for_requests_and_requests_for_weights() -> None:
    """No request is under way while they change; each completion names the version that drew it."""
    protocol = Slow()

    async def work() -> None:
        policy = fed(protocol)
        early = [drawing(policy) for _ in range(2)]
        await until(lambda: len(protocol.asked) == 2)
        is_pushing = asyncio.Event()
        may_end = asyncio.Event()

        async def during() -> None:
            is_pushing.set()
            await may_end.wait()

        push = asyncio.create_task(pushed(policy, during))
        await asyncio.sleep(0.05)
        late = drawing(policy)
        await asyncio.sleep(0.05)
        assert not is_pushing.is_set()
        assert len(protocol.asked) == 2  # behind the weights that wait
        early[0].cancel()
        protocol.asked[1].set()
        await until(is_pushing.is_set)
        assert len(protocol.asked) == 2
        may_end.set()
        await until(lambda: len(protocol.asked) == 3)
        protocol.asked[2].set()
        await push
        assert early[0].cancelled()
        assert (await early[1]).versions == (1,)
        assert (await late).versions == (2,)
        assert (policy.version, policy.digest) == (2, "two")

    asyncio.run(work())


class Letters:
    """A protocol that draws what is left of a text, and tells of each request when it is asked."""

    adapter = ""
    endpoint = SimpleNamespace(model="tiny", address=SimpleNamespace(base="here"))

    def __init__(self, text: str, asked: Callable[[int], None] = lambda number: None) -> None:
        self.ids, self.requests = Chars().encode(text), list[GenerateRequest]()
        self.asked = asked

    async def draw(self, request: GenerateRequest, _ends: Any) -> Drawn:
        self.requests.append(request)
        self.asked(len(self.requests))
        begun = len(request.prompt) - 2
        ids = self.ids[begun : begun + request.params.max_tokens]
        is_stopped = len(ids) < request.params.max_tokens
        return Drawn(tokens=ids, logprobs=[-1.0 - begun] * len(ids), is_stopped=is_stopped)


def drawn_in_slices(protocol: Letters, **params: Any) -> Completion:
    policy = FedPolicy(
        protocol, ScriptedPolicy(tokenizer=Chars()), context_length=12, slice_tokens=3
    )
    policy.stand_for(ScriptedPolicy(["b"], version=1, digest="one"), "")
    protocol.asked = lambda number: policy.stand_for(
        ScriptedPolicy(["b"], version=(number + 1) // 2, digest=str(number)), ""
    )
    request = GenerateRequest(prompt=[1, 2], params=SamplingParams(**params), seed=0)
    return asyncio.run(policy.generate(request))


@pytest.mark.parametrize(
    ("text", "params", "found", "finish", "versions"),
    [
        ("abcdefgh", {"max_tokens": 8}, "abcdefgh", "length", (1, 2)),
        ("abcdef", {"max_tokens": 6}, "abcdef", "length", (1,)),
        ("abcd", {"max_tokens": 8}, "abcd", "stop", (1,)),
        ("abc", {"max_tokens": 8}, "abc", "stop", (1,)),
        ("ab", {"max_tokens": 2}, "ab", "length", (1,)),
        ("abcdefgh", {"max_tokens": 8, "stop": ("cd",)}, "ab", "stop", (1,)),
        ("abcdefghijklmnop", {"max_tokens": 16}, "abcdefghij", "length", (1, 2)),
    ],
)
def test_a_completion_in_slices_goes_on_with_newer_weights(
    text: str, params: dict[str, Any], found: str, finish: str, versions: tuple[int, ...]
) -> None:
    """As one would be: to its length, its end, a stop text across slices, the context's end."""
    protocol = Letters(text)

    completion = drawn_in_slices(protocol, **params)

    assert (completion.text, completion.finish) == (found, finish)
    assert completion.versions == versions
    starts = [len(request.prompt) - 2 for request in protocol.requests]
    assert starts == list(range(0, 3 * len(starts), 3))
    assert len({request.seed for request in protocol.requests}) == len(starts)
    places = [-1.0 - start for start in starts for _ in range(3)][: len(completion.tokens)]
    assert completion.logprobs.tolist() == places


def test_weights_that_are_given_up_hold_nobody_up() -> None:
    """A push that is cancelled while it waits lets later requests pass."""
    protocol = Slow()

    async def work() -> None:
        policy = fed(protocol)
        early = drawing(policy)
        await until(lambda: len(protocol.asked) == 1)
        push = asyncio.create_task(pushed(policy, lambda: asyncio.sleep(0)))
        await asyncio.sleep(0.02)
        late = drawing(policy)
        push.cancel()
        await until(lambda: len(protocol.asked) == 2)
        for go in protocol.asked:
            go.set()
        assert [(await one).versions for one in (early, late)] == [(1,), (1,)]

    asyncio.run(work())


class Exports(ScriptedPolicy):
    """A policy whose weights can be handed on; counts how often they are."""

    can_export = True

    def __init__(self, version: int, seconds: float = 0.01) -> None:
        super().__init__(["b"], tokenizer=Chars(), version=version, digest=f"digest-{version}")
        self.exported, self.seconds = 0, seconds

    async def export_weights(self, directory: Path) -> None:
        await asyncio.sleep(self.seconds)
        (directory / "weights").write_text(self.digest)
        self.exported += 1


@pytest.fixture
def refreshed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The weights that a server, which is not there, was given."""
    found: list[str] = []

    async def push(_: Any, weights: Any) -> None:
        found.append((weights.directory / "weights").read_text())

    async def build(*_: Any) -> tuple[Any, Any, Any]:
        return SimpleNamespace(), None, SimpleNamespace(context_length=64)

    monkeypatch.setattr("rlvr_servers.server_sampler.build_protocol", build)
    monkeypatch.setattr("rlvr_servers.server_sampler.Vllm", SimpleNamespace)
    monkeypatch.setattr("rlvr_servers.server_sampler.push", push)
    return found


def test_weights_travel_once_a_version_and_never_back(tmp_path: Path, refreshed: list[str]) -> None:
    """Many problems ask at once; a rollout of an earlier version draws with the newer one."""
    config = ServersConfig(url="http://nowhere#tiny")

    async def work() -> list[FedPolicy]:
        async with VllmSampler(config, BuildContext(run_dir=tmp_path)) as sampler:
            first, second = Exports(1), Exports(2)
            params = SamplingParams()
            served = await asyncio.gather(*(sampler._served(first, params) for _ in range(5)))
            served += await asyncio.gather(*(sampler._served(second, params) for _ in range(5)))
            served.append(await sampler._served(first, params))
            assert (first.exported, second.exported) == (1, 1)
            return served

    served = asyncio.run(work())

    assert refreshed == ["digest-1", "digest-2"]
    assert len({id(policy) for policy in served}) == 1
    assert served[0].version == 2


def test_a_slow_export_never_puts_older_weights_back(tmp_path: Path, refreshed: list[str]) -> None:
    """Version 1 is still being written when 2 has been given: it is thrown away."""
    config = ServersConfig(url="http://nowhere#tiny")

    async def work() -> int:
        async with VllmSampler(config, BuildContext(run_dir=tmp_path)) as sampler:
            slow, quick = Exports(1, seconds=0.2), Exports(2)
            first = asyncio.create_task(sampler.drawn_by(slow))
            await asyncio.sleep(0.05)
            assert (await sampler.drawn_by(quick)).version == 2
            assert not first.done()  # so no lock is held while it is written
            served = await first
            assert slow.exported == 1
            return served.version

    assert asyncio.run(work()) == 2
    assert refreshed == ["digest-2"]
    left = list((tmp_path / "served-weights").iterdir())
    assert [path.name for path in left] == ["000002-digest-2"]


def test_an_evaluation_leaves_the_weights_of_runs_alone(
    tmp_path: Path, refreshed: list[str]
) -> None:
    """Both write below one mounted folder; a run's server may still read its own."""
    of_a_run = tmp_path / "served-weights" / "run" / "000001-abc"
    of_a_run.mkdir(parents=True)
    config = ServersConfig(url="http://nowhere#tiny", weights_dir=str(tmp_path))

    async def work() -> None:
        async with VllmSampler(config, BuildContext()) as sampler:
            await sampler.drawn_by(Exports(1))

    asyncio.run(work())

    assert refreshed == ["digest-1"]
    assert [*tmp_path.glob("served-weights/*/*")] == [of_a_run]
    assert [*tmp_path.glob("served-weights/*")] == [of_a_run.parent]
