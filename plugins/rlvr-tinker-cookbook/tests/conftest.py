"""What the cookbook's tests share: a tokenizer on disk, a policy that says what it is told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sdk_leftovers import connections_of_the_sdk, pytest_itemcollected, pytest_sessionfinish

__all__ = ["connections_of_the_sdk", "pytest_itemcollected", "pytest_sessionfinish"]

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TINKER_TELEMETRY", "0")


@pytest.fixture(scope="session")
def model_name(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A directory that transformers reads as a tokenizer: all bytes, chat tokens, a template."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    inner.train_from_iterator(
        [],
        trainers.BpeTrainer(
            vocab_size=259,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    fast.chat_template = TEMPLATE
    where: Path = tmp_path_factory.mktemp("tokenizer")
    fast.save_pretrained(where)
    return str(where)


@pytest.fixture
def saying(model_name: str) -> Callable[..., Any]:
    """Makes a completer of the cookbook that says the given texts one after another."""
    pytest.importorskip("tinker_cookbook")
    from tinker_cookbook.completers import TokensWithLogprobs

    from rlvr_tinker_cookbook.speech import tokenizer_of

    class Saying:
        def __init__(self, texts: Iterator[str], ends: bool = True) -> None:
            self.prompts: list[list[int]] = []
            self.stops: list[Any] = []
            self._texts, self._ends = texts, ends
            self._tokenizer = tokenizer_of(model_name)

        async def __call__(
            self, prompt: Any, stop: Any, *, max_tokens: int | None = None
        ) -> TokensWithLogprobs:
            self.prompts.append(prompt.to_ints())
            self.stops.append(stop)
            ids = self._tokenizer.encode(next(self._texts))
            ids += [self._tokenizer.eos_id] * self._ends
            return TokensWithLogprobs(
                tokens=ids,
                maybe_logprobs=[-0.5] * len(ids),
                stop_reason="stop" if self._ends else "length",
            )

    return lambda texts, ends=True: Saying(iter(texts), ends)
