"""Final hidden states for training, a group's shared prompt computed once.

G completions of one prompt cost G * (S + T) tokens when each is a sequence of its own. Here the
distinct prompts go through the model once, keeping their keys and values, and the completions go
through beside them: S + G * T. Gradients flow back into the prompt through its keys.

Shapes: P distinct prompts, S their longest length, R data, T longest completion, C width, N
supervised positions, H heads, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from attrs import frozen
from torch import Tensor

from rlvr.types import Datum
from rlvr_torch.gpt2 import GPT2, attend_causal


@frozen(kw_only=True)
class Extent:
    """Where a datum's unsupervised lead ends and its last supervised token is (exclusive)."""

    prompt: int
    end: int

    @classmethod
    def of(cls, datum: Datum) -> Extent:
        """Of a datum; both 0 where nothing is supervised."""
        at = np.flatnonzero(datum.mask)
        return cls(prompt=int(at[0]), end=int(at[-1]) + 1) if len(at) else cls(prompt=0, end=0)


def supervised_hidden(model: GPT2, data: Sequence[Datum]) -> Tensor:
    """
    The hidden state that predicts each supervised token, (N, C): datum by datum, in order.

    Prompts are shared where any two data have the same one; else each datum is one row.
    """
    extents = [Extent.of(datum) for datum in data]
    prompts: dict[bytes, int] = {}
    owners = [
        prompts.setdefault(datum.tokens[: extent.prompt].tobytes(), len(prompts))
        for datum, extent in zip(data, extents, strict=True)
    ]
    if len(prompts) == len(data):
        return _one_row_each(model, data, extents)
    return _shared(model, data, extents, owners)


def _one_row_each(model: GPT2, data: Sequence[Datum], extents: Sequence[Extent]) -> Tensor:
    device = model.head.device
    # The last token is predicted, not read.
    rows = [datum.tokens[: extent.end - 1] for datum, extent in zip(data, extents, strict=True)]
    tokens = _padded(rows, device)  # (R, S + T)
    hidden = model.hidden(tokens).flatten(0, 1)
    width = tokens.shape[1]
    at = [i * width + np.flatnonzero(datum.mask) - 1 for i, datum in enumerate(data)]
    return hidden[_index(at, device)]


def _shared(
    model: GPT2, data: Sequence[Datum], extents: Sequence[Extent], owners: Sequence[int]
) -> Tensor:
    device = model.head.device
    leads: dict[int, np.ndarray] = {}
    for datum, extent, owner in zip(data, extents, owners, strict=True):
        leads.setdefault(owner, datum.tokens[: extent.prompt])
    prompt_tokens = _padded(list(leads.values()), device)  # (P, S)
    kept: list[tuple[Tensor, Tensor]] = []  # a layer's keys and values, (P, H, S, D)

    def attend_prompt(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        kept.append((k, v))
        return attend_causal(layer, q, k, v)

    hidden = model.hidden(prompt_tokens, attend=attend_prompt).flatten(0, 1)
    prompts, longest = prompt_tokens.shape
    rows = [datum.tokens[e.prompt : e.end - 1] for datum, e in zip(data, extents, strict=True)]
    tokens = _padded(rows, device)  # (R, T)
    width = tokens.shape[1]
    if width:
        lengths = torch.tensor([extent.prompt for extent in extents], device=device)
        steps = torch.arange(width, device=device)
        positions = (lengths[:, None] + steps).clamp_(max=model.config.n_positions - 1)
        sees_prompt = torch.arange(longest, device=device) < lengths[:, None]  # (R, S)
        sees_own = steps <= steps[:, None]  # (T, T)
        sees = torch.cat(
            [
                sees_prompt[:, None].expand(-1, width, -1),
                sees_own.expand(len(data), -1, -1),
            ],
            dim=2,
        )[:, None]  # (R, 1, T, S + T)
        whose = torch.tensor(owners, device=device)

        def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            prompt_k, prompt_v = kept[layer]
            keys = torch.cat([prompt_k[whose], k], dim=2)
            values = torch.cat([prompt_v[whose], v], dim=2)
            return F.scaled_dot_product_attention(q, keys, values, attn_mask=sees)

        hidden = torch.cat([hidden, model.hidden(tokens, positions, attend).flatten(0, 1)])
    at = []
    for row, (datum, extent) in enumerate(zip(data, extents, strict=True)):
        own = prompts * longest + row * width + np.flatnonzero(datum.mask) - extent.prompt - 1
        own[0] = owners[row] * longest + extent.prompt - 1  # the prompt predicts the first
        at.append(own)
    return hidden[_index(at, device)]


def _padded(rows: Sequence[np.ndarray], device: torch.device) -> Tensor:
    tokens = np.zeros((len(rows), max(map(len, rows))), dtype=np.int64)
    for target, row in zip(tokens, rows, strict=True):
        target[: len(row)] = row
    return torch.from_numpy(tokens).to(device)


def _index(parts: Sequence[np.ndarray], device: torch.device) -> Tensor:
    return torch.from_numpy(np.concatenate(parts)).to(device)
