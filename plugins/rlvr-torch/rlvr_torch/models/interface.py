"""A causal language model as the engine and the trainer see it: layers, a head, and one function.

Our GPT-2 and every transformers model are nets. What a layer looks at is decided by the `attend`
that `hidden` is given, so prompts shared by a group, packed sequences and the cache of the engine
are written once, for all of them.

Shapes: B rows, T tokens, C width, H query heads, K key heads (K divides H), D width of a head, V
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Protocol, TypeAlias

import torch
from attrs import frozen
from torch import Tensor, nn

Attend: TypeAlias = Callable[[int, Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""`(layer, q, k, v, sinks) -> mixed`: q (B, H, T, D) unscaled, k and v (B, K, T, D), sinks (H,) or
None; gives (B, H, T, D). How a block looks at the past."""

State: TypeAlias = Mapping[Hashable, Tensor]
"""What a layer keeps of B sequences beside keys, each part (B, ...); empty before the first token.
Convolutions and linear attention (Gated DeltaNet) have one."""

Step: TypeAlias = Callable[[Tensor, State], tuple[Tensor, State]]
"""`(inputs (B, T, C), state) -> (outputs (B, T, C), state after them)`: such a layer."""

Carry: TypeAlias = Callable[[int, Tensor, Step], Tensor]
"""`(layer, inputs (B, T, C), step) -> outputs (B, T, C)`: what state each sequence goes on from."""


@frozen(eq=False)
class Carrying:
    """An `Attend` that also says how layers carry their states."""

    attend: Attend
    carry: Carry

    def __call__(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        return self.attend(layer, q, k, v, sinks)


def carry_of(attend: Attend) -> Carry:
    """An `Attend`'s own `carry`; without one, each row is a whole sequence, padded on the right."""
    found: Carry = getattr(attend, "carry", _from_the_start)
    return found


def _from_the_start(layer: int, inputs: Tensor, step: Step) -> Tensor:
    return step(inputs, {})[0]


@frozen(kw_only=True)
class Heads:
    """The attention of one layer."""

    queries: int  # query heads H
    keys: int  # key and value heads K; each serves H / K query heads that stand together
    width: int  # width D of a head
    scale: float  # scores are multiplied by this
    # A token sees itself and the `window - 1` before it; None: all before it.
    window: int | None = None
    # Scores become `softcap * tanh(score / softcap)`; 0: as they are (Gemma 2).
    softcap: float = 0.0


class Net(Protocol):
    """A model as the engine and the trainer use it."""

    @property
    def module(self) -> nn.Module:
        """Holds all weights: `parameters()` are those of the model, trained or not."""

    @property
    def layers(self) -> Sequence[nn.Module]:
        """The blocks, each a module that may compute its outputs again from its inputs."""

    @property
    def heads(self) -> Sequence[Heads]:
        """The attention of each layer that has one; `Attend` counts these layers only."""

    @property
    def has_states(self) -> bool:
        """Whether there are layers that keep a `State`."""

    @property
    def positions(self) -> int:
        """Longest sequence, tokens."""

    @property
    def vocab_size(self) -> int:
        """V: logits have this many columns; a tokenizer may have fewer tokens."""

    @property
    def logit_softcap(self) -> float:
        """Logits become `cap * tanh(logit / cap)`; 0: as they are."""

    @property
    def logit_scale(self) -> float:
        """Logits are multiplied by this (before the cap); 1: as they are."""

    @property
    def head(self) -> Tensor:
        """Output weights (V, C); may be the embedding itself."""

    @property
    def head_bias(self) -> Tensor | None:
        """Output bias (V,), where the model has one."""

    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend) -> Tensor:
        """Final hidden states (B, T, C), after the last norm, of tokens (B, T) at positions."""


def capped(net: Net, logits: Tensor) -> Tensor:
    """Logits (..., V) from products with the head, scaled and soft-capped as the net asks."""
    if net.logit_scale != 1.0:
        logits = logits * net.logit_scale
    if net.logit_softcap:
        logits = net.logit_softcap * torch.tanh(logits / net.logit_softcap)
    return logits
