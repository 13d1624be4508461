"""Attention of a decoding pass by Triton kernels, which read a shared prompt once for its rows.

One program looks at a part of a prompt for up to 16 rows that share it, another at a part of one
row's own keys; each leaves its largest score, its sum of exponentials and its mix of values. A last
kernel puts the parts of a head together (flash-decoding: Dao et al. 2023,
https://crfm.stanford.edu/2023/10/12/flashdecoding.html; a shared prefix: Juravsky et al. 2024,
"Hydragen", arXiv:2402.05099).

Imported where Triton is. Tests run the kernels in its interpreter, on a CPU; not run on a GPU yet.

Shapes: R rows, B rows of an item, H query heads, K key heads, Q = H / K, D width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from rlvr_torch.generation.captured.attention import DecodeAttention, Past, power
from rlvr_torch.models.interface import Heads

_PART = 256  # keys that a program looks at
_ROWS = 16  # rows of an item, at most
_QUERIES = 64  # queries of a program, rows times heads, that are aimed at
_NUMBERS = 1 << 14  # numbers in the queries of a program, at most: they lie in its 99 KiB too
_LEAST = 16  # rows and columns that a product of Triton has at least
WIDEST = 512
"""The widest head whose program fits 99 KiB."""


def build() -> None:
    """Have Triton build what it calls the card with; it raises without a C compiler, say."""
    triton.runtime.driver.active.get_current_target()


@triton.jit
def _mix(  # type: ignore[no-untyped-def]
    q, keys, values, pages, k_page, v_page, k_d, k_n, v_n, start, stop, low, end, scale,
    SOFTCAP: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Largest score, sum and mix of queries (M, D) over keys `start` to `stop`.

    Query m sees those between `low[m]` and `end[m]`, both excluded. PAGE keys lie in each of
    `pages`; 0: they lie in one piece.
    """
    d = tl.arange(0, D)
    top = tl.full((M,), float("-inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    mixed = tl.zeros((M, D), tl.float32)
    for first in range(start, stop, N):
        n = first + tl.arange(0, N)
        is_key = n < stop
        k_from, v_from, here = keys, values, n
        if PAGE > 0:
            page = tl.load(pages + first // PAGE).to(tl.int64)
            k_from, v_from, here = keys + page * k_page, values + page * v_page, n % PAGE
        at = d[:, None] * k_d + here[None, :] * k_n
        k = tl.load(k_from + at, mask=(d[:, None] < WIDTH) & is_key[None, :], other=0.0)
        scores = tl.dot(q, k, input_precision="ieee") * scale
        if SOFTCAP > 0:
            scores = SOFTCAP * (2 * tl.sigmoid(2 * scores / SOFTCAP) - 1)
        sees = (n[None, :] < end[:, None]) & (n[None, :] > low[:, None])
        scores = tl.where(sees, scores, float("-inf"))
        largest = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(largest == float("-inf"), 0.0, largest)
        shares = tl.exp(scores - base[:, None])
        kept = tl.exp(top - base)
        total = total * kept + tl.sum(shares, 1)
        at = here[:, None] * v_n + d[None, :]
        v = tl.load(v_from + at, mask=(d[None, :] < WIDTH) & is_key[:, None], other=0.0)
        mixed = mixed * kept[:, None] + tl.dot(shares.to(v.dtype), v, input_precision="ieee")
        top = largest
    return top, total, mixed


@triton.jit
def _keep(  # type: ignore[no-untyped-def]
    tops, totals, mixes, place, is_query, top, total, mixed, D: tl.constexpr, WIDTH: tl.constexpr
):
    """Leave what was found of M queries at their places."""
    d = tl.arange(0, D)
    tl.store(tops + place, top, mask=is_query)
    tl.store(totals + place, total, mask=is_query)
    at = place[:, None] * WIDTH + d[None, :]
    tl.store(mixes + at, mixed, mask=is_query[:, None] & (d[None, :] < WIDTH))


@triton.jit
def _over_prompts(  # type: ignore[no-untyped-def]
    q, keys, values, k_place, k_head, k_d, v_place, v_head, v_n, item_places, item_rows,
    lengths, ages, tops, totals, mixes, rows, scale,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, KEYS: tl.constexpr, Q: tl.constexpr,
    B: tl.constexpr, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    PART: tl.constexpr,
):  # fmt: skip
    """A part of a prompt, for the rows of an item and one key head."""
    item, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    m, d = tl.arange(0, M), tl.arange(0, D)
    row = tl.load(item_rows + item * B + m // Q, mask=m // Q < B, other=-1).to(tl.int64)
    is_query = row >= 0
    length = tl.load(lengths + row, mask=is_query, other=0)
    age = tl.load(ages + row, mask=is_query, other=0)
    query = row * (KEYS * Q) + head * Q + m % Q  # of (R, H)
    at = query[:, None] * WIDTH + d[None, :]
    mine = tl.load(q + at, mask=is_query[:, None] & (d[None, :] < WIDTH), other=0.0)
    place = tl.load(item_places + item).to(tl.int64)
    low = length + age - WINDOW if WINDOW > 0 else length * 0 - 1
    stop = tl.minimum((part + 1) * PART, tl.max(length, 0).to(tl.int32))
    top, total, mixed = _mix(
        mine, keys + place * k_place + head * k_head, values + place * v_place + head * v_head,
        item_places, 0, 0, k_d, 1, v_n, part * PART, stop, low, length, scale,
        SOFTCAP, M, N, D, WIDTH, 0,
    )  # fmt: skip
    _keep(
        tops, totals, mixes, part * rows * KEYS * Q + query, is_query, top, total, mixed, D, WIDTH
    )


@triton.jit
def _over_own(  # type: ignore[no-untyped-def]
    q, keys, values, k_page, k_head, v_page, v_head, pages, columns, ages,
    tops, totals, mixes, rows, parts, scale,
    WINDOW: tl.constexpr, SOFTCAP: tl.constexpr, KEYS: tl.constexpr, Q: tl.constexpr,
    M: tl.constexpr, N: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, PART: tl.constexpr,
    PAGE: tl.constexpr,
):  # fmt: skip
    """A part of a row's own keys, for one key head; `parts` are those of prompts."""
    row, head, part = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.program_id(2)
    m, d = tl.arange(0, M), tl.arange(0, D)
    is_query = m < Q
    query = row * (KEYS * Q) + head * Q + m
    at = query[:, None] * WIDTH + d[None, :]
    mine = tl.load(q + at, mask=is_query[:, None] & (d[None, :] < WIDTH), other=0.0)
    age = tl.load(ages + row) + m * 0
    low = age - WINDOW if WINDOW > 0 else age * 0 - 1
    stop = tl.minimum((part + 1) * PART, tl.max(age, 0).to(tl.int32) + 1)
    top, total, mixed = _mix(
        mine, keys + head * k_head, values + head * v_head, pages + row * columns, k_page, v_page,
        1, WIDTH, WIDTH, part * PART, stop, low, age + 1, scale, SOFTCAP, M, N, D, WIDTH, PAGE,
    )  # fmt: skip
    place = (parts + part) * rows * KEYS * Q + query
    _keep(tops, totals, mixes, place, is_query, top, total, mixed, D, WIDTH)


@triton.jit
def _together(  # type: ignore[no-untyped-def]
    tops, totals, mixes, sinks, out, queries, parts, heads,
    HAS_SINKS: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Mix the parts of one query by the sums of their exponentials."""
    query = tl.program_id(0).to(tl.int64)
    d = tl.arange(0, D)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.full((), 0.0, tl.float32)
    if HAS_SINKS:
        top = tl.load(sinks + query % heads).to(tl.float32)
        total = tl.full((), 1.0, tl.float32)
    mixed = tl.zeros((D,), tl.float32)
    for part in range(parts):
        place = part * queries + query
        one = tl.load(tops + place)
        largest = tl.maximum(top, one)
        base = tl.where(largest == float("-inf"), 0.0, largest)
        kept, new = tl.exp(top - base), tl.exp(one - base)
        total = total * kept + tl.load(totals + place) * new
        found = tl.load(mixes + place * WIDTH + d, mask=d < WIDTH, other=0.0)
        mixed = mixed * kept + found * new
        top = largest
    found = (mixed / total).to(out.dtype.element_ty)
    tl.store(out + query * WIDTH + d, found, mask=d < WIDTH)


class TritonAttention(DecodeAttention):
    """By kernels: a prompt is read once for up to 16 of its rows, and nothing is copied."""

    def __init__(self, heads: Sequence[Heads], device: torch.device) -> None:
        super().__init__(heads, device)
        most = max(layer.queries // layer.keys for layer in heads)
        widest = max(power(layer.width) for layer in heads)
        queries = min(_QUERIES, _NUMBERS // widest)
        self._rows = max(1, min(_ROWS, queries // power(most)))  # of an item
        self._part = _PART
        self._item_rows = torch.zeros(0, self._rows, dtype=torch.int32, device=device)
        self._item_places = torch.zeros(0, dtype=torch.int32, device=device)

    def seat(self, owner: Sequence[int | None], rows: int) -> int:
        if rows > len(self._item_rows):
            self._item_rows = self._item_rows.new_zeros(rows, self._rows)
            self._item_places = self._item_places.new_zeros(rows)
        by_place: dict[int, list[int]] = {}
        for row, place in enumerate(owner):
            by_place.setdefault(place or 0, []).append(row)  # a free row sees no prompt
        item_rows = torch.full(self._item_rows.shape, -1, dtype=torch.int32)
        item_places = torch.zeros(rows, dtype=torch.int32)
        item = 0
        for place, some in by_place.items():
            for first in range(0, len(some), self._rows):
                part = some[first : first + self._rows]
                item_rows[item, : len(part)] = torch.tensor(part, dtype=torch.int32)
                item_places[item] = place
                item += 1
        self._item_rows.copy_(item_rows)
        self._item_places.copy_(item_places)
        return max(by_place) + 1

    def open(self, past: Past) -> None:
        self._past = past

    def attend(self, layer: int, q: Tensor, sinks: Tensor | None) -> Tensor:
        heads, past, part = self._heads[layer], self._past, self._part
        each, q = heads.queries // heads.keys, q.contiguous()
        prompt_parts, own_parts = (-(-size // part) for size in (past.span, past.width))
        queries, parts = past.rows * heads.queries, prompt_parts + own_parts
        tops, totals = (q.new_empty(parts, queries, dtype=torch.float32) for _ in range(2))
        mixes = q.new_empty(parts, queries, heads.width, dtype=torch.float32)
        page = past.keys[layer].shape[2]
        shape = shape_of(heads, q.element_size(), min(part, page))
        keys, values = past.prompt_keys[layer], past.prompt_values[layer]
        _over_prompts[(past.rows, heads.keys, prompt_parts)](
            q,
            keys,
            values,
            *keys.stride()[:3],
            *values.stride()[:3],
            self._item_places,
            self._item_rows,
            past.lengths,
            past.ages,
            tops,
            totals,
            mixes,
            past.rows,
            heads.scale,
            PART=part,
            B=self._rows,
            M=max(_LEAST, power(self._rows * each)),
            **shape,
        )
        keys, values = past.keys[layer], past.values[layer]
        _over_own[(past.rows, heads.keys, own_parts)](
            q,
            keys,
            values,
            *keys.stride()[:2],
            *values.stride()[:2],
            past.pages,
            past.pages.stride(0),
            past.ages,
            tops,
            totals,
            mixes,
            past.rows,
            prompt_parts,
            heads.scale,
            PART=part,
            PAGE=page,
            M=max(_LEAST, power(each)),
            **shape,
        )
        found = torch.empty_like(q)
        _together[(queries,)](
            tops,
            totals,
            mixes,
            q if sinks is None else sinks,
            found,
            queries,
            parts,
            heads.queries,
            HAS_SINKS=sinks is not None,
            D=shape["D"],
            WIDTH=heads.width,
        )
        return found


def shape_of(heads: Heads, size: int, most: int) -> dict[str, Any]:
    """How the kernels take keys, at most `most` a step; numbers of `size` bytes."""
    depth = max(_LEAST, power(heads.width))
    tile = 16384 // (depth * size)  # keys of a step: 16 KiB of them
    return {
        "WINDOW": heads.window or 0,
        "SOFTCAP": heads.softcap,
        "KEYS": heads.keys,
        "Q": heads.queries // heads.keys,
        "N": min(most, max(_LEAST, min(64, tile))),
        "D": depth,
        "WIDTH": heads.width,
        "num_stages": 2 if size == 2 else 1,  # a program has 99 KiB on Ada
    }
