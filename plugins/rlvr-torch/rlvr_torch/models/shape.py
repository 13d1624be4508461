"""The shape of a decoder as numbers, from which its weights and its memory follow.

Shapes: C width, H query heads, K key heads, D width of a head, I width of the MLP, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Shape:
    """The shape of a decoder, from which its memory follows."""

    name: str
    layers: int
    width: int
    heads: int
    key_heads: int
    head_width: int
    inner: int
    vocabulary: int
    is_tied: bool = True  # the output head is the embedding itself
    # RMSNorm, rotary positions, gated MLP, no biases (Llama, Qwen); else GPT-2's layers.
    is_gated: bool = True
    has_head_norms: bool = False  # queries and keys are normalised (Qwen3)
    positions: int = 0  # learned positions (GPT-2)
    counted: int = 0  # weights, where the formula below does not hold; 0: it does
    stateful: int = 0  # layers of linear attention, which keep a state in place of keys
    state: int = 0  # numbers that all of them keep of a sequence
    # Bytes that a token leaves in a layer for the backward pass, by `torch.dtype` and the rank of
    # adapters, where Llama's formula does not hold.
    kept: Callable[[str, int], float] | None = field(default=None, eq=False)

    @classmethod
    def of(cls, config: Any, name: str = "", counted: int = 0) -> Shape:
        """
        From a configuration of transformers, or of rlvr's own GPT-2.

        `AttributeError` where a number is missing: the plan does not know such layers.
        """
        if hasattr(config, "n_embd"):
            return cls(
                name=name or "gpt2",
                layers=config.n_layer,
                width=config.n_embd,
                heads=config.n_head,
                key_heads=config.n_head,
                head_width=config.n_embd // config.n_head,
                inner=config.n_inner or 4 * config.n_embd,
                vocabulary=config.vocab_size,
                is_gated=False,
                positions=config.n_positions,
                counted=counted,
            )
        heads = config.num_attention_heads
        kinds = getattr(config, "layer_types", None) or ()
        stateful = sum(kind in ("linear_attention", "conv") for kind in kinds)
        return cls(
            name=name or config.model_type,
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=heads,
            key_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_width=getattr(config, "head_dim", None) or config.hidden_size // heads,
            inner=config.intermediate_size,
            vocabulary=config.vocab_size,
            is_tied=bool(config.tie_word_embeddings),
            has_head_norms=config.model_type.startswith("qwen3"),
            counted=counted,
            stateful=stateful,
            state=stateful and stateful * _delta_state(config),
        )

    @property
    def queries(self) -> int:
        """H * D."""
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        """K * D."""
        return self.key_heads * self.head_width

    @property
    def matrices(self) -> Sequence[tuple[int, int]]:
        """Inputs and outputs of each linear layer of a block."""
        width, queries, keys, inner = self.width, self.queries, self.keys, self.inner
        if not self.is_gated:
            return ((width, 3 * width), (width, width), (width, inner), (inner, width))
        own = ((width, queries), (width, keys), (width, keys), (queries, width))
        return (*own, (width, inner), (width, inner), (inner, width))

    @property
    def linear(self) -> int:
        """Weights of the blocks' matrices."""
        return self.layers * sum(inputs * outputs for inputs, outputs in self.matrices)

    @property
    def weights(self) -> int:
        """All weights."""
        if self.counted:
            return self.counted
        rest = self.vocabulary * self.width * (1 if self.is_tied else 2)
        rest += self.positions * self.width
        if self.is_gated:
            norms = 2 * self.width + 2 * self.head_width * self.has_head_norms
            return self.linear + rest + self.layers * norms + self.width
        biases = sum(outputs for _, outputs in self.matrices)
        return self.linear + rest + self.layers * (4 * self.width + biases) + 2 * self.width


def _delta_state(config: Any) -> int:
    """Numbers that a layer of Gated DeltaNet keeps: the convolution's inputs, and a matrix."""
    keys, values = config.linear_key_head_dim, config.linear_value_head_dim
    inputs = 2 * config.linear_num_key_heads * keys + config.linear_num_value_heads * values
    matrix = config.linear_num_value_heads * keys * values
    return int(inputs * config.linear_conv_kernel_dim + matrix)
