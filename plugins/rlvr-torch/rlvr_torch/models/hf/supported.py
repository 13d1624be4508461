"""Reject models of transformers that we cannot compute, and check those that we can.

A family is not trusted because of its name. Before its weights are read, what cannot work is
refused by the reason; after that, logits of a random text through our attention must be those of
the model's own code.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rlvr import BackendError, ImageProcessor
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.states import STATEFUL
from rlvr_torch.models.hf.vision import HFVisionNet
from rlvr_torch.models.interface import Carrying, State, Step

FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt_oss",
    "glm4",
    "mixtral",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "olmo_hybrid",
    "gpt2",
)
"""Families that tests hold to the last digit; others are taken when they pass `build_net`."""

_LAYERS = {"full_attention", "sliding_attention", "attention", *STATEFUL}
_LENGTH = 48
_SMALL = 100_000_000
"""Weights below which the text is read on one core."""
_TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
_LOOSE = 0.1  # bfloat16 and 4 bits: two ways of computing differ in the third digit


def refuse_unsupported(config: Any, where: str) -> None:
    """
    Refuse an architecture that cannot work.

    The `BackendError` names it, the reason and alternatives.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    kind, text = config.model_type, config.get_text_config()
    others = sorted(set(getattr(text, "layer_types", None) or ()) - _LAYERS)
    stored = (getattr(config, "quantization_config", None) or {}).get("quant_method", "")
    ropes = sorted({"dynamic", "longrope"} & set(_rope_types(text)))
    if getattr(config, "is_encoder_decoder", False):
        reason = "it is an encoder-decoder"
    elif kind == "paligemma":
        reason = "it reads prompts both ways (a prefix language model)"
    elif kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not is_seeing(config):
        reason = "transformers has no causal language model of it"
    elif others:
        reason = f"it has layers of {' and '.join(others)}, whose state is more than keys"
    elif ropes:
        reason = f"its {ropes[0]} positions make a token's logprob depend on its batch's length"
    elif stored not in ("", "mxfp4"):
        reason = f"its weights are stored as {stored}: give the model it was made of"
    elif not isinstance(getattr(text, "max_position_embeddings", None), int):
        reason = "it says no max_position_embeddings: it keeps state, or has other positions"
    else:
        return
    raise unsupported(kind, where, reason)


def is_seeing(config: Any) -> bool:
    """Whether it is the configuration of a vision-language model."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    known = config.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    return known and getattr(config, "vision_config", None) is not None


def unsupported(kind: str, where: str, reason: str) -> BackendError:
    """The error for an architecture that cannot be used."""
    return BackendError(
        f"the model {where} is of the architecture {kind!r}, which rlvr cannot run\n"
        f"  found: {reason}\n"
        f"  supported: {', '.join(FAMILIES)}, and decoders like them"
    )


def build_net(model: Any, where: str, image_processor: ImageProcessor | None = None) -> HFNet:
    """
    The `HFNet` of a model that was loaded from `where`, checked.

    `image_processor` is that of a vision-language model.

    Raises:
        BackendError: It does not attend through transformers' interface, or its logits through
            our attention are not its own.
    """
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 differs by more than what is allowed
    if sum(value.numel() for value in model.parameters()) < _SMALL:
        torch.set_num_threads(1)  # cores would wait for each other at each product
    try:
        net = HFNet(model) if image_processor is None else HFVisionNet(model, image_processor)
        difference = _difference(net)
    except torch.OutOfMemoryError:
        raise  # of the device: it says nothing about the architecture
    except (AttributeError, BackendError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise unsupported(
            model.config.model_type, where, f"{type(error).__name__}: {error}"
        ) from error
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
    is_quantized = getattr(model, "is_quantized", False)
    tolerance = _LOOSE if is_quantized else _TOLERANCE.get(net.head.dtype, _LOOSE)
    if not difference <= tolerance:
        raise unsupported(
            model.config.model_type,
            where,
            f"through our attention its logits differ by {difference:.1e} of the largest one "
            f"(allowed: {tolerance:.0e})",
        )
    return net


@torch.no_grad()
def _difference(net: HFNet) -> float:
    """Largest difference of our logits from the model's own, as a share of the largest logit."""
    windows = [heads.window for heads in net.heads if heads.window is not None]
    near = [window for window in windows if window < 4 * _LENGTH]  # windows we can afford to cross
    length = min(net.positions, max([_LENGTH, *(window + 8 for window in near)]))
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, net.vocab_size, (1, length), generator=random).to(net.head.device)
    if isinstance(net, HFVisionNet):  # a picture's tokens mean nothing without it
        tokens[tokens == net.image_token] = (net.image_token + 1) % net.vocab_size
    net.decoder.set_attn_implementation("eager")
    try:
        theirs = net.model(input_ids=tokens, use_cache=False).logits.float()
    finally:
        net.decoder.set_attn_implementation(net.attention)
    positions = torch.arange(length, device=tokens.device)
    carried: set[int] = set()

    def carry(layer: int, inputs: Tensor, step: Step) -> Tensor:
        carried.add(layer)
        return _in_parts(inputs, step)

    ours = net.logits(net.hidden(tokens, positions, Carrying(net.attend_causal, carry))).float()
    if lost := net.state_layers - carried:
        raise BackendError(f"layers {sorted(lost)} are not told which state they go on from")
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))


def _in_parts(inputs: Tensor, step: Step) -> Tensor:
    """Read as training and sampling do: a prompt, a token, the rest, each from the last state."""
    half, mixed = len(inputs[0]) // 2, []
    state: State = {}
    for part in inputs.tensor_split([half, half + 1], dim=1):
        if part.shape[1]:
            own, state = step(part, state)
            mixed.append(own)
    return torch.cat(mixed, dim=1)


def _rope_types(config: Any) -> list[str]:
    found = getattr(config, "rope_parameters", None) or {}
    parts = [found, *(value for value in found.values() if isinstance(value, dict))]
    return [str(part["rope_type"]) for part in parts if part.get("rope_type")]
