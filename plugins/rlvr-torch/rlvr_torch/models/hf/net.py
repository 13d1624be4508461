"""Any decoder of transformers as a `Net`: its own code, our attention.

transformers looks an attention function up by name; ours is "rlvr", and it hands each layer's
queries, keys and values to the `attend` that the caller of `hidden` gave. So shared prompts, packed
rows and the engine's cache work for all families, and nothing of a model's code is written again.

What a layer asks for (heads, scale, window, soft cap, sinks) is not read from configuration files
but recorded in a first forward pass, and the logits of that pass must be the model's own
(`supported.build_net`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import torch
from attrs import evolve
from torch import Tensor, nn

from rlvr import BackendError, ImageProcessor
from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.hf.experts import lower_experts
from rlvr_torch.models.hf.states import STATEFUL, carry_states
from rlvr_torch.models.interface import Attend, Heads, capped

ATTENTION = "rlvr"
OWN_MASKS: ContextVar[bool] = ContextVar("rlvr_own_masks", default=False)
"""Whether a model is being called as a whole, with the masks that it makes itself (`hf.vision`)."""

ROUTED: ContextVar[list[Tensor] | None] = ContextVar("rlvr_routed", default=None)
"""Takes the router logits (B * T, E) of each layer of a mixture, where somebody wants them."""


class HFNet:
    """
    The `rlvr_torch.models.interface.Net` of a causal language model of transformers.

    Args:
        model: An `AutoModelForCausalLM`, loaded; it attends through us from now on.
        adapted: The same model with adapters in it (a `peft.PeftModel`), where there are any.

    Attributes:
        image_processor: How it takes pictures; None: it reads text alone.

    Raises:
        BackendError: Its layers do not attend through transformers' attention interface.
    """

    attention = ATTENTION
    image_processor: ImageProcessor | None = None

    def __init__(self, model: Any, adapted: Any = None) -> None:
        from transformers import AttentionInterface

        if self.attention not in AttentionInterface().valid_keys():
            AttentionInterface.register(self.attention, _attention)
        model.eval()  # no dropout: the policy that is trained must be the one that sampled
        self.model = model
        self.adapted = adapted
        self.name: str = model.config.model_type
        config = model.config.get_text_config()
        self.positions: int = config.max_position_embeddings
        self.vocab_size: int = model.get_output_embeddings().weight.shape[0]
        self.logit_softcap = float(getattr(config, "final_logit_softcapping", None) or 0.0)
        self.logit_scale = float(getattr(config, "logit_scale", None) or 1.0)
        self.logit_scale /= float(getattr(config, "logits_scaling", None) or 1.0)
        self.state_layers = carry_states(self.decoder, config)
        self.has_states = bool(self.state_layers)
        lower_experts(model)
        self.heads: Sequence[Heads] = _record_heads(self)

    @property
    def module(self) -> nn.Module:
        return self.model

    @property
    def decoder(self) -> Any:
        """The part that reads tokens, without the head."""
        return self.model.base_model

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The blocks of the language model, and of the vision encoder where there is one."""
        from transformers.modeling_layers import GradientCheckpointingLayer

        parts = self.model.modules()
        return [part for part in parts if isinstance(part, GradientCheckpointingLayer)]

    @property
    def head(self) -> Tensor:
        return self.model.get_output_embeddings().weight

    @property
    def head_bias(self) -> Tensor | None:
        return getattr(self.model.get_output_embeddings(), "bias", None)

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        # `attend` travels as an argument, not in a variable of the thread: a checkpointed layer
        # that is computed again in the backward pass, in a thread of autograd's, finds it too.
        routed = ROUTED.get()
        found = self.decoder(
            input_ids=tokens,
            position_ids=positions.expand_as(tokens),
            use_cache=False,
            rlvr_attend=attend,
            **({} if routed is None else {"output_router_logits": True}),
        )
        if routed is not None:
            routed.extend(found.router_logits)
        return found.last_hidden_state

    def attend_causal(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Each token of a row sees itself and those before it, within the layer's window."""
        heads, length = self.heads[layer], q.shape[2]
        is_cut = heads.window is not None and heads.window < length
        sees = causal(length, q.device, heads.window) if is_cut else None
        return attend_over(heads, q, k, v, sees, sinks)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits (..., V) of final hidden states (..., C)."""
        logits = nn.functional.linear(hidden, self.head.to(hidden.dtype))
        return capped(self, logits if self.head_bias is None else logits + self.head_bias)


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    rlvr_attend: Any = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """The attention function that layers call: q (B, H, T, D), k and v (B, K, T, D)."""
    asked = Heads(
        queries=query.shape[1],
        keys=key.shape[1],
        width=query.shape[3],
        scale=query.shape[3] ** -0.5 if scaling is None else float(scaling),
        window=sliding_window,
        softcap=float(softcap or 0.0),
    )
    if rlvr_attend is None and OWN_MASKS.get():
        mixed = attend_over(asked, query, key, value, attention_mask, s_aux)
        return mixed.transpose(1, 2), None
    if rlvr_attend is None:
        raise BackendError(
            f"{type(module).__name__} does not pass our attention on: the model was called in a "
            "way that rlvr does not know\n  use HFNet.hidden"
        )
    if attention_mask is not None:
        raise BackendError(f"{type(module).__name__} makes attention masks of its own")
    layer = int(getattr(module, "attention_idx", module.layer_idx))  # type: ignore[arg-type]
    if isinstance(rlvr_attend, _Recorder):
        if value.shape[3] != query.shape[3]:
            raise BackendError(f"its keys are {query.shape[3]} wide, its values {value.shape[3]}")
        rlvr_attend.note(layer, asked)
    return rlvr_attend(layer, query, key, value, s_aux).transpose(1, 2), None


def hide_attention(net: HFNet) -> None:
    """From now on compiled layers call our attention and do not look into it."""
    from transformers import AttentionInterface

    # The number of the layer would be a constant of the compiled code, and each layer have its own.
    AttentionInterface.register(net.attention, torch.compiler.disable(_attention))


class _Recorder:
    """An `Attend` that notes what each layer asks for."""

    def __init__(self) -> None:
        self.heads: dict[int, Heads] = {}

    def note(self, layer: int, heads: Heads) -> None:
        if layer in self.heads:
            raise BackendError(f"layer {layer} attends twice")
        self.heads[layer] = heads

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        return attend_over(evolve(self.heads[layer], window=None), q, k, v, None, sinks)


def _record_heads(net: HFNet) -> list[Heads]:
    net.decoder.set_attn_implementation(net.attention)
    recorder = _Recorder()
    token = torch.zeros(1, 1, dtype=torch.long, device=net.head.device)
    with torch.no_grad():
        net.hidden(token, torch.zeros_like(token), recorder)
    config = net.model.config.get_text_config()
    kinds = getattr(config, "layer_types", None) or ["attention"] * config.num_hidden_layers
    kinds = kinds[: config.num_hidden_layers]
    layers = [layer for layer, kind in enumerate(kinds) if kind not in STATEFUL]
    if sorted(recorder.heads) != layers:
        raise BackendError(
            f"{len(recorder.heads)} of {len(layers)} layers attend through transformers' interface"
        )
    for module in net.decoder.modules() if net.has_states else ():
        if getattr(module, "layer_idx", None) in layers:
            module.attention_idx = layers.index(module.layer_idx)  # those without do not count
    _refuse_lost_windows(net, recorder.heads)
    return [recorder.heads[layer] for layer in layers]


def _refuse_lost_windows(net: HFNet, heads: Mapping[int, Heads]) -> None:
    """Refuse a window that is only in the model's mask, which we do not see (Qwen2-MoE, PhiMoE)."""
    config = net.model.config.get_text_config()
    window = getattr(config, "sliding_window", None)
    if not isinstance(window, int) or not 0 < window < net.positions:
        return
    kinds = getattr(config, "layer_types", None)
    is_used = getattr(config, "use_sliding_window", True)
    for layer, found in heads.items():
        is_cut = kinds[layer] == "sliding_attention" if kinds else is_used
        if is_cut and found.window is None:
            raise BackendError(
                f"layer {layer} sees {window} tokens by its configuration (sliding_window) and "
                "does not ask its attention for that"
            )
