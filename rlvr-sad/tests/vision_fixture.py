"""A tiny vision-language model of transformers (LLaVA), its processor, and logs with pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
Image = pytest.importorskip("PIL.Image")

PATCHES = 4
"""Tokens of a picture: 16 pixels, patches of 8, two by two."""
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def processor_of(*, template: str | None = TEMPLATE) -> Any:
    """LLaVA's processor: a byte-level tokenizer, pictures of 16 pixels, patches of 8."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import CLIPImageProcessorPil, LlavaProcessor, PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<eos>", "<pad>", "<image>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(["the door is red", "look at the picture"], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="<pad>"
    )
    tokenizer.chat_template = template
    pixels = {"height": 16, "width": 16}
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size=pixels, crop_size=pixels),
        tokenizer=tokenizer,
        patch_size=8,
        vision_feature_select_strategy="full",
        num_additional_image_tokens=0,
        image_token="<image>",
    )


def model_of(processor: Any, seed: int) -> Any:
    """A LLaVA with random weights: two layers to see, two to speak."""
    from transformers import (
        CLIPVisionConfig,
        LlamaConfig,
        LlavaConfig,
        LlavaForConditionalGeneration,
    )

    torch.manual_seed(seed)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            hidden_size=16,
            intermediate_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            image_size=16,
            patch_size=8,
            projection_dim=16,
        ),
        text_config=LlamaConfig(
            vocab_size=len(processor.tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=256,
        ),
        image_token_index=processor.tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    return LlavaForConditionalGeneration(config).float()


def picture(folder: Path, name: str, colour: tuple[int, int, int]) -> None:
    """A picture of one colour."""
    Image.new("RGB", (20, 12), colour).save(folder / name)


def record(number: int, *names: str, tail: str = "") -> dict[str, Any]:
    """A chat about pictures; about nothing where none is named."""
    shown = [{"type": "image_url", "image_url": {"url": name}} for name in names]
    asked = [{"type": "text", "text": f"look at the picture {number}"}, *shown]
    said = f"<think>the door {number}</think> is red{tail}"
    return {
        "messages": [
            {"role": "user", "content": asked if names else asked[0]["text"]},
            {"role": "assistant", "content": said},
        ],
        "task_id": number,
    }


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    """As JSON lines."""
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def save_model(folder: Path, seed: int) -> None:
    """A model with its processor, as transformers writes them; its weights are far from zero."""
    processor = processor_of()
    model = model_of(processor, seed)
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn(value.shape)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
