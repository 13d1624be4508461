"""Chunked logprobs and their gradients are those of full logits, without full logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_torch.logprobs import sequence_logprobs, supervised_length


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


def test_supervised_length(make_datum):
    """Counts to the last supervised token; what follows is never computed."""
    mask = np.array([0, 1, 0, 1, 0, 0], dtype=bool)
    assert supervised_length(make_datum(1, 6, mask=mask)) == 4
    assert supervised_length(make_datum(1, 6, mask=np.zeros(6, bool))) == 0
