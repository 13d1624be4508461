"""Requests that come one at a time: shared batches, faults, cancelling, turns with training."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from contextlib import nullcontext, suppress

import numpy as np
import pytest
import torch

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.policy import LiveTorchPolicy, TorchPolicy
from rlvr_torch.runtime.executor import Executor

SLICE = 4


class Desk:
    """An engine behind its inbox, the thread, and the version of the weights."""

    def __init__(self, model, tokenizer):
        self.model, self.version = model, 0
        self.executor = Executor()
        self.engine = Engine(model, tokenizer)
        self.inbox = Inbox(self.engine, self.executor, lambda: self.version, SLICE)
        self.live = LiveTorchPolicy(self.inbox, lambda: self.version, lambda: "digest")

    def strict(self):
        return TorchPolicy(
            self.version, "digest", self.inbox, self.executor, lambda: self.version, print
        )

    def close(self):
        self.inbox.close()
        self.executor.close()


@pytest.fixture
def desk(model, tokenizer):
    eos, tokenizer.eos_id = tokenizer.eos_id, -1  # no completion ends early
    desk = Desk(model, tokenizer)
    yield desk
    desk.close()
    tokenizer.eos_id = eos


@pytest.fixture
def passes(passes, monkeypatch):
    """(rows, tokens) of each pass; the event loop has its turn after it."""
    counting = GPT2.hidden

    def slow(*given):
        time.sleep(0.001)
        return counting(*given)

    monkeypatch.setattr(GPT2, "hidden", slow)
    return passes


def request_of(seed=0, tokens=20, prompt=(5, 6, 7), **params):
    params = SamplingParams(max_tokens=tokens, **params)
    return GenerateRequest(prompt=list(prompt), params=params, seed=seed)


def same(one, other):
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.logprobs.tobytes() == other.logprobs.tobytes()


def test_calls_of_one_tick_are_one_batch(desk, passes):
    """Eight coroutines with one prompt: it is read once, and their bits are those of a batch."""
    requests = [request_of(seed) for seed in range(8)]
    completions = asyncio.run(desk.live.generate_many(requests))
    assert [shape for shape in passes if shape[1] > 1] == [(1, 3)]
    for one, other in zip(completions, desk.engine.generate(requests), strict=True):
        same(one, other)


def test_two_equal_runs_are_equal_to_the_bit(desk):
    """Many prompts and lengths, all asked for in one tick."""
    requests = [request_of(i, 5 + i, prompt=[5] * (1 + i % 5)) for i in range(30)]
    first, second = (asyncio.run(desk.live.generate_many(requests)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        same(one, other)


def test_a_completion_is_delivered_when_it_ends(desk):
    """A short one does not wait for a long one that began with it."""

    async def main():
        long = asyncio.create_task(desk.live.generate(request_of(1, 90)))
        await desk.live.generate(request_of(2, 2))
        seen = long.done()
        await long
        return seen

    assert not asyncio.run(main())


def test_cancelling_frees_one_row_alone(desk, passes):
    """The others go on, and fewer rows are decoded."""
    requests = [request_of(seed, 80) for seed in range(4)]
    wanted = desk.engine.generate(requests)

    async def main():
        tasks = [asyncio.create_task(desk.live.generate(request)) for request in requests]
        while len(passes) < 9:
            await asyncio.sleep(0.001)
        for task in tasks[1:3]:
            task.cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(found.pop(1), asyncio.CancelledError) for _ in range(2))
        return found

    passes.clear()
    for one, other in zip(asyncio.run(main()), [wanted[0], wanted[3]], strict=True):
        same(one, other)
    assert (passes[1][0], passes[-1][0]) == (4, 2)


@pytest.mark.parametrize("prompt", [(), (5, 9999)])
def test_a_fault_of_a_request_fails_it_alone(desk, prompt):
    """An empty prompt, or ids the model does not know, beside good requests."""

    async def main():
        good = asyncio.create_task(desk.live.generate(request_of(1)))
        with pytest.raises(BackendError, match=r"empty prompt|9999"):
            await desk.live.generate(request_of(2, prompt=prompt))
        return await good

    same(asyncio.run(main()), desk.engine.generate([request_of(1)])[0])


def test_a_prompt_without_room_is_answered(desk):
    """It fills all positions: an empty completion."""
    done = asyncio.run(desk.live.generate(request_of(prompt=[5] * 96)))
    assert (len(done.tokens), done.finish) == (0, "length")


def test_damaged_weights_fail_all(desk):
    """Logits that are not finite reach all who wait; the next run is another."""
    weight = desk.model.ln_f.weight

    async def main(tasks):
        return await asyncio.gather(*tasks, return_exceptions=True)

    with torch.no_grad():
        before = weight[0].item()
        weight[0] = float("nan")
    found = asyncio.run(main([desk.live.generate(request_of(i)) for i in range(3)]))
    assert all("not finite" in str(error) for error in found)
    with torch.no_grad():
        weight[0] = before
    assert len(asyncio.run(desk.live.generate(request_of())).tokens) == 20


def test_any_error_of_the_thread_reaches_all(desk, monkeypatch):
    """Also one that nobody thought of."""
    monkeypatch.setattr(Engine, "start", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        asyncio.run(desk.live.generate(request_of()))


def test_training_waits_for_a_slice_at_most(desk, passes):
    """Work that is asked for while rows are decoded begins after at most one slice of passes."""

    async def main():
        sampling = asyncio.create_task(desk.live.generate_many([request_of(i, 90) for i in (1, 2)]))
        while not passes:
            await asyncio.sleep(0)
        waited = []
        for _ in range(5):
            before = len(passes)
            after = await desk.executor.run(lambda _: len(passes))
            waited.append(after - before)
        assert not sampling.done()
        await sampling
        return waited

    assert max(asyncio.run(main())) <= SLICE + 1  # and the prefill


def test_old_and_live_policies_in_one_batch(desk):
    """After an update the strict request fails at the next slice, the live one names both."""

    def step(_):
        with torch.no_grad():
            for value in desk.model.parameters():
                value += 0.01
        desk.version += 1

    async def main():
        old = desk.strict()
        strict = asyncio.create_task(old.generate(request_of(1, 90)))
        live = asyncio.create_task(desk.live.generate(request_of(1, 90)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await desk.executor.run(step)  # after the first slice
        with pytest.raises(BackendError, match="version 0 is stale"):
            await strict
        with pytest.raises(BackendError, match="version 0 is stale"):
            await old.generate(request_of())
        new = await desk.strict().generate(request_of(3))
        return await live, new

    live, new = asyncio.run(main())
    assert live.versions == (0, 1)
    assert new.versions == ()
    same(new, desk.engine.generate([request_of(3)])[0])  # with weights laid out anew


def test_weights_are_laid_out_once_a_version(desk, monkeypatch):
    """Not once a slice; and again after an update."""
    from rlvr_torch.generation.cpu import weights

    made = []
    plain = weights.Matmul
    monkeypatch.setattr(weights, "Matmul", lambda *given: made.append(given) or plain(*given))

    async def several_slices():
        await desk.live.generate(request_of(0, 5 * SLICE))
        await desk.executor.run(lambda _: None)  # the batch has ended

    asyncio.run(several_slices())
    once = len(made)
    assert once == 9  # four a layer, and the head

    def step(_):
        desk.model.wpe.weight.data.add_(0.1)
        desk.version += 1

    async def main():
        sampling = asyncio.create_task(desk.live.generate(request_of(0, 90)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await desk.executor.run(step)  # after the first slice
        await sampling

    asyncio.run(main())
    assert len(made) == 2 * once
    assert not any("forward" in module.__dict__ for module in desk.model.modules())


def test_closing_fails_what_waits(desk):
    """Requests in the making, and later ones, also when the thread has ended."""

    async def main():
        waiting = asyncio.create_task(desk.live.generate(request_of(0, 90)))
        await asyncio.sleep(0.005)
        desk.inbox.close()
        with pytest.raises(BackendError, match="closed"):
            await waiting
        with pytest.raises(BackendError, match="closed"):
            await desk.live.generate(request_of())
        desk.executor.close()
        with pytest.raises(BackendError, match="closed"):
            await desk.live.generate(request_of())

    asyncio.run(asyncio.wait_for(main(), 20))


class Instant:
    """An engine whose completions end at once, so that its batch ends all the time."""

    tokenizer = None
    context_length = 100

    def sequence(self, request):
        return RunningSequence(request, 5, Letters())

    def start(self):
        return Instants()


class Letters:
    ends = frozenset()

    def decode(self, tokens):
        return "x" * len(tokens)


class Instants:
    def __init__(self):
        self.waiting = []

    is_done = property(lambda self: not self.waiting)

    def add(self, sequences):
        self.waiting += sequences

    def drop(self, sequence):
        self.waiting.remove(sequence)

    def at_work(self, version=None):
        return nullcontext()

    def step(self, version=None):
        some, self.waiting = self.waiting[:2], self.waiting[2:]
        for sequence in some:
            sequence.take(1, -1.0)
        return some

    def settle(self):
        return []


def test_no_request_is_left_waiting():
    """Requests arrive in the very moment in which the thread's function ends, or are cancelled."""
    executor = Executor()
    inbox = Inbox(Instant(), executor, lambda: 0, 3)
    rng = random.Random(0)

    async def client(count):
        for i in range(count):
            call = asyncio.create_task(inbox.generate(request_of(i)))
            for _ in range(rng.randrange(4)):
                await asyncio.sleep(0)
            if rng.random() < 0.2:
                call.cancel()
            with suppress(asyncio.CancelledError):
                assert len((await call).tokens) == 1
            if rng.random() < 0.3:
                await asyncio.sleep(rng.random() * 0.0005)

    async def main():
        await asyncio.wait_for(asyncio.gather(*(client(300) for _ in range(4))), 60)
        await executor.run(lambda _: None)

    asyncio.run(main())
    assert (inbox._calls, inbox._new, inbox._gone, inbox._batch) == ({}, [], [], None)
    executor.close()


def test_several_loops_one_after_the_other(desk):
    """A loop that ends with a request under way leaves nothing behind for the next."""

    async def abandon():
        asyncio.create_task(desk.live.generate(request_of(0, 90)))  # noqa: RUF006
        await asyncio.sleep(0)

    before = threading.active_count()
    for seed in range(9):
        asyncio.run(abandon())
        assert len(asyncio.run(desk.live.generate(request_of(seed))).tokens) == 20
    assert threading.active_count() < before + 9
    assert np.isfinite(asyncio.run(desk.live.generate(request_of())).logprobs).all()
