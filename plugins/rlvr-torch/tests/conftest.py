"""What the tests of rlvr-torch share: one thread, a tiny tokenizer, a tiny model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from rlvr.types import Datum
from rlvr_torch.gpt2 import GPT2, GPT2Config
from rlvr_torch.tokenizer import BytePairTokenizer

TEXTS = ["module adder(input a, input b, output y);\n  assign y = a ^ b;\nendmodule\n"] * 8


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer() -> BytePairTokenizer:
    """300 tokens at most, learned from a line of Verilog."""
    return BytePairTokenizer.train(TEXTS, vocab_size=300)


@pytest.fixture
def model(tokenizer: BytePairTokenizer) -> GPT2:
    """Two layers, width 32, 96 positions, every weight away from its trivial start value."""
    config = GPT2Config(
        vocab_size=tokenizer.vocab_size, n_positions=96, n_embd=32, n_layer=2, n_head=2
    )
    model = GPT2.new(config, seed=1)
    random = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.15 * torch.randn(value.shape, generator=random)
    return model


@pytest.fixture
def make_datum(tokenizer: BytePairTokenizer) -> Callable[..., Datum]:
    """A datum with random tokens: `prompt` of them not supervised, the rest supervised."""

    def make(prompt: int, length: int, seed: int = 0, **changes: object) -> Datum:
        random = np.random.default_rng(seed)
        mask = np.arange(length) >= prompt
        fields: dict[str, object] = {
            "tokens": random.integers(0, tokenizer.vocab_size, length),
            "mask": mask,
            "logprobs": np.where(mask, -1.0, 0.0),
            "advantages": np.where(mask, random.normal(size=length), 0.0),
            "weights": np.where(mask, 0.01, 0.0),
            "problem_id": f"problem-{seed}",
        }
        return Datum(**{**fields, **changes})  # type: ignore[arg-type]

    return make
