"""What the tests of rlvr-torch share: one thread, a tiny tokenizer, a tiny model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr import Datum, GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config

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


@pytest.fixture
def make_group(make_datum: Callable[..., Datum]) -> Callable[..., list[Datum]]:
    """Data that share a prompt of `prompt` tokens; a length counts the prompt."""

    def make(prompt: int, lengths: list[int], seed: int, **changes: object) -> list[Datum]:
        found: list[Datum] = []
        for i, length in enumerate(lengths, start=100 * seed):
            own = make_datum(prompt, length, i, **changes)
            lead = (found or [own])[0].tokens[:prompt]
            found.append(attrs.evolve(own, tokens=[*lead, *own.tokens[prompt:]]))
        return found

    return make


class NoEnd(CharTokenizer):
    """A tokenizer without an end: each completion has as many tokens as it asked for."""

    eos_id = -1

    def decode(self, tokens: Sequence[int]) -> str:
        return " ".join(map(str, tokens))


def requests_of(
    count: int, seed: int = 0, prompts: int = 3, *, longest: int = 40, most: int = 30, **params: Any
) -> list[GenerateRequest]:
    """So many requests for prompts of few tokens, with all kinds of settings."""
    rng = np.random.default_rng(seed)
    texts = [rng.integers(1, 60, int(rng.integers(1, longest))) for _ in range(prompts)]
    return [
        GenerateRequest(
            prompt=texts[i % prompts],
            params=SamplingParams(
                **{
                    "max_tokens": int(rng.integers(1, most)),
                    "temperature": float(rng.choice([0.0, 0.7, 1.0, 1.0])),
                    "top_k": int(rng.choice([0, 0, 5, 150])),
                    "top_p": float(rng.choice([1.0, 0.9])),
                    **params,
                }
            ),
            seed=1000 * seed + i,
        )
        for i in range(count)
    ]


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """(rows, tokens) of each pass of our GPT-2."""
    seen: list[tuple[int, ...]] = []
    plain = GPT2.hidden

    def counting(self: GPT2, tokens: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append(tuple(tokens.shape))
        return plain(self, tokens, *args, **kwargs)

    monkeypatch.setattr(GPT2, "hidden", counting)
    return seen


class Sizes(TorchDispatchMode):
    """Notes the elements of the largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
        return made


@pytest.fixture
def largest() -> Callable[..., int]:
    """A function: the elements of the largest tensor that a call makes."""

    def measured(call: Callable[..., object], *given: object) -> int:
        with Sizes() as sizes:
            call(*given)
        return sizes.largest

    return measured


CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def hf_tokenizer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer of 300 tokens at most, saved by transformers, that speaks ChatML."""
    import tokenizers
    import transformers

    inner = BytePairTokenizer.train(TEXTS, vocab_size=290)
    directory = tmp_path_factory.mktemp("hf-tokenizer")
    inner.save(directory)
    raw = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    raw.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    theirs.chat_template = CHATML
    theirs.save_pretrained(directory)
    return directory


TINY: dict[str, object] = {
    "vocab_size": 304,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 48,
    "bos_token_id": None,
    "eos_token_id": 0,
    "pad_token_id": None,
}
"""The shape of tiny models of transformers."""


@pytest.fixture(scope="session")
def make_hf(
    hf_tokenizer_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The directory of a tiny model of a family, with weights away from their start values."""
    import transformers

    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family in made:
            return made[family]
        shape: dict[str, object] = {
            **TINY,
            "max_position_embeddings": 96,
            "attention_dropout": 0.3,
        }
        windows: dict[str, object] = {
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        }
        experts: dict[str, object] = {
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 24,
        }
        linear: dict[str, object] = {
            "layer_types": ["linear_attention", "full_attention", "linear_attention"],
            "linear_num_value_heads": 4,
            "linear_num_key_heads": 2,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 12,
        }
        own: dict[str, dict[str, object]] = {
            "mistral": {"sliding_window": 8},
            "qwen2": {"use_sliding_window": True, **windows},
            "gemma2": windows,
            "gemma3_text": windows,
            "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
            "qwen3_moe": {"mlp_only_layers": [], **experts},
            "qwen3_next": {"shared_expert_intermediate_size": 24, **experts, **linear},
            "qwen3_5_text": {"linear_conv_kernel_dim": 3, "tie_word_embeddings": True, **linear},
            "qwen3_5_moe_text": {"shared_expert_intermediate_size": 24, **experts, **linear},
            "olmo_hybrid": linear,
            "gpt_oss": {
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
                **windows,
            },
        }
        if family == "gpt2":
            shape = {"vocab_size": 304, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 96}
            shape |= {"bos_token_id": 0, "eos_token_id": 0}
        config = transformers.AutoConfig.for_model(family, **{**shape, **own.get(family, {})})
        state = torch.random.get_rng_state()
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for value in model.parameters():
                value += 0.1 * torch.randn_like(value)
        torch.random.set_rng_state(state)
        directory = tmp_path_factory.mktemp(f"hf-{family}")
        model.save_pretrained(directory)
        for file in hf_tokenizer_dir.iterdir():
            (directory / file.name).write_bytes(file.read_bytes())
        made[family] = directory
        return directory

    return make
