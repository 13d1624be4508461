"""Copies of the weights in bfloat16: autocast's own results, and never older than the weights."""

from __future__ import annotations

import asyncio

import attrs
import numpy as np
import pytest
import torch

from rlvr import BuildContext, GenerateRequest, SamplingParams
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.weight_storage import CopiedWeights, WeightStorage
from rlvr_torch.training.optimizer import OptimSettings

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:fan_in_fan_out:UserWarning"),
]

CONFIG = TorchConfig(device="cpu", dtype="bfloat16", microbatch_tokens=40, threads=1)
NEW = "gpt2:new?layers=2&heads=2&width=32&positions=96"
KINDS = {
    "own": {},
    "threads": {"threads": 2},
    "checkpointed": {"checkpointing": "layers"},
    "llama": {},
    "gpt2": {},
    "gemma2": {},
    "mixtral": {},
    "mixtral threads": {"threads": 2},
    "qwen3_moe": {},
    "gpt_oss": {},
    "llama lora": {"lora_rank": 4},
    "gpt2 lora": {"lora_rank": 4},
    "llama dora": {"lora_rank": 4, "dora": True},
}


def build(make_hf, kind, lr=1e-2, **changes):
    family = kind.split()[0]
    model = NEW if family in ("own", "threads", "checkpointed") else f"hf:{make_hf(family)}"
    config = attrs.evolve(CONFIG, **KINDS[kind], **changes)
    train = OptimSettings(lr=lr)
    return TorchBackend(config, BuildContext(model=model, train=train, steps=9, seed=3))


@pytest.fixture
def data(make_datum):
    """Two that share a prompt, and two others: several micro-batches."""
    shared = [make_datum(10, 15 + i, i, tokens=[*range(10), *range(40, 45 + i)]) for i in (0, 1)]
    others = [make_datum(n, 20 + n, n, tokens=np.arange(7 * n, 8 * n + 20) % 250) for n in (3, 9)]
    return [*shared, *others]


async def learn(backend, data, updates=3):
    """Metrics of a few updates, logprobs of both kinds and a completion after them."""
    metrics = [await backend.update(data, LikelihoodLoss()) for _ in range(updates)]
    found = [await backend.logprobs(data, which) for which in ("policy", "reference")]
    return metrics, found, await draw(backend)


async def draw(backend):
    request = GenerateRequest(
        prompt=np.arange(1, 6), params=SamplingParams(max_tokens=8, temperature=1.0), seed=1
    )
    drawn = await (await backend.policy()).generate(request)
    return drawn.tokens.tolist(), drawn.logprobs.tolist()


@pytest.mark.one_of(13, "gpt_oss", "dora")
@pytest.mark.parametrize("kind", KINDS)
def test_copies_compute_what_autocast_computes(kind, make_hf, data):
    """Losses, gradients' norms, weights, logprobs and draws after three updates: to the bit."""
    found, weights = [], []
    for has_copies in (True, False):
        backend = build(make_hf, kind, weight_copies=has_copies)
        assert bool(backend._storage.copies) == has_copies
        found.append(asyncio.run(learn(backend, data)))
        weights.append([value.detach().clone() for value in backend.model.parameters()])
    (metrics, logprobs, drawn), (own_metrics, own_logprobs, own_drawn) = found
    assert metrics == own_metrics
    assert drawn == own_drawn
    for some, others in zip(logprobs, own_logprobs, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(*weights, strict=True))


def test_which_weights_have_copies(make_hf):
    """Full: layers, not the head, embeddings and norms. LoRA: adapters alone, all else in bf16."""
    full, lora = build(make_hf, "llama"), build(make_hf, "llama lora")
    assert copied(full) == {
        name for name, v in full.model.named_parameters() if ".layers." in name and v.dim() == 2
    }
    assert copied(lora) == {name for name, _ in lora.model.named_parameters() if "lora_" in name}
    for backend in (full, lora):
        for weight, copy in backend._storage.copies.items():
            assert (weight.dtype, copy.dtype) == (torch.float32, torch.bfloat16)
        kept = {v.dtype for v in backend.model.parameters() if not v.requires_grad}
        assert kept <= {torch.bfloat16}
    assert build(make_hf, "own", dtype="float32")._storage.copies == {}


@pytest.mark.parametrize("family", ["mixtral", "qwen3_moe", "gpt_oss"])
def test_experts_are_multiplied_in_bfloat16(family, make_hf, monkeypatch):
    """All of them have copies, and no product of theirs is in float32, with copies or without."""
    kinds, product = set(), torch.nn.functional.grouped_mm

    def note(x, weights, **more):
        kinds.add((x.dtype, weights.dtype))
        return product(x, weights, **more)

    monkeypatch.setattr(torch.nn.functional, "grouped_mm", note)
    for has_copies in (True, False):
        backend = build(make_hf, family, weight_copies=has_copies)
        kinds.clear()  # the check of the model is in float32
        asyncio.run(draw(backend))
        assert kinds == {(torch.bfloat16, torch.bfloat16)}
        experts = {n for n, _ in backend.model.named_parameters() if ".experts." in n}
        assert has_copies == (experts <= copied(backend))


def copied(backend):
    names = {value: name for name, value in backend.model.named_parameters()}
    return {names[weight] for weight in backend._storage.copies}


@pytest.mark.parametrize("kind", ["own", "llama", "llama lora"])
def test_masters_learn_what_bfloat16_would_lose(kind, make_hf, data):
    """Updates far below a bfloat16's last place move the weights; many of them move a copy."""
    backend = build(make_hf, kind, lr=1e-6)
    asyncio.run(backend.update(data, LikelihoodLoss()))  # adapters of zeros now have a gradient
    before, copied_before = flat(backend)
    asyncio.run(backend.update(data, LikelihoodLoss()))
    after, copied_after = flat(backend)
    large = before.abs() > 1e-2
    step = (after - before).abs()[large]

    assert large.any()
    assert (step > 0).float().mean() > 0.9
    assert (step < 2**-9 * before.abs()[large]).all()  # half of a bfloat16's last place
    assert (copied_after == copied_before)[large].float().mean() > 0.9
    assert torch.equal(copied_after, after.bfloat16())


def flat(backend):
    """All weights that have copies, and the copies, as two vectors."""
    pairs = list(zip(*backend._storage.copies.items(), strict=True))
    return [torch.cat([value.detach().flatten() for value in values]) for values in pairs]


@pytest.mark.one_of(4, "gpt2", "llama lora")
@pytest.mark.parametrize("kind", ["own", "gpt2", "llama", "llama lora"])
def test_copies_are_those_of_the_weights(kind, make_hf, data, tmp_path):
    """After each update, after a skipped one, and after a resume, which goes on to the bit."""

    def is_fresh(backend):
        copies = backend._storage.copies.items()
        return all(torch.equal(copy, weight.detach().bfloat16()) for weight, copy in copies)

    async def main():
        first, second = build(make_hf, kind), build(make_hf, kind)
        places = [copy.data_ptr() for copy in first._storage.copies.values()]
        for _ in range(2):
            await first.update(data, LikelihoodLoss())
            assert is_fresh(first)
        await first.update(data, Huge())
        assert first.version == 2
        assert is_fresh(first)
        await first.save(tmp_path)
        await second.load(tmp_path)
        assert is_fresh(second)
        assert await draw(first) == await draw(second)
        going, resumed = [await learn(one, data) for one in (first, second)]
        assert going[0] == resumed[0]
        assert going[2] == resumed[2]
        for a, b in zip(first.model.parameters(), second.model.parameters(), strict=True):
            assert torch.equal(a, b)
        assert places == [copy.data_ptr() for copy in first._storage.copies.values()]

    asyncio.run(main())


class Huge(LikelihoodLoss):
    """A loss that is not finite."""

    def __call__(self, data, logprobs, outputs):
        return super().__call__(data, logprobs, outputs)[0] * float("inf"), {}


def test_a_refresh_that_is_left_out_shows(make_hf, data, monkeypatch):
    """The tests above can fail: without it, training and sampling read the weights of before."""
    wanted = asyncio.run(learn(build(make_hf, "own"), data))
    monkeypatch.setattr(CopiedWeights, "refresh", lambda storage: None)
    stale = asyncio.run(learn(build(make_hf, "own"), data))
    assert stale[0][0] == wanted[0][0]
    assert stale[0][1:] != wanted[0][1:]
    assert stale[2] != wanted[2]


def test_gradients_of_copies_are_added_up_in_float32(make_hf, data):
    """Many micro-batches whose gradients are smaller than the sum's last place in bfloat16."""
    backend = build(make_hf, "own")
    (weight, copy), *_ = backend._storage.copies.items()
    for value in (1.0, *[2.0**-9] * 64):
        (copy * value).sum().backward()
    assert weight.grad.dtype == torch.float32
    assert torch.equal(weight.grad, torch.full_like(weight, 1.125))
    assert copy.grad is None


def test_layers_outside_autocast_multiply_by_the_weights(model):
    """Merging, saving and checks without autocast see float32."""
    tokens = torch.arange(12)[None]
    wanted = model(tokens)
    storage = CopiedWeights(model, torch.bfloat16)
    assert torch.equal(model(tokens), wanted)
    with torch.autocast("cpu", torch.bfloat16):
        assert not torch.equal(model(tokens), wanted)
    assert len(storage.copies) == 2 * 4 * 2
    assert WeightStorage(model, torch.bfloat16).copies == {}
