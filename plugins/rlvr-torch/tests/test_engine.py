"""Generation: the distribution is the model's, whatever the batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr_torch.generation.cache.prompts import Prompts
from rlvr_torch.generation.cpu.matmul import Matmul
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.interface import Heads

PROMPTS = ["module ", "m", "assign y = a ^ b;\n  assign y = b"]


def requests_of(tokenizer, prompts=PROMPTS, seeds=4, **params):
    """A group of `seeds` requests for each prompt."""
    settings = SamplingParams(**{"max_tokens": 40, **params})
    return [
        GenerateRequest(prompt=tokenizer.encode(p), params=settings, seed=100 * i + s)
        for i, p in enumerate(prompts)
        for s in range(seeds)
    ]


def full_logprobs(model, request, completion):
    """Logprobs of a completion's tokens by one plain forward pass over the whole sequence."""
    tokens = torch.tensor([*request.prompt.tolist(), *completion.tokens.tolist()])[None]
    with torch.no_grad():
        logits = model(tokens)[0, len(request.prompt) - 1 : -1]
    scaled = logits / (request.params.temperature or 1.0)
    return scaled.log_softmax(1).gather(1, tokens[0, len(request.prompt) :, None])[:, 0].numpy()


def greedy(model, prompt, count):
    """The likeliest tokens by repeated plain forward passes, without a cache."""
    tokens = list(prompt)
    with torch.no_grad():
        for _ in range(count):
            tokens.append(int(model(torch.tensor([tokens]))[0, -1].argmax()))
    return tokens[len(prompt) :]


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7])
def test_logprobs_are_the_models(model, tokenizer, temperature):
    """Reported logprobs equal a full forward pass within 1e-4, prompts of mixed lengths shared."""
    requests = requests_of(tokenizer, temperature=temperature)
    for request, completion in zip(
        requests, Engine(model, tokenizer).generate(requests), strict=True
    ):
        wanted = full_logprobs(model, request, completion)
        assert np.abs(completion.logprobs - wanted).max() < 1e-4


def test_greedy_equals_decoding_without_a_cache(model, tokenizer):
    """Temperature 0 gives the tokens of repeated argmax, for each prompt of a ragged batch."""
    requests = requests_of(tokenizer, seeds=2, temperature=0.0, max_tokens=25)
    for request, completion in zip(
        requests, Engine(model, tokenizer).generate(requests), strict=True
    ):
        wanted = greedy(model, request.prompt.tolist(), 25)
        assert completion.tokens.tolist() == wanted[: len(completion.tokens)]
        assert len(completion.tokens) == 25 or completion.tokens[-1] == tokenizer.eos_id


def test_a_request_draws_the_same_in_any_batch(model, tokenizer):
    """Alone, in a batch, in another order, in small batches: the same tokens."""
    requests = requests_of(tokenizer, seeds=2)
    together = [c.tokens.tolist() for c in Engine(model, tokenizer).generate(requests)]
    alone = [Engine(model, tokenizer).generate([r])[0].tokens.tolist() for r in requests]
    backwards = Engine(model, tokenizer).generate(requests[::-1])[::-1]
    small = Engine(model, tokenizer, rows=5, prefill_tokens=8).generate(requests)
    assert together == alone
    assert together == [c.tokens.tolist() for c in backwards]
    assert together == [c.tokens.tolist() for c in small]
    assert len({tuple(tokens) for tokens in together}) == len(requests)


def test_each_distinct_prompt_is_read_once(model, tokenizer, passes):
    """A group's prompt is prefilled once and alone, and decoding passes hold one token a row."""
    prompts = [*PROMPTS, "y"]  # "m" and "y" are a token each
    Engine(model, tokenizer).generate(requests_of(tokenizer, prompts, seeds=6))
    lengths = sorted((len(tokenizer.encode(p)) for p in prompts), reverse=True)
    assert passes[: len(prompts)] == [(1, length) for length in lengths]
    assert passes[len(prompts)] == (6 * len(prompts), 1)
    assert all(shape[1] == 1 for shape in passes[len(prompts) :])


def test_prompts_take_memory_only_where_none_is_free():
    """A prompt that has a place, or finds a free one, makes no room for more."""
    prompts = Prompts([Heads(queries=2, keys=1, width=4, scale=0.5)], torch.float32, "cpu")
    for names, places in (("ab", 2), ("ab", 2), ("abc", 4), ("cd", 4), ("de", 8)):
        prompts.make_room(dict.fromkeys(names, 3))
        assert prompts.room == (places, 16), names
        for name in names:
            prompts.open(name, 3)


def test_finished_rows_leave_the_batch(model, tokenizer, passes):
    """Rows that end early are not computed until the longest has ended."""
    requests = [
        GenerateRequest(
            prompt=tokenizer.encode(PROMPTS[i % 3]),
            params=SamplingParams(max_tokens=4 * (i + 1)),
            seed=i,
        )
        for i in range(12)
    ]
    completions = Engine(model, tokenizer).generate(requests)
    assert [len(c.tokens) <= 4 * (i + 1) for i, c in enumerate(completions)] == [True] * 12
    assert passes[-1][0] <= 2
    for request, completion in zip(requests, completions, strict=True):
        wanted = full_logprobs(model, request, completion)
        assert np.abs(completion.logprobs - wanted).max() < 1e-4


def test_end_of_text_ends_a_completion(model, tokenizer):
    """The end-of-text token is in the tokens, has a logprob, and is not in the text."""
    with torch.no_grad():
        model.wte.weight[tokenizer.eos_id] = 4 * model.ln_f.bias
        model.ln_f.bias *= 2
    completions = Engine(model, tokenizer).generate(requests_of(tokenizer, seeds=20))
    ended = [c for c in completions if c.finish == "stop"]
    assert ended
    for completion in ended:
        assert completion.tokens[-1] == tokenizer.eos_id
        assert tokenizer.eos_id not in completion.tokens[:-1]
        assert completion.text == tokenizer.decode(completion.tokens[:-1].tolist())
        assert completion.logprobs.shape == completion.tokens.shape


def test_stop_texts_end_a_completion(model, tokenizer):
    """Sampling ends with the token that completes a stop text; `text` is what came before it."""
    plain = Engine(model, tokenizer).generate(requests_of(tokenizer))
    stops = ("a", "e", "=")
    stopped = Engine(model, tokenizer).generate(requests_of(tokenizer, stop=stops))
    assert any(c.finish == "stop" for c in stopped)
    for before, after in zip(plain, stopped, strict=True):
        count = len(after.tokens)
        assert after.tokens.tolist() == before.tokens[:count].tolist()
        assert not any(stop in after.text for stop in stops)
        if after.finish == "stop" and after.tokens[-1] != tokenizer.eos_id:
            raw = tokenizer.decode(after.tokens.tolist())
            assert raw.startswith(after.text)
            assert any(stop in raw for stop in stops)
            shorter = tokenizer.decode(after.tokens[:-1].tolist())
            assert not any(stop in shorter for stop in stops)


def test_positions_run_out(model, tokenizer):
    """A completion ends with "length" where the model has no more positions, and is still right."""
    requests = requests_of(tokenizer, max_tokens=500)
    completions = Engine(model, tokenizer).generate(requests)
    for request, completion in zip(requests, completions, strict=True):
        total = len(request.prompt) + len(completion.tokens)
        assert total == model.config.n_positions or completion.finish == "stop"
        wanted = full_logprobs(model, request, completion)
        assert np.abs(completion.logprobs - wanted).max() < 1e-4


@pytest.mark.parametrize("length", [96, 200])
def test_a_prompt_without_room_gets_an_empty_completion(model, tokenizer, length):
    """A prompt that fills all positions does not sink the others."""
    full = GenerateRequest(prompt=[5] * length, params=SamplingParams(max_tokens=4), seed=0)
    empty, other = Engine(model, tokenizer).generate(
        [full, *requests_of(tokenizer, ["m"], 1, max_tokens=4)]
    )
    assert (len(empty.tokens), empty.finish, empty.text) == (0, "length", "")
    assert len(other.tokens) > 0


def test_no_requests(model, tokenizer):
    """Nothing asked, nothing given."""
    assert Engine(model, tokenizer).generate([]) == []


@pytest.mark.parametrize(("prompt", "message"), [([], "empty prompt"), ([5, 9999], "9999")])
def test_impossible_prompts_are_refused(model, tokenizer, prompt, message):
    """An empty prompt, or ids the model does not know, are named before anything runs."""
    request = GenerateRequest(prompt=prompt, params=SamplingParams(), seed=0)
    with pytest.raises(BackendError, match=message):
        Engine(model, tokenizer).generate([request])


def test_damaged_weights_are_noticed(model, tokenizer):
    """Logits that are not finite stop generation: no token comes of them."""
    with torch.no_grad():
        model.ln_f.weight[0] = float("nan")
    with pytest.raises(BackendError, match="not finite"):
        Engine(model, tokenizer).generate(requests_of(tokenizer))


def test_cancelling_stops_between_tokens(model, tokenizer):
    """A cancelled call ends at the next token."""
    asked = []

    def is_cancelled():
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(BackendError, match="cancelled"):
        Engine(model, tokenizer).generate(requests_of(tokenizer), is_cancelled)
    assert len(asked) == 4


@pytest.mark.parametrize("is_small", [True, False])
def test_weights_are_laid_out_once_while_they_stay(model, tokenizer, monkeypatch, is_small):
    """The copy of a small net serves the next batch; new weights are laid out, and drawn with."""
    made = []
    monkeypatch.setattr(
        "rlvr_torch.generation.cpu.weights.Matmul",
        lambda weight, bias: made.append(weight) or Matmul(weight, bias),
    )
    monkeypatch.setattr("rlvr_torch.generation.decode_weights._SMALL", 1 << 26 if is_small else 0)
    engine, requests = Engine(model, tokenizer), requests_of(tokenizer)
    before = engine.generate(requests)
    once = len(made)
    assert engine.generate(requests) == before
    assert len(made) == (once if is_small else 2 * once) > 0
    with torch.no_grad():
        model.h[0].mlp.c_fc.weight.mul_(-3)
    after = engine.generate(requests)
    assert after == Engine(model, tokenizer).generate(requests) != before
