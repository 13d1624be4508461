"""Adapters beside a frozen net against the same model with its weights changed."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from rlvr_tinker_server.nets.adapters import ALPHA, UNEMBED, AdaptedNet, Shape
from rlvr_tinker_server.nets.forward import logits_of, positions_hidden


def logits(net, tokens):
    """(T, V)."""
    with torch.no_grad():
        return logits_of(net, positions_hidden(net, [np.array(tokens)], torch.float32), net.head)


def test_a_new_adapter_changes_nothing(net):
    """B begins at zero: logits are the base model's, bit for bit."""
    before = logits(net, [1, 2, 3])
    with net.using(net.new_factors(Shape(rank=4), 0)):
        assert torch.equal(logits(net, [1, 2, 3]), before)


def test_an_adapter_is_a_change_of_weights(net, gpt2, make_model):
    """Logits are those of W + 32 / rank * B A, in the head without the embedding it shares."""
    factors = make_model(rank=3).snapshot()
    merged = copy.deepcopy(gpt2)
    head = gpt2.head.detach().clone()
    for site, (a, b) in factors.items():
        change = ALPHA / 3 * (b @ a)
        if site == UNEMBED:
            head += change
        else:
            merged.get_submodule(site).weight.data += change
    tokens = [3, 1, 4, 1, 5, 9, 2, 6]

    with net.using(factors):
        found = logits(net, tokens)

    with torch.no_grad():
        hidden = positions_hidden(merged, [np.array(tokens)], torch.float32)
        wanted = F.linear(hidden, head)
    base = logits(net, tokens)
    assert (found - base).abs().max() > 0.1
    assert torch.allclose(found, wanted, atol=1e-5)


def test_adapters_do_not_see_each_other(net, make_model):
    """Each has its own numbers; outside of all of them the base is what it was."""
    base = logits(net, [1, 2, 3])
    one, two = make_model(seed=1), make_model(seed=2)
    with net.using(one.factors):
        first = logits(net, [1, 2, 3])
    with net.using(two.factors):
        second = logits(net, [1, 2, 3])
    with net.using(one.factors):
        assert torch.equal(logits(net, [1, 2, 3]), first)
    assert not torch.allclose(first, second)
    assert torch.equal(logits(net, [1, 2, 3]), base)


@pytest.mark.parametrize(
    ("flags", "sites"),
    [
        ({"train_mlp": False, "train_unembed": False}, {"c_attn", "attn.c_proj"}),
        ({"train_attn": False, "train_unembed": False}, {"c_fc", "mlp.c_proj"}),
        ({"train_attn": False, "train_mlp": False}, {UNEMBED}),
    ],
)
def test_flags_say_what_is_adapted(net, flags, sites):
    """train_mlp, train_attn and train_unembed choose the parts of the model."""
    found = net.new_factors(Shape(rank=2, **flags), 0)
    assert found
    for site in found:
        assert any(site.endswith(end) for end in sites), site
    assert {end for end in sites if any(site.endswith(end) for site in found)} == sites


def test_first_factors_follow_from_seed_and_site(net):
    """Equal seeds give equal adapters, whatever else is adapted; other seeds give others."""
    whole = net.new_factors(Shape(rank=2), 5)
    part = net.new_factors(Shape(rank=2, train_mlp=False), 5)
    other = net.new_factors(Shape(rank=2), 6)
    for site, (a, _) in part.items():
        assert torch.equal(a, whole[site][0])
        assert not torch.equal(a, other[site][0])
        assert a.abs().max() <= 1 / np.sqrt(a.shape[1])


def test_layers_of_transformers_are_adapted():
    """A model of transformers with its own kind of linear layer (Conv1D) has all its sites."""
    transformers = pytest.importorskip("transformers")
    from rlvr_torch.models.hf.net import HFNet

    shape = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16, "vocab_size": 30}
    config = transformers.GPT2Config(**shape, bos_token_id=0, eos_token_id=0)
    torch.manual_seed(0)
    net = AdaptedNet(HFNet(transformers.GPT2LMHeadModel(config)))
    assert {
        site.split(".")[-2] + "." + site.split(".")[-1] for site in net.sites if "." in site
    } == {
        "attn.c_attn",
        "attn.c_proj",
        "mlp.c_fc",
        "mlp.c_proj",
    }
    assert net.sites["transformer.h.0.mlp.c_fc"] == (16, 64)
    factors = net.new_factors(Shape(rank=2), 0)
    base = logits(net, [1, 2, 3])
    for _, b in factors.values():
        b.fill_(0.05)
    with net.using(factors):
        assert not torch.allclose(logits(net, [1, 2, 3]), base)
