"""Tokens are drawn with the probabilities that the settings promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlvr.types import GenerateRequest, SamplingParams
from rlvr_torch.draws import Draws

CPU = torch.device("cpu")
LOGITS = torch.tensor([2.0, 0.5, 1.0, -1.0, 0.0])


def draw(count=4000, **params):
    """Tokens and logprobs of many rows with the same logits and different seeds."""
    request = SamplingParams(max_tokens=1, **params)
    requests = [GenerateRequest(prompt=[0], params=request, seed=seed) for seed in range(count)]
    return Draws(requests, [1] * count, CPU).draw(LOGITS.expand(count, -1), 0)


def shares(tokens):
    """How often each token was drawn."""
    return torch.bincount(tokens, minlength=5) / len(tokens)


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_frequencies_follow_the_softmax(temperature):
    """Over many seeds tokens appear as often as softmax(logits / temperature) says."""
    tokens, logprobs = draw(temperature=temperature)
    wanted = (LOGITS / temperature).softmax(0)
    assert (shares(tokens) - wanted).abs().max() < 0.03
    assert torch.allclose(logprobs, wanted.log()[tokens], atol=1e-6)


def test_top_k_keeps_the_likeliest():
    """top_k=2 draws from the two likeliest, in their proportion; logprobs are the whole's."""
    tokens, logprobs = draw(top_k=2)
    kept = LOGITS[[0, 2]].softmax(0)
    found = shares(tokens)
    assert found[[1, 3, 4]].sum() == 0
    assert abs(found[0] - kept[0]) < 0.03
    assert torch.allclose(logprobs, LOGITS.log_softmax(0)[tokens], atol=1e-6)


def test_top_p_keeps_the_smallest_set_that_reaches_the_mass():
    """Probabilities are .56 .12 .21 .03 .08: a mass of .7 needs the first two by size."""
    tokens, _ = draw(top_p=0.7)
    assert set(tokens.tolist()) == {0, 2}


def test_a_tiny_top_p_keeps_one_token():
    """The likeliest token always stays."""
    assert set(draw(top_p=1e-6, count=50)[0].tolist()) == {0}


def test_temperature_zero_is_greedy():
    """The likeliest token, with its logprob at temperature 1."""
    tokens, logprobs = draw(temperature=0.0, count=50)
    assert set(tokens.tolist()) == {0}
    assert torch.allclose(logprobs, LOGITS.log_softmax(0)[0].expand(50))


def test_a_row_draws_the_same_in_any_company():
    """Rows with other settings beside it, or dropped around it, change nothing for a row."""

    def request(seed, **params):
        return GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=3, **params), seed=seed)

    mixed = [
        request(1),
        request(2, top_k=2),
        request(3, temperature=0.0),
        request(4, temperature=0.7, top_p=0.9),
        request(5),
    ]
    logits = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
    together = Draws(mixed, [3] * 5, CPU)
    kept = Draws(mixed, [3] * 5, CPU)
    kept.keep(torch.tensor([1, 3, 4]))
    for step in range(3):
        tokens, logprobs = together.draw(logits, step)
        some, some_logprobs = kept.draw(logits[[1, 3, 4]], step)
        assert some.tolist() == tokens[[1, 3, 4]].tolist()
        assert torch.allclose(some_logprobs, logprobs[[1, 3, 4]])
        for row, one in enumerate(mixed):
            alone, _ = Draws([one], [3], CPU).draw(logits[row : row + 1], step)
            assert alone.item() == tokens[row].item()


def test_impossible_tokens_are_never_drawn():
    """Probability 0 is never, also at the ends of the vocabulary and for extreme numbers."""
    logits = torch.tensor([-np.inf, 1.0, -np.inf, 2.0, -np.inf]).expand(2000, -1)
    requests = [
        GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=1), seed=s)
        for s in range(2000)
    ]
    draws = Draws(requests, [1] * 2000, CPU)
    draws._numbers[:3, 0] = torch.tensor([0.0, 1.0, 1.0 - 2**-24])
    tokens, _ = draws.draw(logits, 0)
    assert set(tokens.tolist()) == {1, 3}


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**130 + 5])
def test_any_whole_number_is_a_seed(seed):
    """Seeds may be negative or huge."""
    request = GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=2), seed=seed)
    first = Draws([request], [2], CPU).draw(LOGITS[None], 1)[0]
    assert first.item() == Draws([request], [2], CPU).draw(LOGITS[None], 1)[0].item()
