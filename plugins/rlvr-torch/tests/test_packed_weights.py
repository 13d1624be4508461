"""Weights laid out for decoding give the same products, and leave nothing behind."""

from __future__ import annotations

import pytest
import torch

from rlvr_torch import packed_weights
from rlvr_torch.packed_weights import PackedWeights


@pytest.mark.parametrize("large", [1, 1 << 40])
def test_products_are_those_of_the_weights(model, monkeypatch, large):
    """Layers and head, in either layout of the head: within 1e-5 of plain products."""
    monkeypatch.setattr(packed_weights, "_LARGE_HEAD", large)
    weights = PackedWeights(model, torch.float32, 4, 64)
    x = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(0))
    linear = model.h[0].mlp.c_fc
    with torch.inference_mode():
        wanted = linear(x), x[0] @ model.head.t()
        with weights.packed():
            assert "forward" in linear.__dict__
            found = linear(x), weights.logits(x[0], None)
            biased = weights.logits(x[0], torch.ones(model.vocab_size))
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-5
    assert (biased - wanted[1] - 1).abs().max() < 1e-5


def test_nothing_is_kept(model):
    """After it, also after an error, the model computes with its weights as they are then."""
    weights = PackedWeights(model, torch.float32, 4, 64)
    linear, x = model.h[0].mlp.c_fc, torch.ones(2, 32)
    with pytest.raises(KeyError), weights.packed():
        raise KeyError
    with torch.no_grad():
        linear.weight.zero_()
        assert torch.equal(linear(x), linear.bias.expand(2, -1))
    assert "forward" not in linear.__dict__


@pytest.mark.parametrize(("dtype", "passes"), [(torch.bfloat16, 64), (torch.float32, 3)])
def test_nothing_is_laid_out_where_it_would_not_pay(model, dtype, passes):
    """Lower precision and short generations use the weights as they lie."""
    with PackedWeights(model, dtype, 4, passes).packed():
        assert "forward" not in model.h[0].mlp.c_fc.__dict__
