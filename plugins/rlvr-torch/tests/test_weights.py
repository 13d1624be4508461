"""Weights go both ways between transformers and us; wrong files are named."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from rlvr import BackendError
from rlvr_torch.models.gpt2_files import load_gpt2, read_config, save_gpt2


@pytest.fixture
def saved(model, tmp_path):
    """A directory that holds the model."""
    save_gpt2(model, tmp_path, eos_id=0)
    return tmp_path


def edit_weights(directory, change):
    """Rewrite the stored tensors."""
    path = directory / "model.safetensors"
    tensors = load_file(path)
    tensors = change(tensors) or tensors
    save_file({k: v.contiguous() for k, v in tensors.items()}, path)


def edit_config(directory, **changes):
    """Rewrite keys of config.json."""
    path = directory / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def same(a, b):
    """All weights equal bit for bit."""
    return all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))


def test_transformers_reads_what_we_write(model, saved):
    """A saved directory is a transformers model with the same logits."""
    theirs = transformers.GPT2LMHeadModel.from_pretrained(saved).eval()
    tokens = torch.randint(0, model.config.vocab_size, (2, 30))
    with torch.no_grad():
        assert (theirs(tokens).logits - model(tokens)).abs().max() < 1e-4


def test_round_trip_is_exact(model, saved):
    """float32 weights come back bit for bit."""
    assert same(load_gpt2(saved), model)


def test_prefix_may_be_absent(model, saved):
    """The layout of transformers' bare `GPT2Model` (as on the hub: no `transformer.`) loads too."""
    edit_weights(saved, lambda t: {k.removeprefix("transformer."): v for k, v in t.items()})
    assert same(load_gpt2(saved), model)


def test_old_mask_buffers_and_a_tied_head_are_ignored(model, saved):
    """Files of old transformers hold causal masks and a copy of the embedding."""

    def add(tensors):
        tensors["transformer.h.0.attn.bias"] = torch.ones(1, 1, 96, 96)
        tensors["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()

    edit_weights(saved, add)
    assert same(load_gpt2(saved), model)


def test_half_precision_storage(model, tmp_path):
    """Stored as float16 the file is half the size; in memory weights are float32, rounded."""
    save_gpt2(model, tmp_path, torch.float16)
    again = load_gpt2(tmp_path)
    assert again.head.dtype == torch.float32
    assert torch.equal(again.head, model.head.detach().half().float())
    floats = 4 * sum(value.numel() for value in model.parameters())
    assert (tmp_path / "model.safetensors").stat().st_size < 0.6 * floats


def test_a_tensor_of_the_wrong_shape_is_named(saved):
    """The message names the tensor, what was found and what config.json promises."""

    def shrink(tensors):
        tensors["transformer.h.1.mlp.c_fc.weight"] = torch.zeros(32, 100)

    edit_weights(saved, shrink)
    with pytest.raises(BackendError, match=r"h\.1\.mlp\.c_fc\.weight.*\(32, 100\).*\(32, 128\)"):
        load_gpt2(saved)


def test_a_missing_tensor_is_named(saved):
    """A file that lacks a tensor never yields a half-filled model."""
    edit_weights(saved, lambda t: {k: v for k, v in t.items() if not k.endswith("ln_f.bias")})
    with pytest.raises(BackendError, match=r"'ln_f\.bias' is missing"):
        load_gpt2(saved)


def test_an_unknown_tensor_is_named(saved):
    """A tensor that GPT-2 does not have means another architecture."""
    edit_weights(saved, lambda t: t.update(extra=torch.zeros(1)))
    with pytest.raises(BackendError, match="no tensor 'extra'"):
        load_gpt2(saved)


def test_an_untied_head_is_refused(saved):
    """A head of its own would silently be dropped by a tied model."""
    edit_weights(saved, lambda t: t.update({"lm_head.weight": t["transformer.wte.weight"] + 1}))
    with pytest.raises(BackendError, match="tied"):
        load_gpt2(saved)


def test_a_damaged_file_is_a_backend_error(saved):
    """A truncated download is not a traceback."""
    path = saved / "model.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BackendError, match="not a readable safetensors"):
        load_gpt2(saved)


def test_missing_files_are_named(tmp_path, saved):
    """An empty or absent directory says which file is missing."""
    with pytest.raises(BackendError, match=r"config\.json is missing"):
        read_config(tmp_path / "absent")
    (saved / "model.safetensors").unlink()
    with pytest.raises(BackendError, match=r"model\.safetensors is missing"):
        load_gpt2(saved)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("model_type", "llama"),
        ("activation_function", "relu"),
        ("scale_attn_by_inverse_layer_idx", True),
        ("tie_word_embeddings", False),
    ],
)
def test_variants_we_do_not_compute_are_refused(saved, key, value):
    """A configuration that would give other logits is refused, by its key."""
    edit_config(saved, **{key: value})
    with pytest.raises(BackendError, match=key):
        load_gpt2(saved)
