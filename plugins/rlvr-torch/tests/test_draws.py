"""Tokens are drawn with the probabilities that the settings promise."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.blockwise_top_k import leaders, likeliest
from rlvr_torch.generation.token_sampling import TokenSampler, _invert, sums_of

CPU = torch.device("cpu")
LOGITS = torch.tensor([2.0, 0.5, 1.0, -1.0, 0.0])


def draw(count=4000, **params):
    """Tokens and logprobs of many rows with the same logits and different seeds."""
    request = SamplingParams(max_tokens=1, **params)
    requests = [GenerateRequest(prompt=[0], params=request, seed=seed) for seed in range(count)]
    return seated(requests).draw(LOGITS.expand(count, -1), range(count))


def seated(requests):
    """A row for each request."""
    draws = TokenSampler(CPU)
    draws.reserve(len(requests))
    draws.seat(range(len(requests)), requests, [r.params.max_tokens for r in requests])
    return draws


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


def test_of_equally_likely_tokens_the_first_is_taken():
    """Greedy rows, alone or beside others, take the first of the likeliest, with its logprob."""
    logits = torch.tensor([1.0, 3.0, 3.0, 0.0, 3.0])
    request = GenerateRequest(
        prompt=[0], params=SamplingParams(max_tokens=1, temperature=0.0), seed=0
    )
    other = GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=1), seed=0)
    for company in ([request] * 3, [request, other]):
        tokens, logprobs = seated(company).draw(
            logits.expand(len(company), -1), range(len(company))
        )
        assert tokens[0] == 1
        assert logprobs[0].item() == pytest.approx(logits.log_softmax(0)[1].item(), abs=1e-6)


def test_a_row_that_changes_hands_draws_as_its_new_request_says():
    """What was found out about the first rows is forgotten when one of them is taken or moved."""

    def request(temperature):
        params = SamplingParams(max_tokens=50, temperature=temperature)
        return GenerateRequest(prompt=[0], params=params, seed=5)

    def drawn(draws, count=30):
        return {draws.draw(LOGITS.expand(2, -1), range(2))[0][0].item() for _ in range(count)}

    draws = seated([request(0.0), request(0.0)])
    assert drawn(draws) == {0}
    draws.seat([0], [request(2.0)], [50])
    assert len(drawn(draws)) > 2
    draws.move(1, 0)
    assert drawn(draws) == {0}


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
    together, moved = seated(mixed), seated(mixed)
    moved.move(4, 0)  # its rows are now 4, 1, 2, 3
    alone = [seated([one]) for one in mixed]
    for _ in range(3):
        tokens, logprobs = together.draw(logits, range(5))
        some, some_logprobs = moved.draw(logits[[4, 1, 3]], [0, 1, 3])
        assert some.tolist() == tokens[[4, 1, 3]].tolist()
        assert torch.allclose(some_logprobs, logprobs[[4, 1, 3]])
        for row, one in enumerate(alone):
            assert one.draw(logits[row : row + 1], [0])[0].item() == tokens[row].item()


def test_a_row_that_is_taken_again_starts_anew():
    """Settings and numbers of the request before leave nothing behind, longer requests included."""
    first = GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=2, top_k=1), seed=3)
    second = GenerateRequest(
        prompt=[0], params=SamplingParams(max_tokens=9, temperature=1.5), seed=4
    )
    logits = torch.randn(1, 5, generator=torch.Generator().manual_seed(0))
    draws, fresh = seated([first]), seated([second])
    draws.draw(logits, [0])
    draws.seat([0], [second], [9])
    for _ in range(9):
        assert draws.draw(logits, [0])[0].item() == fresh.draw(logits, [0])[0].item()


@pytest.mark.parametrize("vocab", [1, 127, 128, 129, 1000])
def test_a_token_is_the_inverse_of_the_cumulative_distribution(vocab):
    """In blocks or not, the token is the first whose cumulative probability exceeds the number."""
    generator = torch.Generator().manual_seed(vocab)
    mass = torch.rand(200, vocab, generator=generator) ** 4
    numbers = torch.rand(200, 1, generator=generator)
    whole = torch.nn.functional.pad(mass, (0, -vocab % 128))
    tokens, total = _invert(whole, numbers)
    exact = mass.double().cumsum(dim=1)
    found = tokens[:, 0]
    rows = torch.arange(200)
    wanted = numbers[:, 0].double() * exact[:, -1]
    slack = 1e-5 * exact[:, -1]
    assert bool((exact[rows, found] > wanted - slack).all())
    assert bool((exact[rows, found] - mass[rows, found] <= wanted + slack).all())
    assert torch.allclose(total[:, 0].double(), exact[:, -1])


def test_impossible_tokens_are_never_drawn():
    """Probability 0 is never, also at the ends of the vocabulary and for extreme numbers."""
    logits = torch.tensor([-np.inf, 1.0, -np.inf, 2.0, -np.inf]).expand(2000, -1)
    requests = [
        GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=1), seed=s)
        for s in range(2000)
    ]
    draws = seated(requests)
    draws._numbers[:3, 0] = torch.tensor([0.0, 1.0, 1.0 - 2**-24])
    tokens, _ = draws.draw(logits, range(2000))
    assert set(tokens.tolist()) == {1, 3}


@pytest.mark.parametrize("seed", [0, -1, 2**63, 2**130 + 5])
def test_any_whole_number_is_a_seed(seed):
    """Seeds may be negative or huge."""
    request = GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=2), seed=seed)
    assert draw_of(request) == draw_of(request)


def draw_of(request):
    """The second token of a request."""
    draws = seated([request])
    draws.draw(LOGITS[None], [0])
    return draws.draw(LOGITS[None], [0])[0].item()


@pytest.mark.parametrize("levels", [3, 40, 100_000])
def test_leaders_are_the_front_of_the_whole_order(levels):
    """Selecting before sorting changes nothing, however many tokens are equally likely."""
    random = torch.Generator().manual_seed(levels)
    probs = torch.randint(1, levels + 1, (6, 500), generator=random) / levels
    ordered, index = probs.sort(dim=1, descending=True, stable=True)
    for count in (1, 7, 128, 499, 500, 640):
        found, where = leaders(probs, count)
        kept = min(count, found.shape[1])
        assert torch.equal(found[:, :kept], ordered[:, :kept])
        assert torch.equal(where[:, :kept], index[:, :kept])


def test_top_k_draws_the_same_in_a_large_vocabulary_in_any_company():
    """A row of top-k 5 draws the same tokens beside rows of another top-k, or of none."""
    logits = torch.randn(3, 2000, generator=torch.Generator().manual_seed(1)) * 3

    def request(**params):
        return GenerateRequest(prompt=[0], params=SamplingParams(max_tokens=40, **params), seed=9)

    some = [request(top_k=5), request(top_k=300, top_p=0.9), request(top_p=0.5)]
    together, pair, alone = seated(some), seated(some[:2]), seated(some[:1])
    for _ in range(40):
        drawn = together.draw(logits, range(3))[0]
        assert torch.equal(pair.draw(logits[:2], range(2))[0], drawn[:2])
        assert torch.equal(alone.draw(logits[:1], range(1))[0], drawn[:1])


@pytest.mark.parametrize("vocab", [127, 128 * 128, 128 * 128 + 77])
@pytest.mark.parametrize("levels", [5, 10_000_000])
def test_the_likeliest_is_the_first_of_the_largest(vocab, levels):
    """In blocks or not, with many equal numbers or none, and where one is not a number."""
    random = torch.Generator().manual_seed(vocab)
    values = torch.randint(-levels, levels, (40, vocab), generator=random).float()
    values[0, vocab - 1] = values[1, 0] = 2.0 * levels
    values[2] = -np.inf
    wanted = values.double().numpy()
    peak, token = likeliest(values)
    assert np.array_equal(token[:, 0].numpy(), wanted.argmax(axis=1))
    assert np.array_equal(peak[:, 0].numpy(), wanted.max(axis=1))
    for at in (0, vocab // 2, vocab - 1):
        values[3, at] = np.nan
        assert likeliest(values)[0][3].isnan().all()
        assert 0 <= int(likeliest(values)[1][3]) < vocab
        values[3, at] = 0.0


@pytest.mark.parametrize("levels", [40, 10_000_000])
def test_leaders_of_a_large_vocabulary(levels):
    """Looked for by blocks they are the same, with many equal numbers or none."""
    random = torch.Generator().manual_seed(levels)
    values = torch.randint(0, levels, (6, 20_011), generator=random).float()
    values[0, -3:] = values[1, :3] = 2.0 * levels
    ordered, index = values.sort(dim=1, descending=True, stable=True)
    for count in (1, 7, 50, 77):
        found, where = leaders(values, count)
        assert torch.equal(found[:, :count], ordered[:, :count])
        assert torch.equal(where[:, :count], index[:, :count])


def test_sums_are_made_in_parts_of_the_rows():
    """Of rows that are too many for the cache too: within 1e-6 of the exponentials' sum."""
    values = torch.randn(11, 60_000, generator=torch.Generator().manual_seed(0))
    peak = values.amax(dim=1, keepdim=True)
    before = values.clone()
    wanted = (values - peak).double().exp().sum(dim=1, keepdim=True)
    assert torch.allclose(sums_of(values, peak, None).double(), wanted, rtol=1e-6)
    assert torch.equal(values, before)
