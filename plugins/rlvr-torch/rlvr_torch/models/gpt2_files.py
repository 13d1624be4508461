"""GPT-2 weights on disk: Hugging Face's directory layout, read and written.

A directory holds `config.json`, `model.safetensors` and `tokenizer.json`; transformers reads ours
and we read theirs. Weights may be stored in a shorter type (float16); in memory they are float32.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlvr import BackendError
from rlvr_torch.models.bpe import END_OF_TEXT
from rlvr_torch.models.gpt2 import GPT2, GPT2Config

_CONV1D = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_PREFIX = "transformer."
_OURS = tuple(f.name for f in attrs.fields(GPT2Config))


def read_config(directory: Path) -> GPT2Config:
    """
    The shape of the model in a directory.

    `BackendError` where config.json is missing or not GPT-2's.
    """
    path = directory / "config.json"
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BackendError(
            f"no model in {directory}: config.json is missing\n"
            "  a GPT-2 directory holds config.json, model.safetensors and tokenizer.json"
        ) from None
    except (OSError, ValueError) as error:
        raise BackendError(f"{path} cannot be read: {error}") from error
    _refuse_variants(path, found)
    try:
        return GPT2Config(**{k: found[k] for k in _OURS if k in found})
    except (TypeError, ValueError) as error:
        raise BackendError(f"{path}: {error}") from error


def _refuse_variants(path: Path, found: Mapping[str, Any]) -> None:
    wanted: dict[str, tuple[Any, ...]] = {
        "model_type": ("gpt2",),
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
    }
    for key, allowed in wanted.items():
        if key in found and found[key] not in allowed:
            raise BackendError(
                f"{path}: {key} is {found[key]!r}; our GPT-2 has {' or '.join(map(repr, allowed))}"
            )


def load_gpt2(directory: Path) -> GPT2:
    """
    The model of a directory, float32, on the CPU.

    Raises:
        BackendError: A file is missing or unreadable; a tensor is missing, unknown or of the wrong
            shape (named, with the shape found and the one expected).
    """
    model = GPT2.empty(read_config(directory))
    path = directory / "model.safetensors"
    try:
        found = load_file(path)
    except FileNotFoundError:
        raise BackendError(f"no weights in {directory}: model.safetensors is missing") from None
    except (OSError, SafetensorError) as error:
        raise BackendError(f"{path} is not a readable safetensors file: {error}") from error
    _fill(model, found, path)
    return model


def _fill(model: GPT2, found: Mapping[str, Tensor], path: Path) -> None:
    named = {k.removeprefix(_PREFIX): v for k, v in found.items() if not k.endswith(_BUFFERS)}
    head = named.pop("lm_head.weight", None)
    with torch.no_grad():
        for name, value in model.named_parameters():
            tensor = named.pop(name, None)
            if tensor is None:
                raise BackendError(f"{path}: tensor {name!r} is missing")
            stored = value.t() if name.endswith(_CONV1D) else value
            if tensor.shape != stored.shape:
                raise BackendError(
                    f"{path}: tensor {name!r} has shape {tuple(tensor.shape)}, "
                    f"expected {tuple(stored.shape)} from config.json"
                )
            stored.copy_(tensor)
    if named:
        raise BackendError(f"{path}: GPT-2 has no tensor {sorted(named)[0]!r}")
    if head is not None and not torch.equal(head.float(), model.head.detach()):
        raise BackendError(f"{path}: lm_head.weight differs from the embedding; our head is tied")


def save_gpt2(
    model: GPT2, directory: Path, dtype: torch.dtype = torch.float32, eos_id: int | None = None
) -> None:
    """Write `config.json` and `model.safetensors` (as transformers' GPT2LMHeadModel does)."""
    described: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "activation_function": "gelu_new",
        **dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0),
        "tie_word_embeddings": True,
        "bos_token_id": eos_id,
        "eos_token_id": eos_id,
        **attrs.asdict(model.config),
    }
    (directory / "config.json").write_text(json.dumps(described, indent=2) + "\n", encoding="utf-8")
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": model.config.n_positions,
        "bos_token": END_OF_TEXT,
        "eos_token": END_OF_TEXT,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(tokenizer, indent=2) + "\n")
    tensors = {}
    for name, value in model.named_parameters():
        stored = value.detach().to("cpu", dtype)
        tensors[_PREFIX + name] = (stored.t() if name.endswith(_CONV1D) else stored).contiguous()
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
