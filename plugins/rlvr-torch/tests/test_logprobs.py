"""Chunked logprobs and their gradients are those of full logits, without full logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_torch.training.logprobs import sequence_logprobs
from rlvr_torch.training.packing.prefix_packing import SupervisedSpan


def naive(model, datum):
    """Logprobs of a datum's supervised tokens through full logits, on its own."""
    tokens = torch.from_numpy(datum.tokens.astype(np.int64))
    logits = model(tokens[None])[0, :-1] / datum.temperature
    values = logits.log_softmax(1).gather(1, tokens[1:, None])[:, 0]
    values = torch.cat([torch.zeros(1), values])
    return torch.where(torch.from_numpy(datum.mask.copy()), values, torch.zeros(()))


@pytest.fixture
def data(make_datum):
    """Mixed lengths, prompts and temperatures; one with a gap in its mask; one datum twice."""
    gap = np.array([0, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
    return [
        make_datum(4, 20, seed=1),
        make_datum(1, 9, seed=2, temperature=0.7),
        make_datum(30, 61, seed=3, temperature=1.5),
        make_datum(2, 8, seed=4, mask=gap),
        make_datum(4, 20, seed=1),
    ]


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_equal_full_logits_for_mixed_lengths(model, data, chunk):
    """Each (T,) tensor is log p(token | before) at the datum's temperature, 0 where unmasked."""
    found = sequence_logprobs(model, data, chunk=chunk)
    for datum, values in zip(data, found, strict=True):
        assert values.shape == datum.tokens.shape
        assert torch.allclose(values, naive(model, datum), atol=1e-5)
        assert not values[~datum.mask].any()


@pytest.mark.parametrize("chunk", [3, 1000])
def test_gradients_equal_full_logits(model, data, chunk):
    """The recomputing backward pass gives every weight the gradient of the plain one."""
    signs = [
        torch.randn(len(d.tokens), generator=torch.Generator().manual_seed(i))
        for i, d in enumerate(data)
    ]

    def grads(values):
        model.zero_grad()
        sum((v * s).sum() for v, s in zip(values, signs, strict=True)).backward()
        return {name: value.grad.clone() for name, value in model.named_parameters()}

    wanted = grads([naive(model, datum) for datum in data])
    found = grads(sequence_logprobs(model, data, chunk=chunk))
    for name, value in wanted.items():
        assert torch.allclose(found[name], value, atol=1e-5, rtol=1e-4), name


def test_no_large_logits_ever_exist(model, make_datum):
    """Neither pass makes a float tensor as large as the logits of the supervised tokens."""
    data = [make_datum(2, 90, seed=i) for i in range(8)]
    vocab, supervised, chunk = model.config.vocab_size, 8 * 88, 16

    class Largest(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for value in result if isinstance(result, (tuple, list)) else [result]:
                if isinstance(value, torch.Tensor) and value.shape[-1:] == (vocab,):
                    self.found = max(self.found, value.numel())
            return result

    with Largest() as mode:
        sum(v.sum() for v in sequence_logprobs(model, data, chunk=chunk)).backward()
    assert chunk * vocab <= mode.found < supervised * vocab / 8


@pytest.fixture
def groups(make_datum):
    """Prompts of 30, 7 and 1 tokens with completions of 1 to 40; one prompt has one datum."""
    rng = np.random.default_rng(0)
    data = []
    for lead, lengths in ((30, (1, 40, 13, 5)), (7, (9, 9, 2)), (1, (20,))):
        prompt = rng.integers(0, 200, lead)
        for length in lengths:
            tokens = [*prompt, *rng.integers(0, 200, length)]
            mask = np.arange(lead + length) >= lead
            if length == 13:
                mask[lead + 3 : lead + 6] = False  # the environment's turn
            data.append(make_datum(lead, lead + length, len(data), tokens=tokens, mask=mask))
    return data


def test_sharing_a_prompt_changes_neither_logprobs_nor_gradients(model, groups):
    """A group's data give, together, what each gives alone."""
    found = sequence_logprobs(model, groups)
    sum((v * (1 + i)).sum() for i, v in enumerate(found)).backward()
    shared = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    wanted = [naive(model, datum) for datum in groups]
    sum((v * (1 + i)).sum() for i, v in enumerate(wanted)).backward()
    for a, b in zip(found, wanted, strict=True):
        assert torch.allclose(a, b, atol=1e-5)
    for name, value in model.named_parameters():
        assert torch.allclose(shared[name], value.grad, atol=1e-4, rtol=1e-4), name


def test_a_shared_prompt_is_computed_once(model, groups, passes):
    """30, 7 and 20 tokens of prompts (one with its answer), 55 and 17 of completions: one row."""
    sequence_logprobs(model, groups)
    assert passes == [(1, 30 + 55 + 7 + 17 + 20)]


def test_one_token_answers(model, make_datum):
    """Where every completion is one token, the prompts alone predict them."""
    data = [make_datum(5, 6, tokens=[9, 8, 7, 6, 5, last]) for last in range(3)]
    for datum, values in zip(data, sequence_logprobs(model, data), strict=True):
        assert torch.allclose(values, naive(model, datum), atol=1e-5)


def test_extent(make_datum):
    """From the first to the last supervised token; what follows is never computed."""
    mask = np.array([0, 1, 0, 1, 0, 0], dtype=bool)
    assert SupervisedSpan.of(make_datum(1, 6, mask=mask)) == SupervisedSpan(prompt=1, end=4)
    assert SupervisedSpan.of(make_datum(1, 6, mask=np.zeros(6, bool))) == SupervisedSpan(
        prompt=0, end=0
    )
