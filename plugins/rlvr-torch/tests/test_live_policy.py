"""Partial rollouts: sampling goes on over weight updates, and says who drew what."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.policy import LiveTorchPolicy
from rlvr_torch.runtime.executor import Executor


class Weights:
    """What a backend has: a model, its version, and a worker that trains and samples."""

    def __init__(self, model, tokenizer, slice_tokens=4):
        tokenizer.eos_id = -1  # no completion ends early
        self.model, self.version = model, 0
        self.worker = Executor()
        self.log = []
        self.inbox = Inbox(
            Engine(model, tokenizer), self.worker, lambda: self.version, slice_tokens
        )
        self.policy = LiveTorchPolicy(
            self.inbox, lambda: self.version, lambda: f"digest {self.version}"
        )

    async def step(self):
        def work(_):
            with torch.no_grad():
                for value in self.model.parameters():
                    value += 0.01
            self.version += 1
            self.log.append("step")

        await self.worker.run(work)


@pytest.fixture
def weights(model, tokenizer):
    eos = tokenizer.eos_id
    weights = Weights(model, tokenizer)
    yield weights
    weights.worker.close()
    tokenizer.eos_id = eos


def full_logprobs(model, request, completion):
    """Logprobs of a completion's tokens by one plain forward pass with the weights as they are."""
    tokens = torch.tensor([*request.prompt.tolist(), *completion.tokens.tolist()])[None]
    with torch.no_grad():
        logits = model(tokens)[0, len(request.prompt) - 1 : -1]
    found = logits.log_softmax(1).gather(1, tokens[0, len(request.prompt) :, None])
    return found[:, 0].numpy()


def requests_of(count, tokens=20):
    params = SamplingParams(max_tokens=tokens)
    return [GenerateRequest(prompt=[5, 6, 7 + i % 2], params=params, seed=i) for i in range(count)]


def test_without_a_step_it_is_the_plain_engine(weights, model, tokenizer):
    """Slices change nothing: the same tokens, bit-equal logprobs, one version."""
    requests = requests_of(6)
    live = asyncio.run(weights.policy.generate_many(requests))
    for one, other in zip(Engine(model, tokenizer).generate(requests), live, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()
        assert (one.versions, other.versions) == ((), (0,))


def test_steps_run_between_slices(weights):
    """Steps asked for meanwhile are not kept waiting until the end; versions name all who drew."""

    async def both():
        sampling = asyncio.create_task(weights.policy.generate_many(requests_of(4, 40)))
        await asyncio.sleep(0)  # the sampling asks first
        for _ in range(3):
            await weights.step()
        seen = sampling.done()
        return await sampling, seen

    completions, was_done = asyncio.run(both())
    assert not was_done
    assert {c.versions for c in completions} == {completions[0].versions}
    versions = completions[0].versions
    assert versions == tuple(sorted(set(versions)))
    assert versions[-1] == 3
    assert (weights.policy.version, weights.policy.digest) == (3, "digest 3")


def test_logprobs_are_of_the_distribution_drawn_from(weights, model, tokenizer):
    """An update after the first slice: its tokens are the old weights', the others say both."""
    requests = requests_of(2, 12)
    plain = Engine(model, tokenizer).generate(requests)
    slices = []

    def read_version():
        slices.append(weights.version)
        if len(slices) == 2:  # where a step in the worker would be
            with torch.no_grad():
                model.ln_f.weight *= 3
            weights.version = 1
        return weights.version

    inbox = Inbox(Engine(model, tokenizer), weights.worker, read_version, 4)
    policy = LiveTorchPolicy(inbox, read_version, lambda: "digest")
    live = asyncio.run(policy.generate_many(requests))
    for request, before, after in zip(requests, plain, live, strict=True):
        assert after.versions == (0, 1)
        assert after.tokens[:4].tolist() == before.tokens[:4].tolist()
        assert np.abs(after.logprobs[:4] - before.logprobs[:4]).max() < 1e-6
        # Only the last norm changed, so the keys that were kept are the new weights' own, too.
        wanted = full_logprobs(model, request, after)
        assert np.abs(after.logprobs[4:] - wanted[4:]).max() < 1e-4
    assert len(slices) == 3


def test_cancelling_ends_between_tokens(weights):
    """A cancelled call gives up soon, and the worker is free for the next."""

    async def cancelled():
        task = asyncio.create_task(weights.policy.generate_many(requests_of(4, 80)))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await weights.policy.generate_many(requests_of(1, 3))

    assert len(asyncio.run(cancelled())[0].tokens) == 3


def test_impossible_prompts_are_refused(weights):
    """What the engine refuses, the live handle refuses."""
    request = GenerateRequest(prompt=[], params=SamplingParams(), seed=0)
    with pytest.raises(BackendError, match="empty prompt"):
        asyncio.run(weights.policy.generate(request))
