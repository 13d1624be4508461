"""What differs by device: chosen in one place, and equal to the plain versions."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from attrs import evolve

import rlvr_torch
from rlvr import BuildContext, GenerateRequest, SamplingParams
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.captured.attention import TableAttention
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.captured.graphs import Capture, CUDACapture
from rlvr_torch.generation.cpu.weights import PackedWeights
from rlvr_torch.hardware.primitives import CPU, CUDA, PLAIN, hardware_of
from rlvr_torch.training.optimizer import OptimSettings

ROOMS = ("hardware", "runtime", "generation/cpu")
ASKS = re.compile(
    r"\.type\s*(==|!=|in\b|not in\b)|(==|!=)\s*\w*\.type\b|\.is_(cuda|cpu|mps)\b"
    r"|\btype in \(|isinstance\([^)]*(Engine|Batch)\b|match \S*device"
)
SPEC = "gpt2:new?layers=2&heads=2&width=16&positions=64"


def test_no_other_room_asks_what_the_device_is():
    """Nor of what class an engine is."""
    home = Path(rlvr_torch.__file__).parent
    asked = [
        f"{path.relative_to(home)}:{number}: {line.strip()}"
        for path in sorted(home.rglob("*.py"))
        if not path.relative_to(home).as_posix().startswith(ROOMS)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if ASKS.search(line)
    ]
    assert asked == []


@pytest.mark.parametrize(
    "line",
    [
        'if device.type == "cuda":',
        'if "cuda" == device.type:',
        'if q.device.type in ("cuda", "mps"):',
        "pin = tensor.is_cuda",
        "isinstance(engine, VLLMEngine)",
    ],
)
def test_the_test_above_finds(line):
    """Each way to ask."""
    assert ASKS.search(line)


@pytest.mark.parametrize(
    ("option", "gains", "is_compiled"),
    [("auto", False, False), ("auto", True, True), ("off", True, False)],
)
def test_training_is_compiled_where_the_device_gains_by_it(option, gains, is_compiled, monkeypatch):
    """`torch.compile=auto` asks the device, `off` does not."""

    def fail(_):
        raise ImportError("the compiler")

    monkeypatch.setattr("rlvr_torch.backend.import_compiler", fail)
    config = TorchConfig(device="cpu", compile=option)
    make = partial(TorchBackend, config, BuildContext(model=SPEC), evolve(CPU, is_compiled=gains))
    if is_compiled:
        with pytest.raises(ImportError, match="the compiler"):
            make()
    else:
        make()


def test_each_device_has_its_record():
    """One without primitives of its own gets the plain ones."""
    names = ("cpu", "cuda", "mps", "meta")
    assert [hardware_of(torch.device(name)) for name in names] == [CPU, CUDA, PLAIN, PLAIN]


def requests():
    """Twelve completions of four prompts."""
    return [
        GenerateRequest(
            prompt=np.arange(1, 4 + 5 * (i % 4)), params=SamplingParams(max_tokens=9), seed=i
        )
        for i in range(12)
    ]


ENGINES = {
    "plain": PLAIN.engine,
    # Every primitive is the card's but the capture, which runs each pass here.
    "cuda": partial(CUDA.engine, capture_of=Capture),
}


@pytest.mark.parametrize("name", ENGINES)
def test_engines_of_all_devices_draw_the_same(name, model):
    """Tokens are equal, logprobs within 1e-5; passes are captured on a card alone."""
    tokenizer = TorchBackend(None, BuildContext(model=SPEC)).tokenizer
    engine = ENGINES[name](model, tokenizer, rows=5)
    batch = engine.start()
    assert isinstance(engine, CapturedEngine) is (name == "cuda")
    assert batch._prefill_tokens > 1 == CPU.engine(model, tokenizer).start()._prefill_tokens
    assert type(batch._weights) is not PackedWeights
    wanted = CPU.engine(model, tokenizer, rows=5).generate(requests())
    for found, other in zip(engine.generate(requests()), wanted, strict=True):
        assert found.tokens.tolist() == other.tokens.tolist()
        assert np.abs(found.logprobs - other.logprobs).max() < 1e-5


def test_a_card_captures_with_cuda_graphs(model):
    """The record's capture; none is made, and no card is asked, before a pass was run often."""
    engine = CUDA.engine(model, TorchBackend(None, BuildContext(model=SPEC)).tokenizer)
    assert type(engine._capture) is CUDACapture


class Refusing(Capture):
    """Records no pass."""

    def record(self, step):
        raise AssertionError("a pass was captured")


def test_options_put_the_plain_ways_in_place_of_the_devices():
    """`torch.graphs` and `torch.attention`, each alone; the defaults change nothing."""
    assert CUDA.chosen_by(TorchConfig()) is CUDA
    card = evolve(CPU, engine=partial(CUDA.engine, capture_of=Refusing), is_captured=True)

    def drawn(**options):
        config = TorchConfig(device="cpu", **options)
        context = BuildContext(model=SPEC, train=OptimSettings(lr=0.1), steps=1)
        engine = TorchBackend(config, context, card)._engine
        return [completion.tokens.tolist() for completion in engine.generate(requests())], engine

    with pytest.raises(AssertionError, match="captured"):
        drawn()
    found, engine = drawn(graphs=False)
    assert found == drawn(graphs=False, attention="plain")[0]
    assert type(engine._capture) is Capture

    plain = CUDA.chosen_by(TorchConfig(attention="plain"))
    assert plain.packed_attention(torch.bfloat16) is PLAIN.packed_attention(torch.bfloat16)
    assert plain.engine.keywords["attention"] is TableAttention
    assert plain.engine.keywords["capture_of"] is CUDACapture
    for hardware in (CPU, PLAIN):
        chosen = hardware.chosen_by(TorchConfig(attention="plain", graphs=False))
        assert chosen.engine is hardware.engine


def test_a_backend_computes_with_the_hardware_it_is_given(make_datum):
    """Plain primitives on a CPU: an update gives its weights, a policy its tokens."""
    used = []

    def attention(dtype):
        used.append(dtype)
        return PLAIN.packed_attention(dtype)

    def optimizer(kind, groups, **settings):
        used.append(kind)
        return PLAIN.optimizer(kind, groups, **settings)

    found = []
    plain = evolve(PLAIN, packed_attention=attention, optimizer=optimizer, has_own_memory=False)
    for hardware in (None, plain):
        train = OptimSettings(lr=1e-2)
        config = TorchConfig(device="cpu", compile="off")
        context = BuildContext(model=SPEC, train=train, steps=2, seed=1)
        backend = TorchBackend(config, context, hardware)
        data = [make_datum(5, 12, 1, tokens=np.arange(12))]

        async def work(backend=backend, data=data):
            async with backend:
                await backend.update(data, LikelihoodLoss())
                policy = await backend.policy()
                return [await policy.generate(request) for request in requests()]

        drawn = asyncio.run(work())
        weights = torch.cat([value.detach().flatten() for value in backend.model.parameters()])
        found.append((weights, [completion.tokens.tolist() for completion in drawn]))
    assert used == [torch.float32, "adamw"]
    assert found[0][1] == found[1][1]
    assert torch.equal(found[0][0], found[1][0])


def test_what_auto_means_follows_from_the_hardware():
    """TF32 counts where products may be rounded to it."""
    for hardware, tolerance in ((CPU, 0.01), (evolve(CPU, has_tf32=True), 1.0)):
        backend = TorchBackend(TorchConfig(device="cpu"), BuildContext(model=SPEC), hardware)
        assert backend.capabilities.logprob_tolerance == tolerance
        asyncio.run(backend.__aexit__())
