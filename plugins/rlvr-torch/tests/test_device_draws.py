"""Draws of a captured pass: NumPy's random numbers, and the tokens that the CPU's sampler draws."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.blockwise_top_k import leaders
from rlvr_torch.generation.captured.memory import DecodeMemory
from rlvr_torch.generation.captured.philox import keys_of, uniforms
from rlvr_torch.generation.captured.sampling import Kind, Rows, _leaders, draw_rows
from rlvr_torch.generation.token_sampling import TokenSampler

CPU = torch.device("cpu")
SEEDS = [0, 1, -1, -7, 2**63, 2**64 - 1, 2**64, 2**127 + 12345, 2**130 + 5, 98765432123456789]


def numpys(seed, count):
    """What `TokenSampler` keeps for a request."""
    philox = np.random.Philox(key=seed & (2**128 - 1))
    return np.random.Generator(philox).random(count).astype(np.float32)


def test_random_numbers_are_numpys_to_the_bit():
    """Of any seed, from the first to the thousandth."""
    found = uniforms(torch.tensor([keys_of(s) for s in SEEDS]), torch.arange(1000).expand(10, -1))
    assert found.numpy().tobytes() == np.stack([numpys(s, 1000) for s in SEEDS]).tobytes()


@given(seed=st.integers(-(2**130), 2**130), places=st.lists(st.integers(0, 3000), min_size=1))
@settings(max_examples=50, deadline=None)
def test_a_number_depends_on_its_seed_and_place_alone(seed, places):
    """Asked for in any order, beside any other seeds."""
    keys = torch.tensor([keys_of(5), keys_of(seed)])
    found = uniforms(keys, torch.tensor([places, places]))[1]
    assert found.numpy().tobytes() == numpys(seed, 3001)[places].tobytes()


def rows_of(params):
    """The settings of requests as a captured pass has them, and their kind."""
    memory = DecodeMemory.__new__(DecodeMemory)
    memory._whole, memory._broken = np.zeros((len(params), 6), np.int64), np.ones((len(params), 2))
    memory._broken = memory._broken.astype(np.float32)
    memory._net = type("Net", (), {"vocab_size": 1 << 20})
    requests = [GenerateRequest(prompt=[0], params=one, seed=i) for i, one in enumerate(params)]
    memory.seat(range(len(params)), requests, [9] * len(params))
    whole, shares = torch.from_numpy(memory._whole), torch.from_numpy(memory._broken)
    rows = Rows(
        heat=shares[:, :1],
        is_greedy=whole[:, 4, None] > 0,
        is_cut=whole[:, 5, None] > 0,
        top_k=whole[:, 2, None],
        top_p=shares[:, 1:],
    )
    return rows, memory._kind_of(list(range(len(params)))), requests


some_params = st.builds(
    SamplingParams,
    max_tokens=st.just(9),
    temperature=st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.0, 2.5]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 64, 150, 5000]),
    top_p=st.sampled_from([1.0, 1.0, 0.9, 0.5, 1e-6]),
)


@given(
    params=st.lists(some_params, min_size=1, max_size=9),
    vocab=st.sampled_from([1, 2, 127, 128, 129, 1000, 20_011]),
    levels=st.sampled_from([0, 2, 30]),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=80, deadline=None)
def test_tokens_are_those_of_the_sampler_to_the_bit(params, vocab, levels, seed):
    """The same uniform numbers give the same tokens and logprobs; with many equal logits, too."""
    random = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(len(params), vocab, generator=random)
    logits = (logits * levels).round() / levels if levels else logits
    rows, kind, requests = rows_of(params)
    sampler = TokenSampler(CPU)
    sampler.reserve(len(params))
    sampler.seat(range(len(params)), requests, [9] * len(params))
    keys = torch.tensor([keys_of(request.seed) for request in requests])
    for place in range(3):
        numbers = uniforms(keys, torch.full((len(params), 1), place))
        tokens, logprobs = draw_rows(logits, numbers, rows, kind)
        wanted, wanted_logprobs = sampler.draw(logits, range(len(params)))
        assert tokens.tolist() == wanted.tolist()
        assert logprobs.numpy().tobytes() == wanted_logprobs.numpy().tobytes()


def test_a_kind_that_does_more_draws_the_same():
    """Rows of another kind beside it change nothing for a row."""
    logits = torch.randn(2, 500, generator=torch.Generator().manual_seed(1))
    rows, kind, _ = rows_of([SamplingParams(max_tokens=9)] * 2)
    numbers = torch.tensor([[0.3], [0.9]])
    assert kind == Kind()
    one, other = (
        draw_rows(logits, numbers, rows, k)
        for k in (kind, Kind(is_hot=True, has_greedy=True, most=512))
    )
    assert torch.equal(one[0], other[0])
    assert torch.equal(one[1], other[1])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_damaged_logits_give_no_finite_logprob(bad):
    """So that the row is looked at, whatever its settings."""
    logits = torch.zeros(3, 300)
    logits[:, 7] = bad
    params = [SamplingParams(temperature=t, top_k=k) for t, k in ((1.0, 0), (0.0, 0), (1.0, 5))]
    rows, kind, _ = rows_of(params)
    _, logprobs = draw_rows(logits, torch.full((3, 1), 0.5), rows, kind)
    assert not logprobs.isfinite().any()


@pytest.mark.parametrize("count", [1, 3, 6, 7])
def test_leaders_are_in_the_order_of_the_sampler(count):
    """The first of equal numbers, of which 0 and -0 are two; infinities at their ends."""
    inf = float("inf")
    logits = torch.tensor(
        [[-0.0, 0.0, -1.0, -0.0, 0.0, -inf, -2.0], [1.0, inf, -inf, 1.0, 0, 2, 1]]
    )
    found, where = _leaders(logits, count)
    wanted, index = leaders(logits, count)
    assert torch.equal(found, wanted)
    assert torch.equal(where, index)
