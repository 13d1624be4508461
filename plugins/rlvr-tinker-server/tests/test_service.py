"""The verbs without HTTP: silent clients, company in a batch, snapshots that are forgotten."""

from __future__ import annotations

import asyncio
import json

import numpy as np
import pytest
import torch
from tinker import types
from tinker.proto.response_conv import deserialize_sample_response

from rlvr_tinker_server.jobs import models, samplers, saving, training
from rlvr_tinker_server.limits import Limits
from rlvr_tinker_server.nets.base import Base
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.state.checkpoints import Checkpoints
from rlvr_tinker_server.state.service import Service
from rlvr_tinker_server.wire import PassRequest, Row
from rlvr_torch.models.bpe import BytePairTokenizer


@pytest.fixture
def make_service(net, tmp_path):
    """A service of the tiny model."""

    def make(**limits):
        base = Base(
            name="tiny",
            aliases=frozenset(),
            net=net,
            tokenizer=BytePairTokenizer.bytes_only(),
            tokenizer_at="",
            digest="d",
            dtype=torch.float32,
        )
        checkpoints = Checkpoints(tmp_path / "state")
        return Service(base=base, checkpoints=checkpoints, limits=Limits(**limits))

    return make


def opened(service):
    """A session."""
    asked = types.CreateSessionRequest(tags=[], user_metadata={}, sdk_version="0.38.0")
    return service.create_session(asked)


def new_model(service, session, number=0):
    """A model of the session."""
    config = types.LoraConfig(rank=2, seed=number)
    asked = types.CreateModelRequest(
        session_id=session.id, model_seq_id=number, base_model="tiny", lora_config=config
    )
    return models.create_model(service, asked, b"%d" % number)


async def with_model(service):
    """A session whose model is made; the session and the model's id."""
    session = opened(service)
    await service.futures.fetch(new_model(service, session).id, 30)
    return session, f"{session.id}:train:0"


def run(service, work):
    """Some work beside the service's own tasks."""

    async def main():
        tasks = [
            asyncio.create_task(service.worker.run()),
            asyncio.create_task(service.end_silent_sessions()),
            asyncio.create_task(service.fail_gaps()),
        ]
        try:
            return await asyncio.wait_for(work(), 60)
        finally:
            for task in tasks:
                task.cancel()
            service.worker.close()

    return asyncio.run(main())


def test_a_silent_client_loses_its_session(make_service):
    """Its adapters are freed for others, and what it waited for fails."""
    service = make_service(session_timeout_s=0.3, max_adapters=1)

    async def work():
        session, _ = await with_model(service)
        params = types.AdamParams(learning_rate=0.0)
        asked = types.OptimStepRequest(
            optim_params=params, model_id=f"{session.id}:train:0", seq_id=2
        )
        later = training.optim_step(
            service, asked, b"later"
        )  # waits for number 1, which never comes
        with pytest.raises(Refusal, match="holds 1 adapters"):
            new_model(service, session, 1)
        answer = await service.futures.fetch(later.id, 30)
        with pytest.raises(Refusal, match="nothing was heard of its client"):
            service.sessions.get(session.id)
        await service.futures.fetch(new_model(service, opened(service)).id, 30)
        return answer

    assert b"has ended" in run(service, work).body


def sample(service, slot_id, number, prompt, count=3):
    """Ask for sequences."""
    asked = types.SampleRequest(
        prompt=types.ModelInput.from_ints(prompt),
        sampling_params=types.SamplingParams(max_tokens=20, seed=5, stop=[]),
        num_samples=count,
        sampling_session_id=slot_id,
        seq_id=number,
    )
    return samplers.sample(service, asked, b"%d" % number)


def drawn(answer):
    """Tokens and logprobs of its sequences."""
    found = deserialize_sample_response(answer.body).sequences
    return [one.tokens for one in found], [one.logprobs_np for one in found]


@pytest.mark.parametrize("is_alone", [False, True])
def test_company_in_a_batch_changes_nothing(make_service, is_alone):
    """Requests that wait together draw what each draws alone; decoded alone, to the last bit."""
    service = make_service(is_alone=is_alone)

    async def work():
        session = opened(service)
        asked = types.CreateSamplingSessionRequest(
            session_id=session.id, sampling_session_seq_id=0, base_model="tiny"
        )
        slot_id = samplers.create_sampler(service, asked)
        alone = await service.futures.fetch(sample(service, slot_id, 0, [1, 2]).id, 60)
        prompts = [[3], [1, 2], [4, 5, 6, 7], [1, 2, 3]]
        waiting = [sample(service, slot_id, 1 + i, p) for i, p in enumerate(prompts)]
        assert len(service.worker._waiting) == 4
        beside = [await service.futures.fetch(one.id, 60) for one in waiting]
        return drawn(alone), [drawn(one) for one in beside]

    (tokens, logprobs), beside = run(service, work)
    assert beside[1][0] == tokens
    assert np.allclose(beside[1][1], logprobs, rtol=0, atol=0 if is_alone else 1e-5)
    assert all(len(one) == 20 for found, _ in beside for one in found)
    assert beside[0][0] != tokens


def test_old_snapshots_are_forgotten_and_saved_ones_read_again(make_service):
    """Memory is bounded: the oldest unnamed sampler says what to do; a named one goes on."""
    service = make_service(max_snapshots=2)

    async def work():
        session, model_id = await with_model(service)
        named = types.SaveWeightsForSamplerRequest(model_id=model_id, path="kept", seq_id=1)
        await service.futures.fetch(samplers.save_for_sampler(service, named, b"1").id, 30)
        looking = types.CreateSamplingSessionRequest(
            session_id=session.id,
            sampling_session_seq_id=9,
            model_path=f"tinker://{model_id}/sampler_weights/kept",
        )
        by_path = samplers.create_sampler(service, looking)
        first = await service.futures.fetch(sample(service, by_path, 0, [1, 2]).id, 30)
        for number in range(3):
            asked = types.SaveWeightsForSamplerRequest(
                model_id=model_id, sampling_session_seq_id=number, seq_id=2 + number
            )
            await service.futures.fetch(
                samplers.save_for_sampler(service, asked, b"n%d" % number).id, 30
            )
        oldest = sample(service, f"{session.id}:sample:0", 0, [1, 2])
        newest = sample(service, f"{session.id}:sample:2", 0, [1, 2])
        again = sample(service, by_path, 1, [1, 2])
        answers = [await service.futures.fetch(one.id, 30) for one in (oldest, newest, again)]
        return first, *answers

    first, oldest, newest, again = run(service, work)
    assert b"these sampler weights are forgotten" in oldest.body
    assert drawn(newest)[0] == drawn(again)[0] == drawn(first)[0]  # nothing was trained


def test_a_cancelled_request_is_not_worked_on(make_service):
    """A client that gave up does not keep the model busy."""
    service = make_service()

    async def work():
        session = opened(service)
        asked = types.CreateSamplingSessionRequest(
            session_id=session.id, sampling_session_seq_id=0, base_model="tiny"
        )
        slot_id = samplers.create_sampler(service, asked)
        futures = [sample(service, slot_id, i, [1, 2]) for i in range(3)]
        service.cancel(futures[0].id)
        service.cancel(futures[2].id)
        jobs = service.worker._next(), service.worker._next()
        return [[futures.index(job.future) for job in some] for some in jobs], futures[0].answer

    (first, second), answer = run_without_worker(work)
    assert (first, second) == ([], [1])
    assert b"was cancelled" in answer.body


def run_without_worker(work):
    """Some work while nobody serves the queue."""
    return asyncio.run(work())


def test_a_cancelled_pass_is_done_all_the_same(make_service):
    """Only samples can be called off: an update without one of its passes would be another."""
    service = make_service()

    async def work():
        _, model_id = await with_model(service)
        row = Row(
            tokens=np.array([1, 2]),
            inputs={"target_tokens": np.array([2, 3]), "weights": np.ones(2, np.float32)},
        )
        asked = PassRequest(
            model_id=model_id,
            seq_id=1,
            rows=[row],
            loss="cross_entropy",
            config={},
            is_forward_only=False,
        )
        passed = training.forward_backward(service, asked, b"1")
        service.cancel(passed.id)
        params = types.AdamParams(learning_rate=0.1)
        step = types.OptimStepRequest(optim_params=params, model_id=model_id, seq_id=2)
        done = await service.futures.fetch(training.optim_step(service, step, b"2").id, 30)
        return json.loads(done.body)["metrics"]["grad_norm"], passed.answer

    norm, answer = run(service, work)
    assert norm > 0
    assert b"cancelled" not in answer.body


def test_a_model_that_cannot_be_made_takes_no_room(make_service, tmp_path):
    """A damaged checkpoint is refused each time it is asked for, and nothing else is."""
    service = make_service(max_adapters=2)

    async def work():
        session, model_id = await with_model(service)
        save = types.SaveWeightsRequest(model_id=model_id, path="one", seq_id=1)
        await service.futures.fetch(saving.save_weights(service, save, b"1").id, 30)
        (damaged,) = tmp_path.glob("state/*/weights/one/adapter.safetensors")
        damaged.write_bytes(b"nothing")
        answers = []
        for number in range(1, 4):
            load = types.LoadWeightsRequest(
                path=f"tinker://{model_id}/weights/one",
                optimizer=True,
                session_id=session.id,
                model_seq_id=number,
            )
            loading = models.load_weights(service, load, b"load %d" % number)
            answers.append((await service.futures.fetch(loading.id, 30)).body)
        await service.futures.fetch(new_model(service, session, 9).id, 30)
        return answers

    for answer in run(service, work):
        assert b"is damaged" in answer


def test_a_request_for_too_many_samples_is_refused_at_once(make_service):
    """Nothing is made for each of them before they are counted."""
    service = make_service(max_samples=8)

    async def work():
        asked = types.CreateSamplingSessionRequest(
            session_id=opened(service).id, sampling_session_seq_id=0, base_model="tiny"
        )
        future = sample(service, samplers.create_sampler(service, asked), 0, [1], 10**9)
        return len(future.extra["sample_sequence_ids"]), future.answer.body

    count, answer = run_without_worker(work)
    assert count <= 8
    assert b"1..8 are taken" in answer


def a_step(service, session, number):
    """A step under that number."""
    model_id = f"{session.id}:train:0"
    params = types.AdamParams(learning_rate=0.0)
    asked = types.OptimStepRequest(optim_params=params, model_id=model_id, seq_id=number)
    return training.optim_step(service, asked, b"step %d" % number)


def test_a_number_that_never_comes_is_named(make_service):
    """Requests that wait for it fail; a step that may lack a pass too; then all is as ever."""
    service = make_service(gap_s=0.1)

    async def told(future):
        return json.loads((await service.futures.fetch(future.id, 30)).body)

    async def work():
        session, _ = await with_model(service)
        assert "metrics" in await told(a_step(service, session, 1))
        waiting = [a_step(service, session, number) for number in (5, 4, 7)]
        for future in waiting:
            said = await told(future)
            assert said["category"] == "user"
            assert "request 2, 3, 6 of this model did not arrive within 0.1 s" in said["error"]
        assert "did not arrive" in (await told(a_step(service, session, 8)))["error"]
        assert "metrics" in await told(a_step(service, session, 9))
        with pytest.raises(Refusal, match="the next one is 10"):
            a_step(service, session, 3)

    run(service, work)


def test_a_number_far_ahead_leaves_the_others_in_order(make_service):
    """It fails after a while; the client that counts rightly goes on."""
    service = make_service(gap_s=0.1)

    async def work():
        session, _ = await with_model(service)
        ahead = await service.futures.fetch(a_step(service, session, 4000).id, 30)
        assert b"1, 2, 3, 4, 5 and 3994 more" in ahead.body
        later = [a_step(service, session, number) for number in (3, 2, 1)]
        bodies = [json.loads((await service.futures.fetch(f.id, 30)).body) for f in later]
        assert [b"error" in json.dumps(b).encode() for b in bodies] == [False, False, True]

    run(service, work)
