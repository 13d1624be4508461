"""Keys and values of what was read: kept once a distinct prompt, and once a row after that.

A group's rows share their prompt's keys: they are stored, and read, once for the whole group
(attention over the prompt is one matrix product for each prompt, not one vector product for each
row). What each row generated lives in slots of its own that are allocated ahead and written in
place; nothing is concatenated to the cache while decoding.

Shapes: P distinct prompts, S their longest length, R rows that still generate, G the most rows any
prompt has, N slots, H heads, D width of a head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr_torch.gpt2 import GPT2Config

_FIRST_SLOTS = 32


class KVCache:
    """
    The cache of one batch. `read_prompts` is the attention of the prefill, `attend` of decoding.

    Prompts are padded on the right to S, and padding is masked. Rows must be sorted by prompt.
    """

    def __init__(
        self, config: GPT2Config, lengths: Tensor, owner: Tensor, dtype: torch.dtype
    ) -> None:
        """
        Make room.

        Args:
            config: Shape of the model.
            lengths: Prompt lengths in tokens, shape (P,).
            owner: Index of each row's prompt, shape (R,), ascending.
            dtype: Type keys and values are kept in.
        """
        device, width = lengths.device, config.n_embd // config.n_head
        prompts, longest, rows = len(lengths), int(lengths.max()), len(owner)
        shape = (prompts, config.n_head, longest, width)
        self._layers = range(config.n_layer)
        self._scale = width**-0.5
        self._prompt_k = [torch.empty(shape, dtype=dtype, device=device) for _ in self._layers]
        self._prompt_v = [torch.empty(shape, dtype=dtype, device=device) for _ in self._layers]
        is_padding = torch.arange(longest, device=device) >= lengths[:, None]  # (P, S)
        self._padding = torch.zeros(is_padding.shape, dtype=dtype, device=device)
        self._padding.masked_fill_(is_padding, float("-inf"))
        self._is_ragged = bool(is_padding.any())
        slots = (rows, config.n_head, _FIRST_SLOTS, width)
        self._row_k = [torch.empty(slots, dtype=dtype, device=device) for _ in self._layers]
        self._row_v = [torch.empty(slots, dtype=dtype, device=device) for _ in self._layers]
        self._used = 0
        self._first_prompt = 0
        self._seat(owner)

    def read_prompts(self, first: int) -> None:
        """The next prefill holds prompts `first`, `first + 1`, ... in order."""
        self._first_prompt = first

    def attend_prompts(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Causal attention of a prefill (P', H, S', D), which is kept."""
        rows = slice(self._first_prompt, self._first_prompt + q.shape[0])
        self._prompt_k[layer][rows, :, : k.shape[2]] = k
        self._prompt_v[layer][rows, :, : v.shape[2]] = v
        # Slots past the keys of this part are masked but multiplied by 0: they must be finite.
        self._prompt_k[layer][rows, :, k.shape[2] :] = 0
        self._prompt_v[layer][rows, :, v.shape[2] :] = 0
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def advance(self) -> None:
        """Make room for one more token a row; call before each decoding pass."""
        self._used += 1
        slots = self._row_k[0].shape[2]
        if self._used > slots:
            for store in (self._row_k, self._row_v):
                for layer in self._layers:
                    old = store[layer]
                    new = old.new_empty(old.shape[0], old.shape[1], 2 * slots, old.shape[3])
                    new[:, :, :slots] = old
                    store[layer] = new

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention of one new token a row, q, k and v (R, H, 1, D), over prompt and own past."""
        own_k, own_v = self._row_k[layer], self._row_v[layer]
        own_k[:, :, self._used - 1] = k[:, :, 0]
        own_v[:, :, self._used - 1] = v[:, :, 0]
        q = q * self._scale
        seated = self._to_seats(q[:, :, 0])  # (P, H, G, D)
        prompt = seated @ self._prompt_k[layer].transpose(2, 3)  # (P, H, G, S)
        if self._is_ragged:
            prompt += self._padding[:, None, None]
        own = q @ own_k[:, :, : self._used].transpose(2, 3)  # (R, H, 1, N)
        scores = torch.cat([self._from_seats(prompt)[:, :, None], own], dim=3)
        shares = scores.softmax(dim=3)  # (R, H, 1, S + N)
        longest = prompt.shape[3]
        seated = self._to_seats(shares[:, :, 0, :longest])  # (P, H, G, S)
        mixed = self._from_seats(seated @ self._prompt_v[layer])[:, :, None]
        return mixed + shares[:, :, :, longest:] @ own_v[:, :, : self._used]

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (indices, ascending), and prompts that have no row any more."""
        for store in (self._row_k, self._row_v):
            for layer in self._layers:
                old = store[layer]
                new = old.new_empty(len(rows), *old.shape[1:])
                new[:, :, : self._used] = old[rows, :, : self._used]
                store[layer] = new
        prompts, owner = torch.unique_consecutive(self._owner[rows], return_inverse=True)
        if len(prompts) < len(self._padding):
            self._padding = self._padding[prompts]
            self._is_ragged = bool(self._padding.any())
            for store in (self._prompt_k, self._prompt_v):
                for layer in self._layers:
                    store[layer] = store[layer][prompts]
        self._seat(owner)

    def _seat(self, owner: Tensor) -> None:
        """Give each row a seat in a (P, G) table, so that prompts meet all their rows at once."""
        prompts = len(self._padding)
        counts = torch.bincount(owner, minlength=prompts)  # (P,)
        first = counts.cumsum(0) - counts
        self._owner = owner
        self._table = (prompts, int(counts.max()))
        self._is_full = len(owner) == prompts * self._table[1]
        self._seats = owner * self._table[1] + torch.arange(len(owner), device=owner.device)
        self._seats -= first[owner]

    def _to_seats(self, values: Tensor) -> Tensor:
        """(R, H, X) to (P, H, G, X); empty seats hold 0."""
        prompts, most = self._table
        if not self._is_full:
            table = values.new_zeros(prompts * most, *values.shape[1:])
            values = table.index_copy_(0, self._seats, values)
        return values.view(prompts, most, *values.shape[1:]).transpose(1, 2)

    def _from_seats(self, values: Tensor) -> Tensor:
        """(P, H, G, X) to (R, H, X)."""
        rows = values.transpose(1, 2).flatten(0, 1)
        return rows if self._is_full else rows[self._seats]
