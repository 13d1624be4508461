"""LoRA adapters beside one frozen net: any number of them, one at work at a time.

An adapter adds `32 / rank * B (A x)` to the output of a linear layer (Hu et al. 2021,
arXiv:2106.09685), with A (rank, in) and B (out, rank). B begins at zero, so a new adapter changes
nothing. The output head is adapted as `W + 32 / rank * B A`, also where the head's weights are the
embedding's: the embedding stays as it is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor, nn

from rlvr_torch.models.interface import Net

ALPHA = 32.0
UNEMBED = "unembed"

Factors: TypeAlias = Mapping[str, tuple[Tensor, Tensor]]
"""Site to (A, B)."""


@frozen(kw_only=True)
class Shape:
    """The rank of an adapter, and the parts of the model that it adapts."""

    rank: int
    train_mlp: bool = True
    train_attn: bool = True
    train_unembed: bool = True

    @classmethod
    def of(cls, described: Any) -> Shape:
        """From any record that has these fields."""
        return cls(**{name: getattr(described, name) for name in cls.__annotations__})

    def covers(self, site: str) -> bool:
        """Whether a site of `AdaptedNet.sites` gets factors."""
        if site == UNEMBED:
            return self.train_unembed
        return self.train_attn if _is_attention(site) else self.train_mlp


class AdaptedNet:
    """
    A `Net` whose linear layers add the adapter that is at work; its other sides are the base's.

    `base` is the model; its weights are frozen for good.
    """

    def __init__(self, base: Net) -> None:
        self.base, self.module, self.hidden = base, base.module, base.hidden
        self.layers = base.layers
        self.heads, self.positions, self.vocab_size = base.heads, base.positions, base.vocab_size
        self.logit_scale, self.logit_softcap = base.logit_scale, base.logit_softcap
        self.head_bias, self.has_states = base.head_bias, base.has_states
        self._factors: Factors = {}
        self._scale = 0.0
        self._head: Tensor | None = None
        base.module.requires_grad_(False)
        self.sites: dict[str, tuple[int, int]] = {}  # site to (in, out)
        for name, module in base.module.named_modules():
            size = _size(module)
            is_head = getattr(module, "weight", None) is base.head  # adapted by `head`
            if size is None or is_head or name.endswith((".gate", ".router")):
                continue
            self.sites[name] = size
            module.register_forward_hook(self._hook(name))
        self.sites[UNEMBED] = (base.head.shape[1], base.head.shape[0])

    def _hook(self, site: str) -> Any:
        def add(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor | None:
            pair = self._factors.get(site)
            if pair is None:
                return None
            a, b = pair
            change = F.linear(F.linear(inputs[0].to(a.dtype), a), b)
            return output + (self._scale * change).to(output.dtype)

        return add

    @contextmanager
    def using(self, factors: Factors) -> Iterator[None]:
        """The adapter is at work inside; {} is the base model. Not to be nested."""
        rank = next((a.shape[0] for a, _ in factors.values()), 1)
        self._factors, self._scale = factors, ALPHA / rank
        if UNEMBED in factors:
            a, b = factors[UNEMBED]
            self._head = self.base.head.float() + self._scale * (b @ a)
        try:
            yield
        finally:
            self._factors, self._head = {}, None

    def new_factors(self, shape: Shape, seed: int) -> dict[str, tuple[Tensor, Tensor]]:
        """A fresh adapter; a site's numbers depend only on the seed, its name and the rank."""
        device = self.base.head.device
        return {
            site: (
                _first_factor(shape.rank, size_in, f"{seed}/{site}").to(device),
                torch.zeros(size_out, shape.rank, device=device),
            )
            for site, (size_in, size_out) in self.sites.items()
            if shape.covers(site)
        }

    @property
    def head(self) -> Tensor:
        """Output weights (V, C), adapted."""
        return self.base.head if self._head is None else self._head


def _size(module: nn.Module) -> tuple[int, int] | None:
    """(in, out) of a linear layer: torch's, or the Conv1D of transformers' GPT-2."""
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D":
        weight = module.weight
        assert isinstance(weight, Tensor)
        return weight.shape[0], weight.shape[1]
    return None


def _is_attention(site: str) -> bool:
    return any("attn" in part or "attention" in part for part in site.split("."))


def _first_factor(rank: int, size_in: int, key: str) -> Tensor:
    """Uniform in +-1 / sqrt(in), as `nn.Linear` begins."""
    seed = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 1
    random = torch.Generator().manual_seed(seed)
    bound = 1 / math.sqrt(size_in)
    return torch.empty(rank, size_in).uniform_(-bound, bound, generator=random)
