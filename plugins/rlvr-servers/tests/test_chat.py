"""Sampling from a real HTTP server: what is sent, what comes back, what goes wrong."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
import structlog

from rlvr import (
    BuildContext,
    ConfigError,
    EpisodeResult,
    Group,
    PrerequisiteError,
    Problem,
    SamplingParams,
    Trajectory,
    UnknownNameError,
    sample_groups,
)
from rlvr.testing.fakes.policy import ScriptedPolicy
from rlvr.testing.fakes.toy import ToyTask
from rlvr_servers.backend import ServerBackend
from rlvr_servers.chat_sampler import ChatSampler
from rlvr_servers.config import ServerConfig

FAST = {"backoff_s": 0.0}


def draw(
    server: Any,
    *,
    problems: int = 1,
    turns: int = 1,
    task: Any = None,
    spec: str = "",
    options: dict[str, Any] | None = None,
    **params: Any,
) -> list[Group]:
    """Sample toy problems from the server through backend, policy and sampler."""
    task = task or ToyTask(turns)
    context = BuildContext(model=spec or server.spec, workers=2)

    async def sample() -> list[Group]:
        config = ServerConfig(**{**FAST, **(options or {})})
        async with ServerBackend(config, context) as backend:
            sampler = ChatSampler(None, context)
            chosen = list(task.problems("train"))[:problems]
            policy = await backend.policy()
            return await sample_groups(sampler, policy, task, chosen, SamplingParams(**params))

    return asyncio.run(sample())


def only(groups: list[Group]) -> Trajectory:
    ((trajectory,),) = [group.trajectories for group in groups]
    return trajectory


# --- what is sent, what comes back ----------------------------------------------------------------


def test_groups_in_order_with_texts_and_who_said_them(server: Any) -> None:
    """G trajectories a problem, in the order of the problems, each answer at its own prompt."""
    server.decide = lambda request, _n: server.Say(request["messages"][0]["content"] * 2)

    groups = draw(server, problems=3, group_size=4)

    assert [g.problem.id for g in groups] == ["after-a", "after-b", "after-c"]
    for group, letter in zip(groups, "abc", strict=True):
        assert [t.completion for t in group.trajectories] == [letter * 2] * 4
        for t in group.trajectories:
            assert [s.author for s in t.segments] == ["prompt", "policy"]
            assert t.policy_digest == "tiny"
            assert t.notes["server"] == {"model": "tiny", "finish_reasons": ["stop"]}
            assert len(t.tokens) == 0


def test_parameters_are_sent_and_defaults_left_out(server: Any) -> None:
    """What sampler.* says is in the request; truncation and stops only where they are set."""
    draw(server, max_tokens=7, temperature=0.5)
    draw(server, top_p=0.9, top_k=3, stop=("END",), max_tokens=9)

    plain, full = server.requests
    assert plain["model"] == "tiny"
    assert plain["messages"] == [{"role": "user", "content": "a"}]
    assert (plain["max_tokens"], plain["temperature"]) == (7, 0.5)
    assert not {"top_p", "top_k", "stop"} & plain.keys()
    assert (full["top_p"], full["top_k"], full["stop"]) == (0.9, 3, ["END"])
    assert server.paths.count("/v1/chat/completions") == 2


def test_fields_that_a_server_refuses_can_be_renamed_and_left_out(server: Any) -> None:
    """Hosted models want max_completion_tokens and no temperature."""
    draw(
        server,
        options={"token_field": "max_completion_tokens", "leave_out": ("seed", "temperature")},
        max_tokens=7,
    )

    assert server.requests[0].keys() == {"model", "messages", "max_completion_tokens"}


def test_seeds_differ_between_samples_and_repeat_between_runs(server: Any) -> None:
    """A server that honours seeds gives n different samples, the same ones each time."""
    draw(server, problems=2, group_size=3, seed=5)
    first = {request["seed"] for request in server.requests}
    server.requests.clear()
    draw(server, problems=2, group_size=3, seed=5)

    assert len(first) == 6
    assert all(0 <= seed < 1 << 31 for seed in first)
    assert {request["seed"] for request in server.requests} == first


def test_every_turn_sends_the_whole_history(server: Any) -> None:
    """Three turns: 1, 3, then 5 messages, the model's own among them."""
    server.decide = lambda _request, number: server.Say(f"answer {number}")

    trajectory = only(draw(server, turns=3))

    assert [len(r["messages"]) for r in server.requests] == [1, 3, 5]
    roles = [m["role"] for m in server.requests[-1]["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]
    assert server.requests[-1]["messages"][3]["content"] == "answer 2"
    assert trajectory.completions == ("answer 1", "answer 2", "answer 3")
    authors = [s.author for s in trajectory.segments]
    assert authors == ["prompt", "policy", "env", "policy", "env", "policy"]


def test_an_answer_that_was_cut_says_so(server: Any) -> None:
    """finish_reason "length" is kept: the report counts such answers."""
    server.decide = lambda _request, _n: server.Say("modul", finish="length")

    trajectory = only(draw(server))

    assert (trajectory.finish, trajectory.completion) == ("length", "modul")
    assert trajectory.notes["server"]["finish_reasons"] == ["length"]


def test_an_answer_without_text_is_empty(server: Any) -> None:
    """A model that spent all its tokens on thinking gives null."""
    server.decide = lambda _request, _n: server.Say(None, finish="length")

    assert only(draw(server)).completion == ""


def test_no_more_requests_at_a_time_than_allowed(server: Any) -> None:
    """Twelve rollouts, three at a time: never four, and not one after another either."""
    server.decide = lambda _request, _n: server.Say("b", delay_s=0.05)

    draw(server, group_size=12, options={"concurrency": 3})

    assert len(server.requests) == 12
    assert 1 < server.most_busy <= 3


def test_the_only_model_need_not_be_named(server: Any) -> None:
    """Most local servers hold one."""
    draw(server, spec=f"server:{server.url}")

    assert server.requests[0]["model"] == "tiny"


class _FilesTask(ToyTask):
    """The toy task, whose episodes leave files and notes behind."""

    def episode(self, problem: Problem) -> Any:
        class Leaving(type(super().episode(problem))):  # type: ignore[misc]
            def stop_texts(self) -> list[str]:
                return ["endmodule"]

            def result(self) -> EpisodeResult:
                return EpisodeResult(files={"a.sv": "module a; endmodule"}, notes={"tries": 2})

        return Leaving(problem)


def test_what_an_episode_leaves_behind_is_kept(server: Any) -> None:
    """Files are the answer, notes stand beside the server's own; its stop texts are sent."""
    trajectory = only(draw(server, task=_FilesTask()))

    assert trajectory.files == {"a.sv": "module a; endmodule"}
    assert trajectory.notes["tries"] == 2
    assert server.requests[0]["stop"] == ["endmodule"]
    assert trajectory.notes["server"]["model"] == "tiny"


# --- what passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 503, 408])
def test_what_passes_is_tried_again(server: Any, status: int) -> None:
    """Two refusals, then an answer: the rollout is whole."""
    server.decide = lambda _request, number: (
        server.Say("b") if number > 2 else server.Say(status=status, body="busy")
    )

    trajectory = only(draw(server))

    assert (trajectory.finish, trajectory.completion) == ("stop", "b")
    assert len(server.requests) == 3


def test_the_pause_that_the_server_asks_for_is_kept(server: Any) -> None:
    """Retry-After: 0.3 means 0.3 s, though the own pause would be none."""
    server.decide = lambda _request, number: (
        server.Say("b")
        if number > 1
        else server.Say(status=429, body="{}", headers={"Retry-After": "0.3"})
    )
    begun = time.monotonic()

    assert only(draw(server)).completion == "b"
    assert time.monotonic() - begun >= 0.3


def test_a_slow_answer_is_asked_for_again(server: Any) -> None:
    """Past server.timeout_s a request is given up and repeated."""
    server.decide = lambda _request, number: server.Say("b", delay_s=20.0 if number == 1 else 0.0)
    begun = time.monotonic()

    trajectory = only(draw(server, options={"timeout_s": 0.5}))

    assert trajectory.completion == "b"
    assert time.monotonic() - begun < 15.0


@pytest.mark.parametrize(
    "body", ["{", "[]", "{}", '{"choices": []}', '{"choices": [{"message": {"content": 3}}]}']
)
def test_what_is_no_completion_is_tried_again(server: Any, body: str) -> None:
    """Half an answer of a proxy is no answer of the model."""
    server.decide = lambda _request, number: server.Say("b", body=body if number == 1 else None)

    assert only(draw(server)).completion == "b"


# --- what stays -----------------------------------------------------------------------------------


def test_a_server_that_fails_for_ever_fails_the_rollout_alone(server: Any) -> None:
    """Finish "error" with the server's words; the other problem is sampled."""
    server.decide = lambda request, _n: (
        server.Say(status=500, body='{"error": {"message": "the engine died"}}')
        if request["messages"][0]["content"] == "a"
        else server.Say("c")
    )

    bad, good = draw(server, problems=2, options={"retries": 2})

    assert bad.trajectories[0].finish == "error"
    assert "HTTP 500: the engine died (3 tries)" in bad.trajectories[0].error
    assert (good.trajectories[0].finish, good.trajectories[0].completion) == ("stop", "c")


def test_a_server_that_is_gone_is_not_waited_for_each_time(server: Any) -> None:
    """After 3 * concurrency failures in a row a request is tried once."""
    server.decide = lambda _request, _n: server.Say(status=500, body="gone")

    draw(server, group_size=20, options={"concurrency": 2, "retries": 4})

    assert 6 * 5 + 14 <= len(server.requests) <= 8 * 5 + 14


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 2048 tokens. However, you requested 9000 tokens",
        "the request exceeds the available context size, try increasing it",
        "Prompt is too long",
    ],
)
def test_a_prompt_that_does_not_fit_says_what_to_do(server: Any, message: str) -> None:
    """The words of vLLM, llama.cpp and others end in one explanation; nothing is repeated."""
    server.decide = lambda _request, _n: server.Say(
        status=400, body=json.dumps({"error": {"message": message}})
    )

    trajectory = only(draw(server))

    assert trajectory.finish == "error"
    assert "do not fit the model's context" in trajectory.error
    assert "sampler.max_tokens" in trajectory.error
    assert len(server.requests) == 1


def test_another_refusal_names_the_way_out(server: Any) -> None:
    """A field that the server does not know can be left out."""
    server.decide = lambda _request, _n: server.Say(
        status=400, body='{"error": {"message": "unknown field seed"}}'
    )

    assert "unknown field seed (server.leave_out=FIELD" in only(draw(server)).error


def test_a_model_that_is_not_there_ends_it(server: Any) -> None:
    """Every request would fail: what is served is named at once."""
    server.decide = lambda _request, _n: server.Say(
        status=404, body='{"error": {"message": "The model `huge` does not exist."}}'
    )

    with pytest.raises(UnknownNameError, match=r"does not exist.*it serves: tiny"):
        draw(server, spec=f"server:{server.url}#huge", group_size=3)


def test_a_model_must_be_named_where_there_are_several(server: Any) -> None:
    """With the names to choose from."""
    server.models = ("one", "two")

    with pytest.raises(UnknownNameError, match="it serves: one, two"):
        draw(server, spec=f"server:{server.url}")


def test_a_server_that_is_not_there_is_a_missing_prerequisite() -> None:
    """Port 9 of this machine: nobody listens."""
    with pytest.raises(PrerequisiteError, match="cannot be reached"):
        draw(None, spec="server:http://127.0.0.1:9#m")


def test_a_redirect_is_not_followed(server: Any) -> None:
    """It would carry the key to another host."""
    server.decide = lambda _request, _n: server.Say(
        status=307, body="{}", headers={"Location": f"{server.url}/elsewhere"}
    )

    assert "HTTP 307" in only(draw(server)).error
    assert "/elsewhere" not in server.paths


# --- the key --------------------------------------------------------------------------------------


def test_the_key_goes_into_requests_and_nowhere_else(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a trajectory, nor a log line, nor an error holds it."""
    monkeypatch.setenv("RLVR_SERVER_KEY", "sk-very-secret")
    server.decide = lambda _request, number: (
        server.Say("b") if number == 2 else server.Say(status=500, body="busy")
    )
    with structlog.testing.capture_logs() as logs:
        groups = draw(server, group_size=2, options={"retries": 0})

    assert set(server.keys) == {"Bearer sk-very-secret"}
    assert "sk-very-secret" not in repr(groups) + repr(logs)


@pytest.mark.parametrize(("key", "do"), [("", "export RLVR_SERVER_KEY"), ("bad", "does not take")])
def test_a_server_that_wants_a_key_is_a_missing_prerequisite(
    server: Any, monkeypatch: pytest.MonkeyPatch, key: str, do: str
) -> None:
    """At the listing or at the first chat: nothing more is sent, and the key is not repeated."""
    monkeypatch.setenv("RLVR_SERVER_KEY", key)
    server.listing_status = 401
    with pytest.raises(PrerequisiteError, match=do):
        draw(server)
    server.listing_status = 200
    server.decide = lambda _request, _n: server.Say(status=401, body="{}")
    with pytest.raises(PrerequisiteError, match=do):
        draw(server, options={"concurrency": 1}, group_size=9)

    assert len(server.requests) < 9


def test_a_key_that_cannot_be_sent_is_refused_unseen(
    server: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The standard library would print it in its error."""
    monkeypatch.setenv("RLVR_SERVER_KEY", "sk-one\nsk-two")

    with pytest.raises(PrerequisiteError) as caught:
        draw(server)

    assert "sk-" not in str(caught.value)


# --- what it is not -------------------------------------------------------------------------------


def test_the_sampler_asks_servers_only() -> None:
    """A policy with tokens is refused in words."""
    context = BuildContext()
    task = ToyTask()
    sampler, problems = ChatSampler(None, context), list(task.problems("train"))
    sampling = sample_groups(sampler, ScriptedPolicy(["b"]), task, problems, SamplingParams())

    with pytest.raises(ConfigError, match="no server"):
        asyncio.run(sampling)


@pytest.mark.parametrize(
    ("name", "given"),
    [("logprobs", ([], "policy")), ("update", ([], None)), ("save", (".",)), ("load", (".",))],
)
def test_it_cannot_be_trained(name: str, given: tuple[Any, ...]) -> None:
    """Each of a trainer's primitives says why."""
    backend = ServerBackend(None, BuildContext(model="server:http://h#m"))

    with pytest.raises(ConfigError, match="no gradients"):
        asyncio.run(getattr(backend, name)(*given))
