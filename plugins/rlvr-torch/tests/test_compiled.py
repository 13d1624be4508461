"""Compiled layers give what plain ones give, and are compiled a few times in a whole run."""

from __future__ import annotations

import asyncio
import shutil

import numpy as np
import pytest
import torch
import transformers
from attrs import evolve
from torch._dynamo.testing import CompileCounterWithBackend

from rlvr import BuildContext
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.weight_storage import CopiedWeights
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.activation_checkpointing import checkpoint_layers
from rlvr_torch.training.compiled import compile_layers, outside
from rlvr_torch.training.optimizer import OptimSettings
from rlvr_torch.training.packing.packed_attention import PackedAttention

# PyTorch's compiler hides warnings of its own, which pytest turns into errors before.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torch.*", "ignore:The .grad attribute")


@pytest.fixture(autouse=True)
def _fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def steps_of(make_datum, count):
    """Micro-batches of other lengths each, some with a shared prompt."""
    for i in range(count):
        first = make_datum(10, 22 + 3 * i, i)
        other = make_datum(10, 20 + i, 90 + i)
        shared = make_datum(10, 20 + i, 90, tokens=[*first.tokens[:10], *other.tokens[10:]])
        yield [first, shared if i % 2 else other, make_datum(4, 9 + i, 50 + i)]


def compare(net, data, attention=None):
    """Loss and gradients of a micro-batch, compiled and plain, within float32's rounding."""
    found, mine = Learner(net=net, attention=outside(attention)).gradients(data, LikelihoodLoss())
    wanted, theirs = Learner(net=net).gradients(data, LikelihoodLoss())
    assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max()))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "is_checkpointed", "backend"),
    [
        ("own", False, "aot_eager"),
        ("own", True, "aot_eager"),
        ("llama", True, "eager"),
        ("gemma2", False, "eager"),
    ],
)
def test_a_run_compiles_a_few_times_and_then_never(
    family, is_checkpointed, backend, make_hf, model, make_datum
):
    """Six micro-batches of six lengths: nothing is compiled after the third; results are equal."""
    net = model if family == "own" else load_net(str(make_hf(family)))
    counter = CompileCounterWithBackend(backend)
    compile_layers(net, counter)
    if is_checkpointed:
        checkpoint_layers(net)
    for number, data in enumerate(steps_of(make_datum, 6)):
        compare(net, data, PackedAttention if number % 2 else None)
        if number == 2:
            early = counter.frame_count
    assert 0 < early <= 8 * len({heads.window for heads in net.heads})
    assert counter.frame_count == early


def deep(family):
    """A model of ten layers, more than PyTorch compiles one function for."""
    shape = {"vocab_size": 280, "max_position_embeddings": 96, "num_hidden_layers": 10}
    shape |= {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 24}
    if family == "gpt2":
        shape = {"vocab_size": 280, "n_positions": 96, "n_layer": 10, "n_embd": 16, "n_head": 2}
        shape |= {"bos_token_id": 0, "eos_token_id": 0}
    if family == "qwen3_5_text":  # seven of ten keep a state
        shape |= {"linear_num_value_heads": 4, "linear_num_key_heads": 2, "head_dim": 8}
        shape |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8, "num_key_value_heads": 1}
    config = transformers.AutoConfig.for_model(family, **shape)
    return HFNet(transformers.AutoModelForCausalLM.from_config(config))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "dtype"),
    [
        ("llama", torch.float32),
        ("llama", torch.bfloat16),
        ("gpt2", torch.bfloat16),
        ("qwen3_5_text", torch.float32),
    ],
    ids=str,
)
def test_many_layers_share_what_is_compiled(family, dtype, make_datum, caplog):
    """Ten layers need no more than one; copies of weights and a second model change nothing."""
    net = deep(family)
    storage, counter = CopiedWeights(net, dtype), CompileCounterWithBackend("eager")
    compile_layers(net, counter)
    counts = []
    for number, data in enumerate(steps_of(make_datum, 4)):
        data = [evolve(d, tokens=d.tokens % 280) for d in data]
        learner = Learner(net=net, dtype=dtype, attention=outside(), storage=storage)
        found, _ = learner.gradients(data, LikelihoodLoss())
        wanted, _ = evolve(learner, attention=None).gradients(data, LikelihoodLoss())
        assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
        counts.append(counter.frame_count)
        if number == 1:
            deep(family)
    assert 0 < counts[-1] <= 8
    assert len(set(counts[1:])) == 1
    assert "recompile_limit" not in caplog.text


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.skipif(not shutil.which("g++"), reason="PyTorch's compiler needs g++ on a CPU")
def test_a_backend_that_compiles_learns_the_same(make_datum):
    """Inductor's code: loss, gradient and logprobs of two updates are those without it."""
    found = []
    for option in ("off", "on"):
        config = TorchConfig(device="cpu", compile=option, threads=1)
        train = OptimSettings(lr=1e-3)
        backend = TorchBackend(config, BuildContext(model="gpt2:new", train=train, steps=2))
        for seed in (1, 2):
            data = [make_datum(5, 12 + seed, seed, tokens=np.arange(12 + seed))]
            metrics = asyncio.run(backend.update(data, LikelihoodLoss()))
        (logprobs,) = asyncio.run(backend.logprobs(data, "policy"))
        found.append((metrics["loss"], metrics["grad/norm"], logprobs))
        asyncio.run(backend.__aexit__())
    (loss, norm, logprobs), (own_loss, own_norm, own_logprobs) = found
    assert own_loss == pytest.approx(loss, rel=1e-4)
    assert own_norm == pytest.approx(norm, rel=1e-3)
    assert np.allclose(own_logprobs, logprobs, atol=1e-4)
