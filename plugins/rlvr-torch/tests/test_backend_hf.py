"""The backend over transformers' models: the same promises, all weights trained or adapters."""

from __future__ import annotations

import asyncio

import attrs
import numpy as np
import pytest
import torch

from rlvr import BackendError, BuildContext, ConfigError
from rlvr.testing import BackendContract
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.training.optimizer import OptimSettings

CPU = TorchConfig(device="cpu", microbatch_tokens=40)
LORA = attrs.evolve(CPU, lora_rank=4)


def build(directory, config=CPU, **train):
    """A backend of a directory."""
    settings = OptimSettings(**{"lr": 1e-2, **train})
    return TorchBackend(config, BuildContext(model=f"hf:{directory}", train=settings, seed=3))


def run(coroutine):
    """Run it in a fresh event loop."""
    return asyncio.run(coroutine)


class _OfFamily(BackendContract):
    """The contract on a tiny model of a family."""

    family = "llama"
    config = CPU

    @pytest.fixture(autouse=True)
    def _make(self, make_hf):
        self._directory = make_hf(self.family)

    def make_backend(self):
        return build(self._directory, self.config)


@pytest.mark.thorough
class TestLlama(_OfFamily):
    """All weights of a Llama, bit for bit after save and load."""


@pytest.mark.thorough
class TestGemma2(_OfFamily):
    """Tied, scaled embeddings, windows, soft-capped scores and logits."""

    family = "gemma2"


class TestQwen35(_OfFamily):
    """Layers that keep a state: bit for bit after save and load; equal batches give equal bits."""

    family = "qwen3_5_text"


class TestLoRA(_OfFamily):
    """Adapters of a Llama, bit for bit after save and load; the reference is the bare model."""

    config = LORA


@pytest.fixture
def data(make_datum):
    """Two groups and a single."""
    prompt = np.arange(30, 40)
    group = [
        make_datum(10, 14 + i, i, tokens=[*prompt, *range(50, 54 + i)], temperature=0.9)
        for i in range(3)
    ]
    return [*group, make_datum(3, 20, seed=9)]


def test_only_adapters_are_trained(make_hf, data):
    """The base stays bit for bit; the optimiser holds adapters only; the digest follows them."""
    backend = build(make_hf("llama"), LORA)
    before = {n: v.detach().clone() for n, v in backend.model.named_parameters()}
    trained = sum(len(group["params"]) for group in backend._updater._optimizer.param_groups)
    digest = run(backend.policy()).digest
    run(backend.update(data, LikelihoodLoss()))
    moved = {n for n, v in backend.model.named_parameters() if not torch.equal(v, before[n])}
    assert moved
    assert all("lora_" in name for name in moved)
    assert trained == sum("lora_" in name for name in before)
    assert run(backend.policy()).digest != digest


@pytest.mark.parametrize("option", ["auto", "copy", "adapter-off"])
def test_the_reference_of_adapters_is_the_bare_model(make_hf, data, option):
    """With the adapters off, or a copy: the logprobs from before the first step, and again on."""
    directory = make_hf("llama")
    backend = build(directory, attrs.evolve(LORA, reference=option))
    bare = build(directory)

    async def main():
        wanted = await bare.logprobs(data, "policy")
        for _ in range(2):
            await backend.update(data, LikelihoodLoss())
        found = await backend.logprobs(data, "reference")
        moved = await backend.logprobs(data, "policy")
        for a, b, c in zip(wanted, found, moved, strict=True):
            assert np.abs(a - b).max() < 1e-6
            assert np.abs(a - c).max() > 1e-3
        return backend._reference._copy

    copy = run(main())
    assert (copy is not None) == (option == "copy")


def test_a_run_from_saved_adapters_starts_from_them(make_hf, data, tmp_path):
    """Its reference is the adapted model; `adapter-off` is the bare one."""
    directory = make_hf("llama")
    first = build(directory, LORA)

    async def main():
        await first.update(data, LikelihoodLoss())
        await first.save(tmp_path)
        adapted = await first.logprobs(data, "policy")
        bare = await first.logprobs(data, "reference")
        for option, wanted in (("auto", adapted), ("adapter-off", bare)):
            config = attrs.evolve(CPU, adapter=str(tmp_path), reference=option)
            backend = build(directory, config)
            for a, b in zip(await backend.logprobs(data, "policy"), adapted, strict=True):
                assert np.abs(a - b).max() < 1e-6
            await backend.update(data, LikelihoodLoss())
            for a, b in zip(await backend.logprobs(data, "reference"), wanted, strict=True):
                assert np.abs(a - b).max() < 1e-6

    run(main())


def test_adapter_off_without_adapters_is_refused(make_hf):
    """There is nothing to switch off."""
    with pytest.raises(ConfigError, match="adapter-off"):
        build(make_hf("llama"), attrs.evolve(CPU, reference="adapter-off"))


def test_a_checkpoint_of_other_adapters_is_refused(make_hf, data, tmp_path):
    """Adapters belong to the base they were trained on: nothing is loaded."""
    run(build(make_hf("llama"), LORA).save(tmp_path))
    other = build(make_hf("qwen3"), LORA)
    with pytest.raises(BackendError, match="other start weights"):
        run(other.load(tmp_path))
