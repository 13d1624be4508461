"""A completion depends on its request and the weights alone, to the bit (docs/rollouts.md)."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.cpu.weights import is_batch_invariant
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.runtime.executor import Executor

from .conftest import NoEnd, requests_of


@pytest.fixture(params=["gpt2", "large gpt2", "gemma2", "hf gpt2"])
def net(request, make_hf):
    """Ours, with a small and with large weights; windows and soft caps; weights that lie turned."""
    if request.param == "gpt2":
        config = GPT2Config(vocab_size=301, n_positions=96, n_embd=32, n_layer=2, n_head=2)
    elif request.param == "large gpt2":
        config = GPT2Config(vocab_size=1001, n_positions=96, n_embd=512, n_layer=1, n_head=8)
    else:
        return load_net(str(make_hf(request.param.removeprefix("hf "))))
    return GPT2.new(config, seed=1)


def bits(completion):
    return completion.tokens.tolist(), completion.logprobs.tobytes()


def joined(engine, requests, rng):
    """Their completions; a few join at a time, in any order, after random numbers of passes."""
    batch, sequences = engine.start(), [engine.sequence(request) for request in requests]
    late = [sequences[i] for i in rng.permutation(len(sequences))]
    with batch.at_work():
        while late or not batch.is_done:
            batch.add([late.pop() for _ in range(min(len(late), int(rng.integers(0, 4))))])
            for _ in range(int(rng.integers(1, 8))):
                if not batch.is_done:
                    batch.step()
    return [bits(sequence.completion) for sequence in sequences]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("prompts", [8, 3], ids=["own prompts", "shared prompts"])
def test_alone_beside_others_or_late(net, prompts):
    """The same bits alone, together, backwards, in few rows, and joined in the middle."""
    requests = requests_of(8, prompts, prompts, longest=60, most=20)
    alone = [bits(Engine(net, NoEnd()).generate([request])[0]) for request in requests]
    assert len({tuple(tokens) for tokens, _ in alone}) > 5
    assert [bits(c) for c in Engine(net, NoEnd()).generate(requests)] == alone
    assert [bits(c) for c in Engine(net, NoEnd(), rows=3).generate(requests[::-1])][::-1] == alone
    for rows in (8, 3):
        rng = np.random.default_rng(rows)
        assert joined(Engine(net, NoEnd(), rows=rows), requests, rng) == alone


def test_on_two_cores(model):
    """Operations that are spread over two threads are the same beside any others, too."""
    torch.set_num_threads(2)
    requests = requests_of(6, 1, 3, longest=24, most=6)
    alone = [bits(Engine(model, NoEnd()).generate([request])[0]) for request in requests]
    assert [bits(c) for c in Engine(model, NoEnd()).generate(requests)] == alone


def test_a_dropped_row_leaves_the_others_bits(model):
    """Rows that are taken out in the middle, until one is left."""
    engine, requests = Engine(model, NoEnd()), requests_of(9, 3, 4, longest=60, most=20)
    alone = [bits(engine.generate([request])[0]) for request in requests]
    batch, sequences = engine.start(), [engine.sequence(request) for request in requests]
    batch.add(sequences)
    dropped = set()
    with batch.at_work():
        for i in (4, 0, 7, 1, 8):
            batch.step()
            batch.drop(sequences[i])
            dropped.add(i)
        while not batch.is_done:
            batch.step()
    for i, (sequence, wanted) in enumerate(zip(sequences, alone, strict=True)):
        tokens = sequence.completion.tokens.tolist()
        assert tokens == wanted[0][: len(tokens)]
        assert i in dropped or bits(sequence.completion) == wanted


def test_turns_with_random_delays_are_the_same_in_two_runs(model):
    """Eight rollouts of three turns, tools of any duration, through the inbox: equal bits."""
    executor = Executor()
    inbox = Inbox(Engine(model, NoEnd()), executor, lambda: 0, 4)

    async def rollout(number, rng):
        prompt, found = np.arange(5, 9 + number % 2), []
        for turn in range(3):
            params = SamplingParams(max_tokens=6 + number)
            seed = 10 * number + turn
            done = await inbox.generate(GenerateRequest(prompt=prompt, params=params, seed=seed))
            found.append(bits(done))
            await asyncio.sleep(rng.random() * 0.01)
            prompt = np.concatenate([prompt, done.tokens, [7]])
        return found

    async def run(seed):
        rng = np.random.default_rng(seed)
        return await asyncio.gather(*(rollout(number, rng) for number in range(8)))

    first, second = asyncio.run(run(0)), asyncio.run(run(1))
    executor.close()
    assert first == second


def test_memory_grows_with_what_is_used(model):
    """One request in a batch of many rows has room for itself and an empty row."""
    batch = Engine(model, NoEnd(), rows=1000).start()
    engine = Engine(model, NoEnd())
    batch.add([engine.sequence(requests_of(1, 0, 1, longest=60, most=20)[0])])
    with batch.at_work():
        batch.step()
    assert batch._cache._keys[0].shape[0] == 2
    assert len(batch._drawn) == 2


@pytest.mark.parametrize(
    ("family", "cores", "is_promised"),
    [
        ("gemma2", 1, True),
        ("hf gpt2", 4, True),
        ("llama", 3, False),
        ("gpt_oss", 1, False),
        ("qwen3_5_text", 1, False),
    ],
)
def test_it_says_where_this_is_promised(make_hf, family, cores, is_promised):
    """Not with three cores, nor for experts or states, whose sums depend on how many rows ask."""
    made = load_net(str(make_hf(family.removeprefix("hf "))))
    assert is_batch_invariant(made, cores) is is_promised
    ours = GPT2.new(GPT2Config(vocab_size=301, n_positions=96, n_embd=32, n_layer=2, n_head=2), 1)
    assert is_batch_invariant(ours, 2)
    assert not is_batch_invariant(ours.to(torch.bfloat16), 2)
