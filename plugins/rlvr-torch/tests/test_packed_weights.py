"""Products made for decoding are those of the weights, and leave nothing behind."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr_torch.generation.cpu import matmul
from rlvr_torch.generation.cpu.matmul import Matmul, gelu
from rlvr_torch.generation.cpu.weights import PackedWeights
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.models.gpt2 import attend_causal


@pytest.fixture(params=["in blocks", "without oneDNN"])
def kind(request, monkeypatch):
    """Each of the ways in which a product is made."""
    if request.param != "in blocks":
        monkeypatch.setattr(matmul, "has_blocks", lambda: False)


def test_products_are_those_of_the_weights(model, kind):
    """Layers and head, in every layout: within 1e-5 of plain products."""
    weights = PackedWeights(model, torch.float32)
    x = torch.randn(3, 5, 32, generator=torch.Generator().manual_seed(0))
    linear = model.h[0].mlp.c_fc
    with torch.inference_mode():
        wanted = linear(x), x[0] @ model.head.t()
        with weights.packed():
            assert "forward" in linear.__dict__
            found = linear(x), weights.logits(x[0])
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert (one - other).abs().max() < 1e-5


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("rows", [1, 7, 32])
def test_what_follows_a_product_is_fused_rightly(kind, has_bias, rows):
    """GELU, in every layout: within 1e-5, and the weight is read only."""
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(48, 32, generator=random)
    bias = torch.randn(48, generator=random) if has_bias else None
    x, before = torch.randn(rows, 32, generator=random), weight.clone()
    plain = torch.nn.functional.linear(x, weight, bias)
    with torch.inference_mode():
        made = Matmul(weight, bias)
        wanted = torch.nn.functional.gelu(plain, approximate="tanh")
        assert (made.gelu(x) - wanted).abs().max() < 1e-5
        assert (made(x.t().contiguous().t()) - plain).abs().max() < 1e-5
    assert torch.equal(weight, before)


@pytest.mark.parametrize("shape", [(576, 192), (192, 768), (300, 32), (768, 3072)])
def test_a_row_of_a_product_is_the_same_beside_any_others(shape):
    """From two rows on, to the bit, wherever it stands."""
    random = torch.Generator().manual_seed(0)
    made = Matmul(torch.randn(shape, generator=random), torch.randn(shape[0], generator=random))
    mine = torch.randn(shape[1], generator=random)
    found = set()
    with torch.inference_mode():
        for rows in (2, 3, 4, 7, 12, 16, 33, 128):
            for place in (0, rows // 2, rows - 1):
                x = torch.randn(rows, shape[1], generator=random)
                x[place] = mine
                found.add((made(x)[place].numpy().tobytes(), made.gelu(x)[place].numpy().tobytes()))
    assert len(found) == 1


def test_a_weight_that_lies_the_other_way():
    """What is not contiguous is multiplied as well."""
    random = torch.Generator().manual_seed(0)
    weight, x = torch.randn(32, 48, generator=random).t(), torch.randn(32, 32, generator=random)
    with torch.inference_mode():
        assert (Matmul(weight, None)(x) - x @ weight.t()).abs().max() < 1e-5


def test_gelu_is_torchs():
    """Within 2e-6 relative to the input, from far below zero to far above it."""
    x = torch.cat([torch.linspace(-40, 40, 10001), torch.tensor([0.0, -1e30, 1e30, 1e-30])])
    wanted = torch.nn.functional.gelu(x.double(), approximate="tanh")
    assert ((gelu(x) - wanted).abs() <= 2e-6 * x.abs().clamp(min=1e-6)).all()
    assert gelu(torch.tensor([float("nan")])).isnan().all()


@pytest.mark.parametrize("rows", [1, 3, 1 << 20])
def test_a_block_is_the_block(model, kind, monkeypatch, rows):
    """All layers with packed blocks: within 1e-5 of the model, MLP rows in parts or together."""
    monkeypatch.setattr("rlvr_torch.generation.cpu.gpt2_block._INNER", 1)
    monkeypatch.setattr("rlvr_torch.generation.cpu.gpt2_block._FEWEST", rows)
    tokens = torch.randint(0, model.vocab_size, (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        wanted = model.hidden(tokens, None, attend_causal)
        with PackedWeights(model, torch.float32).packed():
            assert "forward" in model.h[1].__dict__
            found = model.hidden(tokens, None, attend_causal)
    assert (found - wanted).abs().max() < 1e-5


@pytest.mark.parametrize("odd", [None, 0, 1])
def test_the_ends_of_prompts_are_those_of_a_whole_pass(model, odd):
    """Of prompts of several lengths, whichever blocks are packed; all keys are seen on the way."""
    if odd is not None:  # a layer that is not plain, as adapters make them
        model.h[odd].mlp.c_fc.__class__ = type("Odd", (torch.nn.Linear,), {})
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, model.vocab_size, (3, 9), generator=random)
    last, positions = torch.tensor([8, 0, 4]), torch.arange(9).expand(3, -1)
    seen = []

    def attend(layer, q, k, v, sinks=None):
        seen.append((layer, tuple(k.shape)))
        return attend_causal(layer, q, k, v, sinks)

    weights = PackedWeights(model, torch.float32)
    with torch.inference_mode():
        wanted = model.hidden(tokens)[torch.arange(3), last]
        with weights.packed():
            assert ("forward" in model.h[1].__dict__) == (odd != 1)
            found = weights.ends(tokens, positions, attend, last)
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max() < 1e-5
    assert seen == [(0, (3, 2, 9, 16)), (1, (3, 2, 9, 16))]


def test_nothing_is_kept(model):
    """After it, also after an error, the model computes with its weights as they are then."""
    weights = PackedWeights(model, torch.float32)
    linear, x = model.h[0].mlp.c_fc, torch.ones(2, 32)
    with pytest.raises(KeyError), weights.packed():
        raise KeyError
    with torch.no_grad():
        linear.weight.zero_()
        assert torch.equal(linear(x), linear.bias.expand(2, -1))
    assert not any("forward" in module.__dict__ for module in model.modules())


def test_nothing_is_laid_out_where_it_would_not_pay(model):
    """Lower precision uses the weights as they lie."""
    with PackedWeights(model, torch.bfloat16).packed():
        assert not any("forward" in module.__dict__ for module in model.modules())


def test_an_adapters_hook_is_heard(model):
    """A layer that a forward hook changes gives what it gave: its block is not packed."""
    tokens = torch.arange(6)[None]
    positions = torch.arange(6)[None]

    def run():
        with torch.inference_mode():
            return model.hidden(tokens, positions, attend_causal)

    plain = run()
    handles = [model.h[0].mlp.c_fc.register_forward_hook(lambda _m, _x, y: y + 0.5)]
    handles.append(model.h[-1].attn.c_proj.register_forward_pre_hook(lambda _m, x: (x[0] * 2,)))
    wanted = run()
    with PackedWeights(model, torch.float32).packed():
        found = run()
    for handle in handles:
        handle.remove()
    assert (found - wanted).abs().max() < 1e-5
    assert (wanted - plain).abs().max() > 1e-3


class Made(TorchDispatchMode):
    """Counts tensors as large as a head that operations make."""

    def __init__(self, size):
        super().__init__()
        self.size, self.count = size, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        is_new = isinstance(made, torch.Tensor) and not func.is_view
        self.count += is_new and made.numel() == self.size
        return made


@pytest.mark.parametrize("kind", [DecodeWeights, PackedWeights])
def test_a_head_in_bfloat16_is_converted_once(kind, model):
    """Bits as if converted for each pass; new weights come into the same memory."""
    model.to(torch.bfloat16)
    weights, hidden = kind(model, torch.bfloat16), torch.randn(3, 32)
    places = set()
    for _ in range(2):
        with torch.inference_mode():
            wanted = torch.nn.functional.linear(hidden, model.head.float())
            with weights.packed(), Made(model.head.numel()) as made:
                assert all(torch.equal(weights.logits(hidden), wanted) for _ in range(3))
                places.add(weights._kept_head.data_ptr())
            assert made.count == 0
            assert torch.equal(weights.logits(hidden), wanted)  # outside, too
        with torch.no_grad():
            model.head.mul_(-3)
    assert len(places) == 1
