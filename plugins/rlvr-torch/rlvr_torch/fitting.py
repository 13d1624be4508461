"""Facts of a model, and LoRA if the device's memory is too small for full training."""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Mapping
from pathlib import Path

import torch

from rlvr import BackendError, Message, ModelFacts, Proposed, Situation, variables_of
from rlvr_torch.config import TorchConfig
from rlvr_torch.hardware.primitives import hardware_of
from rlvr_torch.memory_plan import RANK, trained_bytes
from rlvr_torch.models.gpt2_files import read_config
from rlvr_torch.models.hf.load import import_compiler, import_transformers, load_config, quietly
from rlvr_torch.models.hf.supported import is_seeing
from rlvr_torch.models.hf.tokenizer import OPTION
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.device import choose_device, memory_of, settled

ROOM = 0.8
"""Share of the memory for weights; the rest is for activations and sampling."""
_FROZEN = {"float32": 4.0, "bfloat16": 2.0, "4bit": 0.6}
"""Bytes of a frozen weight, by how it is stored."""
_FLOATS = {"F64", "F32", "F16", "BF16"}
_OPENING = 24


def model_facts(situation: Situation) -> ModelFacts:
    """
    Context, tokenizer and chat template, without the weights.

    Raises as opening the model does.
    """
    source = ModelSource.parse(situation.model, 0, config := _config(situation))
    tokenizer, positions = source.tokenizer(), _context_length(source)
    bound = config.vllm_tokens if config.engine == "vllm" else 0
    greeting = tokenizer.render([Message(role="user", content="Hi")])
    return ModelFacts(
        context_length=min(positions, bound or positions),
        count=lambda text: len(tokenizer.encode(text)),
        prompt_tokens=lambda messages: len(tokenizer.render(messages)),
        opening=tokenizer.decode(greeting[-_OPENING:]),
        template_option=OPTION if source.hf else "",
        template_variables=variables_of(tokenizer.chat_template),
    )


def fit_memory(situation: Situation) -> Mapping[str, Proposed]:
    """Propose adapters where the device cannot hold full training; {} otherwise."""
    if not situation.trains or not situation.model.startswith("hf:"):
        return {}
    config = _config(situation)
    if config.lora_rank or config.adapter or config.vision == "trained":
        return {}
    try:
        source = ModelSource.parse(situation.model, 0, config)
        if source.hf is None or source.hf.config.adapter:
            return {}
        weights = count_weights(source.hf.where)
    except (BackendError, ValueError):  # opening the model says what is wrong with it
        return {}
    device = choose_device(config.device)
    dtype = settled(config, device).dtype
    hardware = hardware_of(device)
    has_bits = hardware.has_4bit and importlib.util.find_spec("bitsandbytes") is not None
    each = 4 + trained_bytes(config.optimizer, is_on_host=not hardware.has_own_memory)
    return plan(weights, memory_of(device), device.type, dtype, each=each, can_quantize=has_bits)


def plan(
    weights: int, memory: int, device: str, dtype: str, *, each: float, can_quantize: bool
) -> dict[str, Proposed]:
    """
    Options that train a model of so many weights in so many bytes; {}: full training.

    Full training needs `each` bytes a weight in `ROOM` of the memory: the weight in float32, its
    gradient and the optimiser's state (`trained_bytes`). Else adapters of rank
    `RANK`, with frozen weights as they are asked for, else in bfloat16, else in 4 bits, the first
    that fits.
    """
    room = memory * ROOM
    if weights * each <= room:
        return {}
    size = f"{weights / 1e9:.2f} billion weights"
    why = (
        f"{size} in full need {_gb(weights * each)}, {device} has {_gb(memory)} "
        f"({ROOM:.0%} of it for weights)"
    )
    found = {"torch.lora_rank": Proposed(RANK, why)}
    if weights * _FROZEN[dtype] <= room:
        return found
    stored = f"{size} frozen in {dtype} need {_gb(weights * _FROZEN[dtype])}"
    found["torch.dtype"] = Proposed("bfloat16", f"{stored}, {device} has {_gb(memory)}")
    if weights * _FROZEN["bfloat16"] <= room or not can_quantize:
        return found
    found["torch.quantize"] = Proposed("4bit", f"{stored} and half of it in bfloat16")
    return found


def count_weights(where: str) -> int:
    """
    Weights of a transformers model, by the heads of its files, else by its configuration.

    `BackendError` where it has none to build.
    """
    if stored := _stored_weights(Path(where).expanduser()):
        return stored
    transformers = import_transformers()
    config = load_config(where)
    seeing, blind = transformers.AutoModelForImageTextToText, transformers.AutoModelForCausalLM
    kind = seeing if is_seeing(config) else blind
    import_compiler()
    try:
        with quietly(), torch.device("meta"):
            model = kind.from_config(config, trust_remote_code=False)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError, ImportError) as error:
        raise BackendError(f"{where}: {error}") from error
    return sum(value.numel() for value in model.parameters())


def _stored_weights(directory: Path) -> int:
    """
    Weights in a model's safetensors files, by the shapes at their beginnings.

    0: there are none, some are packed in integers, or a file is damaged.
    """
    index, names = directory / "model.safetensors.index.json", {"model.safetensors"}
    count = 0
    try:
        if index.is_file():
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        for name in names:
            with (directory / name).open("rb") as file:
                head = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            tensors = [one for name, one in head.items() if name != "__metadata__"]
            if any(one["dtype"] not in _FLOATS for one in tensors):
                return 0
            count += sum(math.prod(one["shape"]) for one in tensors)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
        return 0
    return count


def _context_length(source: ModelSource) -> int:
    if source.hf is not None:
        return int(load_config(source.hf.where).get_text_config().max_position_embeddings)
    if source.directory is not None:
        return read_config(source.directory).n_positions
    return source.positions


def _config(situation: Situation) -> TorchConfig:
    return TorchConfig(**situation.options("torch"))


def _gb(number: float) -> str:
    return f"{number / 2**30:.1f} GiB"
