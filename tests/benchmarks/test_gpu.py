"""benchmarks/gpu runs to its end on a CPU, counts products as torch does, refuses what is wrong."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from rlvr_process import run_rlvr

GPU = Path(__file__).parents[2] / "benchmarks" / "gpu"
sys.path.insert(0, str(GPU))

for name in ("transformers", "peft"):
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)

from figures import (  # noqa: E402 - the folder is found first
    Device,
    NotBelievableError,
    Work,
    decode_limit,
    training_flops,
)

from rlvr_torch.models.gpt2 import GPT2, GPT2Config  # noqa: E402
from rlvr_torch.models.shape import Shape  # noqa: E402

CONFIG = GPT2Config(vocab_size=300, n_positions=64, n_embd=64, n_layer=2, n_head=4)


@pytest.mark.thorough
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_whole_program_runs_here() -> None:
    """Every row has a figure, or the reason why there is none; docs/gpu.md has a line for each."""
    words = ("--device", "cpu", "--tiny", "--json")
    done = run_rlvr(*words, program=GPU / "run.py", timeout_s=580)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout.splitlines()[-1])

    measured = [name for name in rows if name.startswith(("training", "decoding", "GRPO"))]
    assert len(measured) == 2 + 6 + 3
    for name in measured:
        is_ours = not name.endswith(("vLLM", "TRL"))
        assert not is_ours or "/s" in rows[name], (name, rows[name])
    page = (Path(__file__).parents[2] / "docs" / "gpu.md").read_text(encoding="utf-8")
    for name in rows:
        shown = name.replace("tiny ", "").replace(", 4 rows", ", 64 rows")
        if "decoding, Qwen3 4B" not in shown:  # the tiny run has fewer models
            assert f"| {shown} |" in page, name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_what_to_do() -> None:
    """Exit 4, as a run."""
    done = run_rlvr(program=GPU / "run.py", timeout_s=240)

    assert done.returncode == 4
    assert "--device cpu --tiny" in done.stderr


def test_products_are_counted_as_torch_counts_them() -> None:
    """Forward and backward of a real net by torch's own counter: matrices exactly, head too."""
    from torch.utils.flop_counter import FlopCounterMode

    net, work = GPT2.new(CONFIG), Work(groups=1, group=1, prompt=1, completion=32)
    tokens = torch.arange(32)[None]
    counter = FlopCounterMode(display=False)
    with counter:
        net(tokens).sum().backward()
    counts = counter.get_flop_counts()["Global"]
    matrices = sum(n for op, n in counts.items() if "attention" not in str(op))
    ours = training_flops(Shape.of(CONFIG), work, is_full=True)
    pairs = 33**2 / 2  # the causal half; torch counts the whole square
    attention = 3 * 4 * 2 * 64 * (1 / 2 + 32 + 32**2 / 2)

    assert ours - attention == matrices
    assert attention == pytest.approx(3 * 4 * 2 * 64 * pairs)


def test_frozen_weights_need_a_third_less() -> None:
    """LoRA: no gradient of a matrix, so two products in place of three; attention stays."""
    shape, work = Shape.of(CONFIG), Work(groups=2, group=4, prompt=16, completion=16)
    full, lora = (training_flops(shape, work, is_full=is_full) for is_full in (True, False))

    products = 2 * shape.linear * work.tokens + 2 * 300 * 64 * work.drawn
    assert work.tokens == 2 * (16 + 4 * 15)
    assert work.drawn == 128
    assert full - lora == products


def test_the_limit_of_decoding_by_hand() -> None:
    """One layer's worth: weights once a pass, keys of shared prompts once, own keys half full."""
    shape, work = Shape.of(CONFIG), Work(groups=2, group=4, prompt=10, completion=20)
    weights = (2 * 12 * 64 * 64 + 300 * 64) * 2
    keys = (2 * 10 + 8 * 10) * 2 * 2 * 64 * 2

    assert decode_limit(shape, work, 1.0, 2) == pytest.approx(8 * 1e9 / (weights + keys))


def test_what_is_above_the_card_is_refused() -> None:
    """A 4090 has 165 TFLOP/s and 1008 GB/s: 180 is no figure, nor is a peak above the sheet."""
    sheet = (165.2, 1008.0)
    card = Device(name="RTX 4090", peak=150.0, bandwidth=900.0, sheet=sheet)

    card.check()
    assert card.believable(120.0) == 120.0
    with pytest.raises(NotBelievableError, match=r"180\.0"):
        card.believable(180.0)
    for wrong in (Device(name="x", peak=170.0, bandwidth=900.0, sheet=sheet),
                  Device(name="x", peak=150.0, bandwidth=1100.0, sheet=sheet)):  # fmt: skip
        with pytest.raises(NotBelievableError, match="data sheet"):
            wrong.check()
    unknown = Device(name="x", peak=1.0, bandwidth=1.0)
    with pytest.raises(NotBelievableError):
        unknown.believable(1.1)
