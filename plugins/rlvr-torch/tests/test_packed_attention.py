"""Attention without masks and copies of prompts equals attention with a dense mask."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.hardware.primitives import hardware_of
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.interface import Heads
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.packing import varlen_attention
from rlvr_torch.training.packing.packed_attention import PackedAttention
from rlvr_torch.training.packing.prefix_packing import BlockAttention, Row
from rlvr_torch.training.packing.varlen_attention import (
    ChunkedAttention,
    CUDAFlashAttention,
    Spans,
)

CPU = torch.device("cpu")


class CPUFlashAttention(ChunkedAttention):
    """PyTorch's real flash kernel of the CPU, a sequence at a time; special layers in chunks."""

    def forward(self, q, k, v, spans, heads):
        if heads.softcap or spans.window is not None:
            return super().forward(q, k, v, spans, heads)
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        mixed = torch.empty_like(q)
        lse = q.new_empty(q.shape[1], len(q), dtype=torch.float32)
        for rows, keys in spans.pairs():
            own, sums = kernel(
                *map(as_batch, (q[rows], k[keys], v[keys])),
                0.0,
                spans.is_causal,
                scale=heads.scale,
            )
            mixed[rows], lse[:, rows] = own[0].transpose(0, 1), sums[0]
        return mixed, lse

    def backward(self, grad, q, k, v, mixed, lse, spans, heads):
        if heads.softcap or spans.window is not None:
            return super().backward(grad, q, k, v, mixed, lse, spans, heads)
        kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        d_q, d_k, d_v = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        for rows, keys in spans.pairs():
            given = (grad[rows], q[rows], k[keys], v[keys], mixed[rows])
            found = kernel(
                *map(as_batch, given), lse[None, :, rows], 0.0, spans.is_causal, scale=heads.scale
            )
            parts = (d_q[rows], d_k[keys], d_v[keys])
            for part, own in zip(parts, found, strict=True):
                part.copy_(own[0].transpose(0, 1))
        return d_q, d_k, d_v


def as_batch(tokens):
    """(n, H, D) as (1, H, n, D)."""
    return tokens.transpose(0, 1)[None]


KERNELS = {
    "chunked": ChunkedAttention(),
    "one query at a time": ChunkedAttention(scores=1),
    "cpu flash": CPUFlashAttention(),
    "cuda flash": CUDAFlashAttention(),
}


def heads(queries=4, keys=2, width=8, **changes):
    return Heads(queries=queries, keys=keys, width=width, scale=0.4, **changes)


def row_of(groups):
    """A row of prompts with the lengths of the completions that go on from them: (S, [T, ...])."""
    groups = sorted(groups, key=lambda one: not one[1])  # shared prompts first
    leads = np.array([prompt for prompt, _ in groups])
    rests = np.array([n for _, some in groups for n in some], dtype=np.int64)
    owners = np.array([i for i, (_, some) in enumerate(groups) for _ in some], dtype=np.int64)
    own = [leads[owner] + np.arange(n) for owner, n in zip(owners, rests, strict=True)]
    positions = np.concatenate([*map(np.arange, leads), *own])
    nothing = np.zeros(0, np.int64)
    return Row(
        tokens=np.zeros(len(positions), np.int64),
        positions=positions,
        leads=leads,
        rests=rests,
        owners=owners,
        supervised=nothing,
    )


def drawn(row, asked, dtype=torch.float32, seed=0):
    """Queries, keys and values (1, H, N, D) and a gradient; made as a layer makes them."""
    random = torch.Generator().manual_seed(seed)

    def some(count):
        shape = (1, len(row.positions), count, asked.width)
        return torch.randn(shape, generator=random).to(dtype).transpose(1, 2)

    q, k, v = some(asked.queries), some(asked.keys), some(asked.keys)
    return [x.requires_grad_() for x in (q, k, v)], some(asked.queries)


def results(attend, given, pull, sinks):
    """Values and gradients by queries, keys, values and sinks."""
    mixed = attend(0, *given, sinks)
    wanted = [*given, *([] if sinks is None else [sinks])]
    return [mixed.detach(), *torch.autograd.grad(mixed, wanted, pull)]


@pytest.fixture(scope="module", autouse=True)
def card():
    """
    The card's kernel on a CPU, by its description: dense, with masks, a sequence at a time.

    It stands behind PyTorch's dispatcher, so arguments are checked by the operator's schema.
    """

    def sees(n, m, is_causal, left, right):
        # FlashAttention aligns the last query with the last key; a negative bound is none.
        distance = (torch.arange(n)[:, None] + m - n) - torch.arange(m)
        right = 0 if is_causal else right
        inside = torch.ones(n, m, dtype=torch.bool)
        if left is not None and left >= 0:
            inside &= distance <= left
        if right is not None and right >= 0:
            inside &= distance >= -right
        return inside

    def shares(q, k, scale, mask, lse=None):
        scores = scale * torch.einsum("nhd,mhd->hnm", q, k).masked_fill(~mask, float("-inf"))
        lse = scores.logsumexp(2) if lse is None else lse
        return (scores - lse[..., None]).exp(), lse

    def pieces(ends, other):
        bounds = (ends[:-1], ends[1:], other[:-1], other[1:])
        return [(slice(a, b), slice(c, d)) for a, b, c, d in torch.stack(bounds, 1).tolist()]

    def wide(x, like):
        return x.float().repeat_interleave(like.shape[1] // x.shape[1], dim=1)

    def forward(q, k, v, ends, key_ends, max_q, max_k, dropout, is_causal, debug, *, scale=None,
                window_size_left=None, window_size_right=None, seqused_k=None, alibi_slopes=None,
                block_table=None, num_splits=None):  # fmt: skip
        assert q.dtype in (torch.bfloat16, torch.float16)
        assert (max_q, max_k) == (int(ends.diff().max()), int(key_ends.diff().max()))
        mixed, lse = torch.empty_like(q), torch.empty(q.shape[1], len(q))
        for own, other in pieces(ends, key_ends):
            n, m = own.stop - own.start, other.stop - other.start
            mask = sees(n, m, is_causal, window_size_left, window_size_right)
            p, lse[:, own] = shares(q[own].float(), wide(k[other], q), scale, mask)
            mixed[own] = torch.einsum("hnm,mhd->nhd", p, wide(v[other], q)).to(q.dtype)
        return mixed, lse, torch.zeros(2), torch.zeros(0), torch.zeros(0)

    def backward(grad, q, k, v, mixed, lse, ends, key_ends, max_q, max_k, dropout, is_causal,
                 rng_state, unused, *, scale=None, window_size_left=None,
                 window_size_right=None):  # fmt: skip
        found = [torch.zeros_like(x) for x in (q, k, v)]
        for own, other in pieces(ends, key_ends):
            n, m = own.stop - own.start, other.stop - other.start
            mask = sees(n, m, is_causal, window_size_left, window_size_right)
            p, _ = shares(q[own].float(), wide(k[other], q), scale, mask, lse[:, own])
            d_p = torch.einsum("nhd,mhd->hnm", grad[own].float(), wide(v[other], q))
            mean = (grad[own].float() * mixed[own].float()).sum(2).T[..., None]
            d_s = scale * p * (d_p - mean)
            d_q = torch.einsum("hnm,mhd->nhd", d_s, wide(k[other], q))
            d_k = torch.einsum("hnm,nhd->mhd", d_s, q[own].float())
            d_v = torch.einsum("hnm,nhd->mhd", p, grad[own].float())
            groups = (k.shape[1], -1)
            found[0][own] = d_q.to(q.dtype)
            found[1][other] = d_k.unflatten(1, groups).sum(2).to(q.dtype)
            found[2][other] = d_v.unflatten(1, groups).sum(2).to(q.dtype)
        return tuple(found)

    library = torch.library.Library("aten", "IMPL")
    library.impl("_flash_attention_forward", forward, "CPU")
    library.impl("_flash_attention_backward", backward, "CPU")
    before, varlen_attention._has_flash = varlen_attention._has_flash, lambda device: True
    yield
    varlen_attention._has_flash = before
    library._destroy()


groups = st.lists(
    st.tuples(
        st.integers(1, 12),
        st.one_of(st.just([]), st.lists(st.integers(0, 9), min_size=2, max_size=4)),
    ),
    min_size=1,
    max_size=4,
)
asked = st.builds(
    heads,
    queries=st.sampled_from([4, 8]),
    keys=st.sampled_from([1, 2, 4]),
    width=st.sampled_from([8, 5]),
    window=st.sampled_from([None, 1, 3, 7, 40]),
    softcap=st.sampled_from([0.0, 0.0, 2.0]),
)


@pytest.mark.parametrize("kernel", KERNELS)
@settings(deadline=None, max_examples=30)
@given(groups=groups, asked=asked, has_sinks=st.booleans(), is_half=st.booleans())
def test_values_and_gradients_are_those_of_the_dense_mask(
    kernel, groups, asked, has_sinks, is_half
):
    """
    Every kernel, layer and shape: within float32's rounding, or bfloat16's.

    Grouped heads, windows, soft caps, sinks; ragged prompts, singletons, empty completions.
    """
    row, net = row_of(groups), SimpleNamespace(heads=[asked])
    dtype = torch.bfloat16 if is_half else torch.float32
    given, pull = drawn(row, asked, dtype)
    sinks = torch.linspace(-1, 2, asked.queries).requires_grad_() if has_sinks else None
    found = results(PackedAttention(net, row, CPU, KERNELS[kernel]), given, pull, sinks)
    exact = [x.detach().float().requires_grad_() for x in given]
    wanted = results(BlockAttention(net, row, CPU), exact, pull.float(), sinks)
    for mine, theirs in zip(found, wanted, strict=True):
        assert mine.shape == theirs.shape
        scale = max(1.0, float(theirs.abs().max()))
        assert (mine.float() - theirs).abs().max() <= (0.03 if is_half else 2e-5) * scale


def test_the_merge_equals_one_softmax_by_hand():
    """Scores 0 and ln 3 in two calls: shares 1/4 and 3/4, so values 4 and 8 mix to 7."""
    asked = Heads(queries=1, keys=1, width=1, scale=1.0)
    row = row_of([(1, [1, 0])])
    k, v = torch.tensor([np.log(3.0), 0.0]), torch.tensor([8.0, 4.0])
    q, k, v = torch.ones(1, 1, 2, 1), k.float().reshape(1, 1, 2, 1), v.reshape(1, 1, 2, 1)
    mixed = PackedAttention(SimpleNamespace(heads=[asked]), row, CPU)(0, q, k, v)
    assert mixed.flatten().tolist() == pytest.approx([8.0, 7.0])


def test_autocast_lowers_the_type_as_it_does_for_dense_attention():
    """Float32 queries are computed, and given back, in bfloat16."""
    asked = heads()
    row, net = row_of([(5, [3, 4])]), SimpleNamespace(heads=[asked])
    given, _ = drawn(row, asked)
    with torch.autocast("cpu", torch.bfloat16):
        mixed = PackedAttention(net, row, CPU)(0, *given)
    assert mixed.dtype == torch.bfloat16
    assert (mixed - BlockAttention(net, row, CPU)(0, *given)).abs().max() < 0.03


@pytest.mark.parametrize("family", ["own", "gemma2", "gpt_oss", "mistral"])
def test_a_step_gives_the_loss_and_gradients_that_it_gives_in_blocks(
    family, make_hf, model, make_datum
):
    """Trunk, head and loss of whole models: windows, soft caps, sinks, experts."""
    net = model if family == "own" else load_net(str(make_hf(family)))
    first = make_datum(20, 33, 1)
    data = [make_datum(20, n, n) for n in (21, 30, 40)]
    lead = first.tokens[:20]
    data = [evolve(d, tokens=np.concatenate([lead, d.tokens[20:]])) for d in data]
    data += [make_datum(9, 30, 3)]
    used = []

    def attention(net, row, device):
        used.append(len(row.positions))
        return PackedAttention(net, row, device)

    blocks, packed = Learner(net=net), Learner(net=net, attention=attention)
    wanted, theirs = blocks.gradients(data, LikelihoodLoss())
    found, mine = packed.gradients(data, LikelihoodLoss())
    assert used == [20 + 0 + 9 + 19 + 29]
    assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max()))


def test_the_flash_kernel_is_for_cards_in_half_precision():
    """Elsewhere, and in float32, rows attend in blocks, as ever."""
    card, half = hardware_of(torch.device("cuda")), torch.bfloat16
    for elsewhere in (hardware_of(CPU), hardware_of(torch.device("mps"))):
        assert elsewhere.packed_attention(half) is BlockAttention
    assert card.packed_attention(torch.float32) is BlockAttention
    made = card.packed_attention(half)
    attend = made(SimpleNamespace(heads=[heads()]), row_of([(3, [])]), CPU)
    assert isinstance(attend, PackedAttention)


@pytest.mark.parametrize("window", [None, 50])
def test_no_tensor_has_a_score_for_each_pair_of_tokens(window, largest):
    """Forward and back, the largest tensor is the budget of scores, or the row itself."""
    asked = heads(window=window)
    row, net = row_of([(120, [60] * 6)]), SimpleNamespace(heads=[asked])
    given, pull = drawn(row, asked)
    budget = 4096
    kernel = ChunkedAttention(scores=budget)
    limit = max(budget, given[0].numel())
    packed, dense = (
        largest(results, attend, given, pull, None)
        for attend in (PackedAttention(net, row, CPU, kernel), BlockAttention(net, row, CPU))
    )
    assert packed <= 1.05 * limit
    assert dense >= 6 * 60 * 180 > 3 * limit


@pytest.mark.parametrize("spans", ["causal", "window", "whole"])
def test_the_cards_kernel_takes_what_it_is_given(spans):
    """PyTorch's own shape rules for the operator accept the call, forward and back."""
    lengths = np.array([3, 5])
    made = Spans(
        queries=lengths,
        keys=lengths + 2 * (spans == "whole"),
        is_causal=spans != "whole",
        window=2 if spans == "window" else None,
        device=torch.device("meta"),
    )
    kernel = CUDAFlashAttention()
    q = torch.empty(8, 4, 16, dtype=torch.bfloat16, device="meta")
    k = torch.empty(int(made.keys.sum()), 2, 16, dtype=torch.bfloat16, device="meta")
    mixed, lse = kernel.forward(q, k, k, made, heads(width=16))
    assert (mixed.shape, lse.shape, lse.dtype) == (q.shape, (4, 8), torch.float32)
    d_q, d_k, d_v = kernel.backward(q, q, k, k, mixed, lse, made, heads(width=16))
    assert (d_q.shape, d_k.shape, d_v.shape) == (q.shape, k.shape, k.shape)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("window", [None, 30])
def test_the_real_card_gives_what_the_dense_mask_gives(window):
    """The kernel that the other tests replace."""
    asked, device = heads(width=64, window=window), torch.device("cuda")
    row, net = row_of([(50, [20, 33, 1]), (70, [])]), SimpleNamespace(heads=[asked])
    given, pull = drawn(row, asked, torch.bfloat16)
    exact = [x.detach().float().requires_grad_() for x in given]
    wanted = results(BlockAttention(net, row, CPU), exact, pull.float(), None)
    given = [x.detach().to(device).requires_grad_() for x in given]
    attend = PackedAttention(net, row, device, CUDAFlashAttention())
    for mine, theirs in zip(results(attend, given, pull.to(device), None), wanted, strict=True):
        scale = max(1.0, float(theirs.abs().max()))
        assert (mine.float().cpu() - theirs).abs().max() <= 0.03 * scale
