"""The digest of weights: every bit counts, and nothing else does."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rlvr_torch.runtime import weights_digest as digests
from rlvr_torch.runtime.weights_digest import _BLOCK, _hash, _multipliers, weights_digest

TYPES = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.int64]


def values(count, dtype, seed=0):
    """Random bytes as a tensor of any type."""
    size = count * dtype.itemsize
    raw = np.random.default_rng(seed).integers(0, 256, size, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype)


@settings(deadline=None, max_examples=150)
@given(
    dtype=st.sampled_from(TYPES),
    count=st.sampled_from([1, 2, 3, 7, 1000, 2 * _BLOCK - 1, 2 * _BLOCK, 5 * _BLOCK + 3]),
    data=st.data(),
)
def test_any_single_bit_counts(dtype, count, data):
    """Of any element, of any type, in whole and in short blocks; back again, the digest is too."""
    value = values(count, dtype)
    raw = value.view(torch.uint8)
    place = data.draw(st.integers(0, len(raw) - 1))
    bit = data.draw(st.integers(0, 7))
    before = _hash({"w": value})
    raw[place] ^= 1 << bit
    assert _hash({"w": value}) != before
    raw[place] ^= 1 << bit
    assert _hash({"w": value}) == before


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_several_changes_do_not_cancel(data):
    """Swapped words, flipped highest bits, a shift, and one added here and taken there."""
    value = values(2 * _BLOCK + 5, torch.float32)
    words, before = value.view(torch.int32), _hash({"w": value})
    one, other = data.draw(
        st.lists(st.integers(0, len(words) - 1), min_size=2, max_size=2, unique=True)
    )
    kind = data.draw(st.sampled_from(["swap", "high", "add", "shift"]))
    old = words.clone()
    if kind == "swap":
        words[[one, other]] = words[[other, one]]
    elif kind == "high":
        words[[one, other]] ^= -(2**31)
    elif kind == "add":
        words[one] += 1
        words[other] -= 1
    else:
        words.copy_(words.roll(1))
    assert (_hash({"w": value}) == before) == torch.equal(words, old)


@pytest.mark.parametrize("count", [1, 5, _BLOCK, 3 * _BLOCK + 7])
def test_the_sums_are_those_of_the_definition(count):
    """By hand, in Python's own integers."""
    value = values(count, torch.float32)
    words, odd = value.view(torch.int32).tolist(), _multipliers(torch.device("cpu")).tolist()
    digest = hashlib.sha256(f"w({count},)".encode())
    for first in range(0, count, _BLOCK):
        pairs = zip(words[first : first + _BLOCK], odd, strict=False)
        total = sum(word * factor for word, factor in pairs) % 2**64
        digest.update(total.to_bytes(8, "little"))
    assert _hash({"w": value}) == digest.hexdigest()
    assert all(factor % 2 for factor in odd)
    assert len(set(odd)) == _BLOCK


@pytest.mark.parametrize("dtype", TYPES)
def test_only_the_bytes_count(dtype, monkeypatch):
    """Not their place in memory, the number of threads, or the chunk, which is a device's."""
    value = values(40 * _BLOCK, dtype)
    wanted = _hash({"w": value})
    shifted = torch.empty(len(value) + 1, dtype=dtype)[1:].copy_(value)
    spread = torch.empty(len(value), 3, dtype=dtype)[:, 1].copy_(value)
    assert [_hash({"w": other}) for other in (shifted, spread)] == [wanted] * 2
    torch.set_num_threads(3)
    monkeypatch.setattr(digests, "_CHUNK", {"cpu": 2 * _BLOCK})
    assert _hash({"w": value}) == wanted


def test_the_same_bytes_give_the_same_in_every_type():
    """float32 read as int32, and two bfloat16 as one float32."""
    value = values(1000, torch.float32)
    for dtype in (torch.int32, torch.bfloat16, torch.uint8):
        again = value.view(dtype).view(torch.float32)
        assert torch.equal(digests._words(value.view(dtype)), digests._words(again))


def test_names_shapes_and_order_count():
    """Equal bytes under another name, in another shape, or in another order are other weights."""
    value, other = values(12, torch.float32), values(12, torch.float32, 1)
    found = [
        _hash({"a": value, "b": other}),
        _hash({"a": other, "b": value}),
        _hash({"b": other, "a": value}),
        _hash({"c": value, "b": other}),
        _hash({"a": value.view(3, 4), "b": other}),
        _hash({"a": value}),
        _hash({}),
        _hash({}, "begin"),
    ]
    assert len(set(found)) == len(found)
    assert all(len(digest) == 64 for digest in found)


def test_a_module_of_odd_parts_has_a_digest():
    """Scalars, nothing at all, transposed weights and half precision of odd length."""
    module = nn.Module()
    for name, value in {
        "scalar": torch.tensor(1.5),
        "nothing": torch.zeros(0, 3),
        "turned": torch.randn(3, 5).t(),
        "odd": torch.randn(3).bfloat16(),
    }.items():
        module.register_parameter(name, nn.Parameter(value))
    before = weights_digest(module)
    with torch.no_grad():
        module.odd[2] = -module.odd[2]
    assert weights_digest(module) != before
