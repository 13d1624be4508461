"""The starter model: it ships, is small, loads, and fits the problems and the corpus."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from rlvr_cvdp.prompts.starter import brief_prompt
from rlvr_cvdp.starter.model_path import starter_model
from starter_problems.build import drafts
from starter_problems.corpus import corpus

ANSWER_TOKENS = 200
LARGEST_BYTES = 8_000_000
TORCH = "the starter model runs on rlvr-torch, which is not installed"


@pytest.fixture
def folder() -> Path:
    """Where the model lies."""
    kind, _, path = starter_model().partition(":")
    assert kind == "gpt2"
    return Path(path)


@pytest.fixture
def tokenizer(folder: Path) -> Any:
    """The model's own tokenizer."""
    module = pytest.importorskip("rlvr_torch.models.bpe", reason=TORCH)
    return module.BytePairTokenizer.load(folder)


def test_ships_small(folder: Path) -> None:
    """The package holds a whole GPT-2 directory of at most 8 MB."""
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= set(sizes)
    assert sum(sizes.values()) <= LARGEST_BYTES


def test_loads_and_prefers_verilog(folder: Path, tokenizer: Any) -> None:
    """rlvr-torch loads it, and after a prompt it expects a module rather than noise."""
    torch = pytest.importorskip("torch", reason=TORCH)
    weights = pytest.importorskip("rlvr_torch.models.gpt2_files", reason=TORCH)
    torch.set_num_threads(1)
    model = weights.load_gpt2(folder)
    assert model.config.vocab_size == tokenizer.vocab_size
    _, _, draft = drafts()[0]
    tokens = tokenizer.encode(brief_prompt(draft.spec, draft.target))
    start = len(tokens)
    tokens += tokenizer.encode(f"```verilog\nmodule {draft.name}")
    with torch.inference_mode():
        logprobs = model(torch.tensor([tokens]))[0].log_softmax(-1)  # (T, V)
    chance = sum(float(logprobs[k - 1, tokens[k]]) for k in range(start, len(tokens)))
    assert chance > -0.5  # nats, over the fence and the module's name


def test_vocabulary_covers_the_corpus(tokenizer: Any) -> None:
    """Every prompt and answer comes back from its tokens unchanged."""
    for example in itertools.islice(corpus(11), 200):
        for text in (example.prompt, example.answer):
            assert tokenizer.decode(tokenizer.encode(text)) == text


def test_answers_are_cut_as_when_it_learned(tokenizer: Any) -> None:
    """A prompt ends where a token ends: answers are tokenised the same alone and after it."""
    for example in itertools.islice(corpus(12), 100):
        apart = tokenizer.encode(example.prompt) + tokenizer.encode(example.answer)
        assert apart == tokenizer.encode(example.prompt + example.answer)


def test_problems_fit_the_context(folder: Path, tokenizer: Any) -> None:
    """Each starter problem leaves room for an answer of 200 tokens and for its reference."""
    positions = json.loads((folder / "config.json").read_text(encoding="utf-8"))["n_positions"]
    for problem_id, _, draft in drafts():
        prompt = len(tokenizer.encode(brief_prompt(draft.spec, draft.target)))
        assert prompt + ANSWER_TOKENS <= positions, problem_id
        assert prompt + len(tokenizer.encode(draft.solution)) < positions, problem_id
