"""GPT-2 in plain PyTorch: learned positions, tanh GELU, pre-norm blocks, tied head, SDPA.

Parameter names are those of Hugging Face's `GPT2Model` (`h.0.attn.c_attn.weight`, ...); its Conv1D
weights are stored transposed there and are ordinary `nn.Linear` weights here (see `gpt2_files.py`).
There is no dropout: reinforcement learning needs the policy that was sampled to be the one trained.

Shapes: B rows, T tokens, C width, H heads, D = C / H, V vocabulary.
Source: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from attrs import field, frozen
from attrs.validators import ge, gt
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from rlvr import BackendError
from rlvr_torch.models.interface import Attend, Heads


@frozen(kw_only=True)
class GPT2Config:
    """The shape of a GPT-2; field names are Hugging Face's. `n_inner` None means 4 * n_embd."""

    vocab_size: int = field(default=50257, validator=ge(1))
    n_positions: int = field(default=1024, validator=ge(2))
    n_embd: int = field(default=768, validator=ge(1))
    n_layer: int = field(default=12, validator=ge(1))
    n_head: int = field(default=12, validator=ge(1))
    n_inner: int | None = None
    layer_norm_epsilon: float = field(default=1e-5, validator=gt(0))

    def __attrs_post_init__(self) -> None:
        if self.n_embd % self.n_head:
            raise BackendError(
                f"GPT-2 width {self.n_embd} cannot be split over {self.n_head} heads: "
                "choose a width that is a multiple of the number of heads"
            )

    @property
    def inner(self) -> int:
        """Width of the MLP's hidden layer."""
        return self.n_inner or 4 * self.n_embd


def attend_causal(
    layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
) -> Tensor:
    """Each token looks at itself and those before it. Padding must be on the right."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class _Undrawn(TorchFunctionMode):
    """Layers made inside draw no weights. The device "meta" would import PyTorch's compiler."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", "") == nn.init.__name__:
            return kwargs["tensor"]
        return func(*args, **kwargs)


class Attention(nn.Module):
    """Multi-head self-attention; what it looks at is decided by the `attend` it is given."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.heads = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor, layer: int, attend: Attend) -> Tensor:
        b, t, c = x.shape
        qkv = self.c_attn(x).view(b, t, 3, self.heads, c // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each (B, H, T, D)
        mixed = attend(layer, q, k, v, None)
        return self.c_proj(mixed.transpose(1, 2).reshape(b, t, c))


class MLP(nn.Module):
    """Two linear layers around a tanh-approximated GELU (Hugging Face's `gelu_new`)."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, config.inner)
        self.c_proj = nn.Linear(config.inner, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    """One pre-norm transformer layer."""

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, layer: int, attend: Attend) -> Tensor:
        x = x + self.attn(self.ln_1(x), layer, attend)
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """The language model, a `Net`. `model(tokens)` gives logits (B, T, V)."""

    logit_softcap = 0.0
    logit_scale = 1.0
    head_bias = None
    has_states = False

    def __init__(self, config: GPT2Config) -> None:
        super().__init__()
        self.config = config
        self.positions, self.vocab_size = config.n_positions, config.vocab_size
        width = config.n_embd // config.n_head
        heads = Heads(queries=config.n_head, keys=config.n_head, width=width, scale=width**-0.5)
        self.heads = [heads] * config.n_layer
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.n_positions, config.n_embd)
        self.h = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=config.layer_norm_epsilon)

    @classmethod
    def new(cls, config: GPT2Config, seed: int = 0) -> GPT2:
        """
        A freshly initialised model; equal seeds give equal weights whatever ran before.

        Normal(0, 0.02); projections into the residual stream are scaled by 1/sqrt(2 * layers).
        """
        model = cls.empty(config)
        random = torch.Generator().manual_seed(seed)
        residual_std = 0.02 / math.sqrt(2 * config.n_layer)
        with torch.no_grad():
            for name, value in model.named_parameters():
                if name.endswith(".bias"):
                    value.zero_()
                elif "ln_" in name:
                    value.fill_(1.0)
                else:
                    std = residual_std if name.endswith("c_proj.weight") else 0.02
                    value.normal_(0.0, std, generator=random)
        return model

    @classmethod
    def empty(cls, config: GPT2Config) -> GPT2:
        """A model whose weights hold nothing yet (no random numbers are drawn)."""
        with _Undrawn():
            return cls(config)

    def hidden(
        self, tokens: Tensor, positions: Tensor | None = None, attend: Attend = attend_causal
    ) -> Tensor:
        """Final hidden states (B, T, C) of `tokens` (B, T) at `positions` (default 0 ... T-1)."""
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)  # (T,)
        x = self.wte(tokens) + self.wpe(positions)
        for layer, block in enumerate(self.h):
            x = block(x, layer, attend)
        return self.ln_f(x)

    @property
    def module(self) -> nn.Module:
        return self

    @property
    def layers(self) -> Sequence[nn.Module]:
        return list(self.h)

    @property
    def head(self) -> Tensor:
        """The output weights (V, C): the token embedding itself (tied)."""
        return self.wte.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(self.hidden(tokens), self.head)
