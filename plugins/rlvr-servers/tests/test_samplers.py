"""Samplers behind doubles: tokens and logprobs of the server, and its weights those of the run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    Group,
    Loss,
    PrerequisiteError,
    SamplingParams,
    Trajectory,
    sample_groups,
)
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.fakes.toy import ToyTask
from rlvr_servers.backend import ServedBackend
from rlvr_servers.config import ServersConfig
from rlvr_servers.server_sampler import (
    OpenAISampler,
    ServerSampler,
    SglangSampler,
    VllmSampler,
)

Start = Callable[..., Any]
SAMPLERS: dict[str, type[ServerSampler]] = {
    "vllm": VllmSampler,
    "sglang": SglangSampler,
    "echo": OpenAISampler,
}
FAST: dict[str, Any] = {"backoff_s": 0.0, "retries": 1}


def spec(server: Any) -> str:
    scheme = "openai" if server.kind == "echo" else server.kind
    return f"{scheme}:{server.url}#tiny"


def evaluate(server: Any, *, turns: int = 1, **params: Any) -> list[Group]:
    """What an evaluation samples: backend and sampler of the server's own kind."""
    where = str(server.folder) if server.kind == "echo" else ""
    config = ServersConfig(tokenizer=where, **FAST)
    context = BuildContext(model=spec(server), workers=2)

    async def run() -> list[Group]:
        async with (
            ServedBackend(config, context) as backend,
            SAMPLERS[server.kind](config, context) as sampler,
        ):
            task = ToyTask(turns)
            problems = list(task.problems("train"))[:2]
            asked = SamplingParams(**{"max_tokens": 6, **params})
            return await sample_groups(sampler, await backend.policy(), task, problems, asked)

    return asyncio.run(run())


def scored(server: Any, trajectory: Trajectory) -> np.ndarray:
    """What transformers says of the tokens that the policy wrote."""
    ids = trajectory.tokens.tolist()
    rows = server.rows(ids, 1.0)
    return np.array([float(rows[t][ids[t]]) for t in np.flatnonzero(trajectory.mask)])


def logprobs(trajectory: Trajectory) -> np.ndarray:
    return trajectory.logprobs[trajectory.mask]


# --- evaluation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SAMPLERS)
def test_tokens_and_logprobs_are_the_servers(double: Start, byte_model: Path, kind: str) -> None:
    """G trajectories a problem with ids and logprobs as drawn; transformers finds the same."""
    server = double(kind, byte_model)

    groups = evaluate(server, group_size=3)

    assert [len(group.trajectories) for group in groups] == [3, 3]
    for group in groups:
        for one in group.trajectories:
            assert [s.author for s in one.segments] == ["prompt", "policy"]
            assert one.mask.sum() in range(1, 7)
            assert np.abs(logprobs(one) - scored(server, one)).max() < 1e-4
            assert one.policy_digest.startswith("tiny")


@pytest.mark.parametrize("kind", SAMPLERS)
def test_several_turns_go_on_from_the_tokens_that_were_drawn(
    double: Start, byte_model: Path, kind: str
) -> None:
    """The second prompt follows the first answer's own ids; nothing is tokenised again."""
    server = double(kind, byte_model)

    ((one,), _) = [g.trajectories for g in evaluate(server, turns=2, max_tokens=4)]

    assert [s.author for s in one.segments] == ["prompt", "policy", "env", "policy"]
    sent = [
        request.get("input_ids") or request["prompt"]
        for path, request in server.requests
        if path in ("/generate", "/v1/completions")
    ]
    before_last = [t for s in one.segments[:3] for t in s.tokens.tolist()]
    assert before_last in sent
    assert np.abs(logprobs(one) - scored(server, one)).max() < 1e-4


@pytest.mark.parametrize("kind", SAMPLERS)
def test_what_would_choose_in_silence_is_sent(double: Start, byte_model: Path, kind: str) -> None:
    """top_p, top_k and penalties are named, or a model's generation_config.json would set them."""
    server = double(kind, byte_model)

    evaluate(server, temperature=0.5, top_p=0.9, top_k=7, stop=("END",))

    _, request = server.requests[-1]
    sent = request.get("sampling_params", request)
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.5, 0.9, 7)
    assert sent["stop"] == ["END"]
    if kind != "echo":
        assert (sent["repetition_penalty"], sent["min_p"]) == (1.0, 0.0)


def test_a_stop_text_ends_a_completion_to_the_byte(double: Start, byte_model: Path) -> None:
    """Whatever the server makes of it: tokens past the text are cut off here."""
    server = double("vllm", byte_model)
    free = evaluate(server, temperature=0.0)[0].trajectories[0]
    text = free.completion
    stop = text[2:3]

    cut = evaluate(server, temperature=0.0, stop=(stop,))[0].trajectories[0]

    assert cut.completion == text[: text.index(stop)]
    assert cut.finish == "stop"
    assert cut.mask.sum() < free.mask.sum()


def test_tokens_without_ids_or_logprobs_are_refused(double: Start, byte_model: Path) -> None:
    """A text is never tokenised again; the error names the sampler that needs no ids."""
    server = double("vllm", byte_model)

    def strip(found: Any) -> Any:
        found["choices"][0].pop("token_ids")
        found["choices"][0]["logprobs"]["tokens"] = ["a", "b"]
        return found

    server.faults = lambda path, _r, _n: strip if path == "/v1/completions" else None

    with pytest.raises(BackendError, match="--model server:URL#NAME"):
        evaluate(server)


def once_ambiguous() -> Callable[..., Any]:
    """A fault: the first token of one completion comes back as half a character."""
    left = [1]

    def spoil(found: Any) -> Any:
        found["choices"][0]["logprobs"]["tokens"][0] = "\N{REPLACEMENT CHARACTER}"
        return found

    def fault(path: str, request: dict[str, Any], _number: int) -> Any:
        if path == "/v1/completions" and request["max_tokens"] > 1 and left:
            left.pop()
            return spoil
        return None

    return fault


def test_a_drawn_token_that_could_be_several_ends_its_own_rollout(
    double: Start, byte_model: Path
) -> None:
    """One of six answers is lost, with the reason; the five others are as they were drawn."""
    server = double("echo", byte_model)
    server.faults = once_ambiguous()

    answers = [t for group in evaluate(server, group_size=3) for t in group.trajectories]

    (lost,) = [t for t in answers if t.finish == "error"]
    assert "could be several ids" in lost.error
    assert not lost.mask.any()
    rest = [t for t in answers if t is not lost]
    assert len(rest) == 5
    assert all(np.abs(logprobs(t) - scored(server, t)).max() < 1e-4 for t in rest)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_weights_that_change_meanwhile_cannot_be_served(
    double: Start, student: Any, byte_model: Path, kind: str
) -> None:
    """A policy that follows them: refused in words, nothing is drawn; a run gives no such one."""
    server, one = double(kind, byte_model), student()

    async def body() -> None:
        async with one.backend as backend:
            task = ToyTask()
            problems = list(task.problems("train"))[:1]
            sampler = SAMPLERS[kind](ServersConfig(url=server.url, **FAST), one.context)
            params = SamplingParams(max_tokens=2)
            await sample_groups(sampler, await backend.live_policy(), task, problems, params)

    with pytest.raises(ConfigError, match="cannot be handed to a server"):
        asyncio.run(body())
    assert server.requests == []


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_server_that_fails_is_an_error(double: Start, byte_model: Path, kind: str) -> None:
    """Exit 6 with its words, after the repetitions."""
    server = double(kind, byte_model)
    server.faults = lambda path, _r, _n: (
        (500, "engine died") if path in ("/generate", "/v1/completions") else None
    )

    with pytest.raises(BackendError, match=r"HTTP 500: engine died \(2 tries\)"):
        evaluate(server)


# --- in a run: the server has the policy's weights ------------------------------------------------


@pytest.fixture
def student(byte_model: Path, tmp_path: Path) -> Any:
    """A local backend that trains, and a way to move its weights."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    return lambda **options: Student(byte_model, tmp_path, options)


class Student:
    """Trains on this machine, samples through a server."""

    def __init__(self, model: Path, home: Path, options: dict[str, Any]) -> None:
        from rlvr.config.core import TrainOptions
        from rlvr_torch.backend import TorchBackend
        from rlvr_torch.config import TorchConfig

        scheme = "hf" if options.get("lora_rank") else "gpt2"
        train = TrainOptions(lr=options.pop("lr", 0.05), warmup=0)
        context = BuildContext(
            model=f"{scheme}:{model}", run_dir=home, steps=4, train=train, workers=2
        )
        self.context = context
        self.backend = TorchBackend(TorchConfig(threads=1, **options), context)

    def run(
        self, server: Any, rounds: int, *, watch: bool = False, group_size: int = 2, **options: Any
    ) -> list[list[Group]]:
        """Sample, take a step, sample again; `watch` checks each weight sync."""
        from rlvr.training.weight_sync import SyncWatch

        syncs = SyncWatch()
        config = ServersConfig(**{"url": f"{server.url}#tiny", **FAST, **options})

        async def body() -> list[list[Group]]:
            found = []
            async with (
                self.backend as backend,
                SAMPLERS[server.kind](config, self.context) as sampler,
            ):
                task = ToyTask()
                problems = list(task.problems("train"))[:2]
                for number in range(rounds):
                    if number:
                        await backend.update([_lesson()], _Likely())
                    params = SamplingParams(max_tokens=5, group_size=group_size, seed=number)
                    policy = await backend.policy()
                    groups = await sample_groups(sampler, policy, task, problems, params)
                    await self._same(groups)
                    if watch:
                        await syncs.check(backend, sampler, policy, groups)
                    found.append(groups)
            return found

        return asyncio.run(body())

    async def _same(self, groups: list[Group]) -> None:
        """The mismatch check: the trainer finds the drawn tokens as likely."""
        from rlvr.training.mismatch import check_parity

        measured = await check_parity(self.backend, groups, probe=4)
        assert measured is not None


class _Likely(Loss):
    """A loss that makes some tokens likelier."""

    importance_weighted = False

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        return -sum(row[1:].mean() for row in logprobs), {}


def _lesson() -> Datum:
    mask = np.arange(6) > 0
    return Datum(
        tokens=[70, 71, 70, 71, 70, 71],
        mask=mask,
        logprobs=-1.0 * mask,
        advantages=mask,
        weights=mask / 5,
    )


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_the_server_gets_the_weights_of_each_step(
    double: Start, student: Any, byte_model: Path, kind: str
) -> None:
    """Once a version; then what it draws has the probability that the trainer gives it."""
    server = double(kind, byte_model)

    first, second = student().run(server, 2)

    assert len(server.loaded) == 3  # its own, the start weights, those after the step
    digests = {
        t.policy_digest for groups in (first, second) for g in groups for t in g.trajectories
    }
    assert len(digests) == 2
    assert [g.trajectories[0].policy_version for g in (first[0], second[0])] == [0, 1]
    if kind == "sglang":
        assert any(server.weight_version == d[:16] for d in digests)


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_an_adapter_is_loaded_by_name(
    double: Start, student: Any, byte_model: Path, kind: str
) -> None:
    """LoRA: the adapter alone travels, and the one before is unloaded."""
    pytest.importorskip("peft", reason="peft is not installed")
    server = double(kind, byte_model)

    student(lora_rank=2).run(server, 2)

    paths = [path for path, _ in server.requests]
    assert paths.count(f"{'/v1' if kind == 'vllm' else ''}/load_lora_adapter") == 2
    assert len(server.adapters) == 1


def test_an_adapter_that_is_gone_is_an_error_of_the_server(
    double: Start, student: Any, byte_model: Path
) -> None:
    """A vLLM that was restarted knows the name no more: exit 6 and --resume, no wrong name."""
    pytest.importorskip("peft", reason="peft is not installed")
    server = double("vllm", byte_model)

    def forget(path: str, _request: dict[str, Any], _number: int) -> None:
        if path == "/v1/completions":
            server.adapters.clear()

    server.faults = forget

    with pytest.raises(BackendError, match="has lost it"):
        student(lora_rank=2).run(server, 1)


def test_a_weight_sync_that_did_not_arrive_is_found_out(
    double: Start, student: Any, byte_model: Path
) -> None:
    """A server that says yes and keeps its weights: the mismatch check ends the run."""
    server = double("vllm", byte_model)
    server.faults = lambda path, _r, _n: (
        (200, {"results": [None]}) if path == "/collective_rpc" else None
    )

    with pytest.raises(BackendError, match="the sampler is not the policy"):
        student().run(server, 2)


@pytest.mark.one_of(8, "once-sglang")
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
@pytest.mark.parametrize("fault", ["never", "late", "once", "healthy"])
def test_a_sync_that_is_lost_at_a_small_learning_rate_is_found_out(
    double: Start,
    student: Any,
    byte_model: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    fault: str,
) -> None:
    """
    At lr 1e-5 the gap is far under a nat, but the server's logprobs have not moved: the run ends.

    A server that takes what it is given goes on.
    """
    server = double(kind, byte_model)
    load, sent = type(server).load, []

    def lossy(double: Any, folder: Any) -> None:
        kept = {name: value.clone() for name, value in double.model.state_dict().items()}
        load(double, folder)
        sent.append({name: value.clone() for name, value in double.model.state_dict().items()})
        if len(sent) > 1 and (fault == "never" or (fault == "once" and len(sent) == 3)):
            double.model.load_state_dict(kept)
        elif len(sent) > 1 and fault == "late":
            double.model.load_state_dict(sent[-2])

    monkeypatch.setattr(type(server), "load", lossy)
    trainee = student(lr=1e-5)
    run = lambda: trainee.run(server, 5, watch=True, group_size=8)  # noqa: E731

    if fault == "healthy":
        assert len(run()) == 5
    else:
        with pytest.raises(BackendError, match="to the bit") as error:
            run()
        assert f"after {2 if fault == 'once' else 1} weight sync" in str(error.value)


def test_tokens_of_other_weights_are_refused_by_their_version(
    double: Start, student: Any, byte_model: Path
) -> None:
    """SGLang names the version with each answer: one that was restarted is found out at once."""
    server = double("sglang", byte_model)

    def old(found: Any) -> Any:
        found["meta_info"]["weight_version"] = "default"
        return found

    server.faults = lambda path, _r, _n: old if path == "/generate" else None

    with pytest.raises(BackendError, match="tokens of the weights 'default'"):
        student().run(server, 1)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("vllm", "VLLM_SERVER_DEV_MODE=1"), ("sglang", "same architecture")],
)
def test_a_server_that_takes_no_weights_is_a_missing_prerequisite(
    double: Start, student: Any, byte_model: Path, kind: str, hint: str
) -> None:
    """With what to start it with."""
    server = double(kind, byte_model, takes_weights=False)

    with pytest.raises(PrerequisiteError, match=hint):
        student().run(server, 1)


def test_a_folder_that_the_server_cannot_see_is_an_error(
    double: Start, student: Any, byte_model: Path, tmp_path: Path
) -> None:
    """The server's words, and the options that say where the folder is."""
    server = double("sglang", byte_model)

    with pytest.raises(BackendError, match=r"is no folder[\s\S]*servers\.weights_seen_at"):
        student().run(server, 1, weights_seen_at="/nowhere")


def test_a_container_sees_the_folder_at_its_own_path(
    double: Start, student: Any, byte_model: Path, tmp_path: Path
) -> None:
    """`servers.weights_dir` mounted elsewhere; weights of other runs in it are left alone."""
    server = double("sglang", byte_model)
    mounted, seen = tmp_path / "mounted", tmp_path / "seen"
    other = mounted / "served-weights" / "other-run" / "000001-abc"
    other.mkdir(parents=True)
    seen.symlink_to(mounted)

    student().run(server, 2, weights_dir=str(mounted), weights_seen_at=f"{seen}/")

    assert len(server.loaded) == 3  # its own, and two of the run
    assert all(path.startswith(str(seen)) for path in server.loaded[1:])
    assert [path.name for path in (mounted / "served-weights").iterdir()] == ["other-run"]
    assert other.is_dir()


def test_a_temperature_whose_logprobs_the_server_does_not_tell_is_refused(
    double: Start, byte_model: Path, student: Any
) -> None:
    """By default vLLM draws at 0.7 and tells the logprobs of 1."""
    server = double("vllm", byte_model)
    one = student()
    config = ServersConfig(url=server.url, **FAST)

    async def body() -> None:
        async with one.backend as backend:
            sampler = VllmSampler(config, one.context)
            params = SamplingParams(max_tokens=3, temperature=0.7)
            task = ToyTask()
            problems = list(task.problems("train"))[:1]
            await sample_groups(sampler, await backend.policy(), task, problems, params)

    with pytest.raises(ConfigError, match="processed_logprobs"):
        asyncio.run(body())


def test_an_openai_server_cannot_be_trained_through(tmp_path: Path) -> None:
    """Exit 2 before anything is opened, with the samplers that can."""
    with pytest.raises(ConfigError, match="no way to take new weights"):
        OpenAISampler(None, BuildContext(run_dir=tmp_path))


def test_a_policy_without_weights_is_refused(double: Start, byte_model: Path) -> None:
    """A remote trainer's policy, say."""
    server = double("vllm", byte_model)
    sampler = VllmSampler(ServersConfig(url=server.url), BuildContext())
    task = ToyTask()
    sampling = sample_groups(
        sampler, ScriptedPolicy(["b"]), task, list(task.problems("train")), SamplingParams()
    )

    with pytest.raises(ConfigError, match="cannot be handed to a server"):
        asyncio.run(sampling)


def test_no_url_is_said(student: Any) -> None:
    """servers.url is what a run's sampler draws from."""
    one = student()

    async def body() -> None:
        async with one.backend as backend:
            task = ToyTask()
            problems = list(task.problems("train"))[:1]
            sampler = SglangSampler(None, one.context)
            params = SamplingParams(max_tokens=2)
            await sample_groups(sampler, await backend.policy(), task, problems, params)

    with pytest.raises(ConfigError, match=r"servers\.url is empty"):
        asyncio.run(body())
