"""Layers that are computed again give the same gradients, and keep less for them."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr import BuildContext
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.weights_digest import weights_digest
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.activation_checkpointing import (
    activation_bytes,
    checkpoint_layers,
    is_checkpointed,
)
from rlvr_torch.training.optimizer import OptimSettings

FAMILIES = ("own", "llama", "gemma2", "gpt_oss", "gpt2")


def net_of(family, make_hf, model, **options):
    """The tiny net of a family; "own" is our GPT-2."""
    if options:
        source = ModelSource.parse(f"hf:{make_hf(family)}", 3, TorchConfig(**options))
        return source.net(0)
    return model if family == "own" else load_net(str(make_hf(family)))


def data_of(make_datum):
    """Two completions of one prompt, and one alone."""
    first = make_datum(20, 33, 1)
    lead = first.tokens[:20]
    other = make_datum(20, 40, 2)
    return [first, make_datum(20, 40, 2, tokens=[*lead, *other.tokens[20:]]), make_datum(9, 30, 3)]


def gradients(net, data, dtype=torch.float32):
    """By all trained weights, through trunk, head and loss."""
    return Learner(net=net, dtype=dtype).gradients(data, LikelihoodLoss())[1]


def assert_same(found, wanted):
    """The same bits, and something at all."""
    assert sum(float(w.abs().sum()) for w in wanted if w is not None) > 0.1
    for mine, theirs in zip(found, wanted, strict=True):
        assert (mine is None) == (theirs is None)
        assert mine is None or torch.equal(mine, theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_the_same_bits(family, dtype, make_hf, model, make_datum):
    """Of every family, with windows, soft caps, sinks and experts, and under autocast."""
    net, data = net_of(family, make_hf, model), data_of(make_datum)
    wanted = gradients(net, data, dtype)
    checkpoint_layers(net)
    assert_same(gradients(net, data, dtype), wanted)


@pytest.mark.parametrize("dora", [False, True])
def test_gradients_of_adapters_are_the_same_bits(dora, make_hf, model, make_datum):
    """Frozen weights, of which the first layer's input needs no gradient."""
    net = net_of("llama", make_hf, model, lora_rank=4, dora=dora)
    with torch.no_grad():
        for value in net.module.parameters():
            value += 0.05 if value.requires_grad else 0.0
    data = data_of(make_datum)
    wanted = gradients(net, data)
    checkpoint_layers(net)
    assert_same(gradients(net, data), wanted)


def test_a_layer_is_computed_again_only_for_gradients(model, make_datum):
    """Twice where there are gradients, once where there are none."""
    calls = []
    for block in model.h:
        block.attn.register_forward_hook(lambda *_: calls.append(1))
    checkpoint_layers(model)
    gradients(model, data_of(make_datum))
    assert len(calls) == 2 * len(model.h)
    calls.clear()
    Learner(net=model).appraised(data_of(make_datum), LikelihoodLoss())
    assert len(calls) == len(model.h)


class Memory(TorchDispatchMode):
    """Counts the bytes of all tensors that operations made and that still live; the most of it."""

    def __init__(self):
        super().__init__()
        self.alive, self.most = {}, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, torch.Tensor):
                place = StorageWeakRef(one.untyped_storage())
                self.alive[place.cdata] = (place, one.untyped_storage().nbytes())
        self.alive = {n: (p, size) for n, (p, size) in self.alive.items() if not p.expired()}
        self.most = max(self.most, sum(size for _, size in self.alive.values()))
        return made


def most_memory(net, data):
    """The peak of a micro-batch's forward and backward pass, bytes, weights not counted."""
    with Memory() as memory:
        gradients(net, data)
    return memory.most


@pytest.mark.parametrize("family", ["own", "llama"])
def test_memory_falls_by_30_percent(family, make_hf, make_datum):
    """The peak of the whole step of six layers, gradients of all weights included."""
    config = GPT2Config(vocab_size=300, n_positions=256, n_embd=32, n_layer=6, n_head=2)
    net = GPT2.new(config) if family == "own" else load_net(str(make_hf(family)))
    data = [make_datum(10, 90, seed) for seed in range(8)]
    plain = most_memory(net, data)
    checkpoint_layers(net)
    assert most_memory(net, data) < 0.7 * plain


@pytest.mark.parametrize("family", ["own", "gemma2"])
def test_activation_bytes_tell_what_a_pass_keeps(family, make_hf, model, make_datum):
    """Within a fifth of what lives after the forward pass, however the tokens are packed."""
    net = net_of(family, make_hf, model)
    tokens = torch.arange(80)[None] % 300

    def lives(count):
        with Memory() as memory:
            hidden = net.hidden(tokens[:, :count], torch.arange(count)[None], attend)
            torch.zeros(())  # count again
            found = sum(size for _, size in memory.alive.values())
        del hidden
        return found

    def attend(layer, q, k, v, sinks=None):
        return torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True, enable_gqa=True
        )

    per_token = (lives(80) - lives(40)) / 40
    found = activation_bytes(net, torch.float32)
    assert found > 0
    if family == "own":
        assert found == pytest.approx(per_token, rel=0.2)
    else:  # soft-capped scores are kept, too
        assert found > per_token


def test_auto_checkpoints_where_activations_take_half_of_what_is_free(model):
    """On both sides of the limit, by the optimiser's bytes; never on a CPU."""
    kept = activation_bytes(model, torch.float32)
    trained = sum(value.numel() for value in model.parameters())
    for optimizer, each in [("adamw", 12), ("adamw-8bit", 6 + 8 / 256), ("adamw-offload", 4)]:
        limit = int(each * trained + 2 * 1000 * kept)
        for option, free, wanted in [
            ("auto", None, False),
            ("auto", limit + 8, False),
            ("auto", limit - 8, True),
            ("none", 0, False),
            ("layers", None, True),
        ]:
            given = {"tokens": 1000, "dtype": torch.float32, "optimizer": optimizer}
            assert is_checkpointed(option, model, free=free, **given) == wanted


def test_the_backend_checkpoints_the_net_that_it_trains(make_datum):
    """An update with `torch.checkpointing=layers` gives the weights that it gives without."""
    digests = []
    for option in ("none", "layers", "auto"):
        config = TorchConfig(device="cpu", checkpointing=option)
        train = OptimSettings(lr=1e-2)
        backend = TorchBackend(config, BuildContext(model="gpt2:new", train=train, steps=2))
        is_on = "forward" in vars(backend.net.layers[0])
        assert is_on == (option == "layers")
        data = [make_datum(5, 12, 1, tokens=np.arange(12))]
        asyncio.run(backend.update(data, LikelihoodLoss()))
        digests.append(weights_digest(backend.model))
        asyncio.run(backend.__aexit__())
    assert len(set(digests)) == 1


def test_sampling_leaves_the_layers_checkpointed():
    """Decoding swaps the layers' passes for faster ones, and gives them back as they were."""
    config = TorchConfig(device="cpu", checkpointing="layers", threads=1)
    spec = "gpt2:new?layers=2&heads=2&width=16&positions=32"
    backend = TorchBackend(config, BuildContext(model=spec, seed=1))
    before = [layer.__dict__["forward"] for layer in backend.net.layers]

    with backend._engine.start().at_work(0):
        assert [layer.__dict__["forward"] for layer in backend.net.layers] != before

    assert [layer.__dict__["forward"] for layer in backend.net.layers] == before
