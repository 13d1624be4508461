"""A small chat model for tests: a tokenizer learnt from the data, ChatML, answers that end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}{% endif %}"
)
"""As Qwen 3's: without `enable_thinking=false` the model begins with its reasoning."""


def make_chat_model(
    folder: Path,
    texts: Sequence[str],
    *,
    context: int,
    template: str = QWEN,
    answer: int = 60,
    vocab: int = 2000,
) -> Path:
    """
    A folder of transformers: a Llama of one layer whose answers have about `answer` tokens.

    Its hidden states all point one way, so that every token is drawn from one distribution, in
    which the token that ends a turn has the probability 1 / `answer`.
    """
    import math

    import tokenizers
    import torch
    import transformers

    raw = tokenizers.Tokenizer(tokenizers.models.BPE())
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="<|im_end|>")
    fast.chat_template = template
    fast.save_pretrained(folder)
    end = fast.convert_tokens_to_ids("<|im_end|>")
    config = transformers.LlamaConfig(
        vocab_size=len(fast), hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=context,
        tie_word_embeddings=False, eos_token_id=end, bos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    torch.manual_seed(1)
    model = transformers.LlamaForCausalLM(config)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(0.01)
        model.model.embed_tokens.weight[:, 0] = 1.0
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.mul_(0.01)
        head = model.lm_head.weight
        head[:, 0] = 0.0
        head[end, 0] = math.log((len(fast) - 1) / (answer - 1)) / math.sqrt(config.hidden_size)
    model.save_pretrained(folder)
    return folder


def texts_of(dataset: Path) -> list[str]:
    """All texts of a data set's rows, for the tokenizer."""
    found = []
    for line in dataset.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        found += [row["input"]["prompt"], *row["input"]["context"].values()]
    return found
