"""The model computes what transformers' GPT-2 computes."""

from __future__ import annotations

import pytest
import torch
import transformers

from rlvr import BackendError
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import load_gpt2

SMALL = {"vocab_size": 211, "n_positions": 64, "n_embd": 48, "n_layer": 3, "n_head": 4}
SIZE_124M = {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}


def peer(shape: dict[str, int], seed: int = 0) -> transformers.GPT2LMHeadModel:
    """Transformers' GPT-2 with random weights, biases and norms included."""
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)).eval()
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.02 * torch.randn_like(value))
    return model


def largest_difference(shape: dict[str, int], length: int, directory) -> float:
    """Between the logits of transformers' model and ours, loaded from what it saved."""
    theirs = peer(shape)
    theirs.save_pretrained(directory)
    ours = load_gpt2(directory)
    tokens = torch.randint(0, shape["vocab_size"], (2, length))
    with torch.no_grad():
        return float((ours(tokens) - theirs(tokens).logits).abs().max())


def test_logits_equal_transformers(tmp_path):
    """Same weights, same tokens: logits within 1e-4 in float32, up to the last position."""
    assert largest_difference(SMALL, SMALL["n_positions"], tmp_path) < 1e-4


@pytest.mark.thorough
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_logits_equal_transformers_at_124m(tmp_path):
    """The same holds at GPT-2's published size."""
    assert largest_difference(SIZE_124M, 128, tmp_path) < 1e-4


def test_124m_has_the_published_number_of_parameters():
    """The default configuration is GPT-2 small: 124 439 808 parameters."""
    with torch.device("meta"):
        model = GPT2(GPT2Config())
    assert sum(value.numel() for value in model.parameters()) == 124_439_808


def test_equal_seeds_give_equal_weights_whatever_ran_before():
    """Initialisation depends on its seed only, and leaves torch's own generator alone."""
    config = GPT2Config(**SMALL)
    torch.manual_seed(0)
    first = GPT2.new(config, seed=3)
    state = torch.random.get_rng_state()
    torch.randn(7)
    second = GPT2.new(config, seed=3)
    other = GPT2.new(config, seed=4)
    torch.manual_seed(0)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(
        torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True)
    )
    assert not torch.equal(first.head, other.head)


def test_later_tokens_do_not_change_earlier_logits(model):
    """The model is causal, so padding on the right is harmless."""
    tokens = torch.randint(0, model.config.vocab_size, (1, 20))
    changed = tokens.clone()
    changed[:, 12:] = 0
    with torch.no_grad():
        before, after = model(tokens)[:, :12], model(changed)[:, :12]
    assert torch.allclose(before, after, atol=1e-6)


def test_width_must_split_over_heads():
    """An impossible shape is refused with both numbers."""
    with pytest.raises(BackendError, match=r"width 10 .* 3 heads"):
        GPT2Config(n_embd=10, n_head=3)
