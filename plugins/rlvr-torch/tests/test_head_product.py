"""Products of the output head: float32 in parts, and bfloat16 inputs with float32 sums."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.torch_version import TorchVersion

from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.hardware.primitives import CPU, CUDA, PLAIN
from rlvr_torch.models import head_product
from rlvr_torch.models.head_product import FLOAT32, BFloat16HeadProduct
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.logprobs import sequence_logprobs
from rlvr_torch.training.output_head import Head


@pytest.fixture
def _on_cpu(monkeypatch):
    """The products of a card, computed as it does: exact products of the rounded inputs."""

    def emulated(plain):
        def product(*given, out_dtype=None, out=None):
            if out_dtype is None:
                return plain(*given, out=out) if out is not None else plain(*given)
            *total, one, other = given
            assert one.dtype == other.dtype == torch.bfloat16
            assert out_dtype == torch.float32
            found = plain(*total, one.float(), other.float())
            return found if out is None else out.copy_(found)

        return product

    monkeypatch.setattr(torch, "mm", emulated(torch.mm))
    monkeypatch.setattr(torch, "addmm", emulated(torch.addmm))


def test_which_product_a_device_has():
    """Rounded inputs on an NVIDIA card where products are in bfloat16, and nowhere else."""
    for hardware in (PLAIN, CPU, CUDA):
        assert hardware.head_product(torch.float32) is FLOAT32
    assert [h.head_product(torch.bfloat16) for h in (PLAIN, CPU)] == [FLOAT32] * 2
    assert type(CUDA.head_product(torch.bfloat16)) is BFloat16HeadProduct
    for dtype, kind in ((torch.bfloat16, BFloat16HeadProduct), (torch.float32, type(FLOAT32))):
        engine = CUDA.engine.keywords["weights_of"]
        net = type("Net", (), {"module": torch.nn.Linear(2, 2), "head": torch.zeros(2, 2)})()
        assert type(engine(net, dtype)._product) is kind


@pytest.mark.parametrize("version", ["2.6.0", "2.9.1+cu128", "2.10.0", "2.13.0+cpu"])
def test_an_older_pytorch_multiplies_in_float32(version, monkeypatch):
    """2.7 has no `out_dtype`, 2.9 refuses a float32 sum of bfloat16 products."""
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    is_rounded = type(CUDA.head_product(torch.bfloat16)) is BFloat16HeadProduct
    assert is_rounded == (version in ("2.10.0", "2.13.0+cpu"))


@pytest.mark.parametrize("rows", [7, 8, 100])
def test_a_head_in_bfloat16_is_converted_in_parts(rows, monkeypatch):
    """Logits and both gradients are those of the whole head in float32."""
    monkeypatch.setattr(head_product, "_ROWS", rows)
    head, states = torch.randn(40, 16).bfloat16(), torch.randn(9, 16)
    d_logits, total = torch.randn(9, 40), torch.randn(40, 16)
    wanted = total + d_logits.t() @ states
    logits = FLOAT32.logits(states, FLOAT32.weights(head), torch.empty(12, 40)[:9])
    FLOAT32.add_by_weights(total, d_logits, states)
    torch.testing.assert_close(logits, states @ head.float().t())
    torch.testing.assert_close(FLOAT32.by_states(d_logits, head), d_logits @ head.float())
    torch.testing.assert_close(total, wanted)


@pytest.mark.usefixtures("_on_cpu")
@pytest.mark.parametrize("family", ["own", "llama", "gemma2", "gpt2"])
def test_rounded_inputs_give_loss_and_gradients_of_float32(family, model, make_hf, make_datum):
    """Within bfloat16's rounding: tied and untied heads, soft caps, frozen heads, temperatures."""
    net = model if family == "own" else load_net(str(make_hf(family)))
    data = [make_datum(5, 20, 1), make_datum(3, 30, 2, temperature=0.7)]
    found, grads = Learner(net=net, product=BFloat16HeadProduct()).gradients(data, LikelihoodLoss())
    wanted, others = Learner(net=net).gradients(data, LikelihoodLoss())
    assert found.loss != wanted.loss
    assert found.loss == pytest.approx(wanted.loss, rel=5e-3)
    for one, other in zip(grads, others, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert one.dtype == torch.float32
            assert (one - other).norm() <= 0.02 * other.norm() + 1e-6
    some = sequence_logprobs(net, data, 16, product=BFloat16HeadProduct())
    for logprobs, exact in zip(some, sequence_logprobs(net, data, 16), strict=True):
        assert (logprobs - exact).abs().max() < 0.1


@pytest.mark.usefixtures("_on_cpu")
def test_sampling_and_training_round_alike(model):
    """The same state gives the same logits, to the bit, so no mismatch comes from the head."""
    product, states = BFloat16HeadProduct(), torch.randn(6, 32)
    head, ones = Head.of(model, product), torch.ones(6)
    trained = head.logits(states, ones, torch.empty(8, model.vocab_size))
    weights = DecodeWeights(model, torch.bfloat16, product)
    with torch.inference_mode(), weights.packed():
        drawn = weights.logits(states)
    assert head.weights.dtype == torch.bfloat16
    assert torch.equal(trained, drawn)
    assert not torch.equal(trained, states @ model.head.t())


def test_the_calls_are_those_that_torch_has():
    """On tensors without memory: PyTorch takes the arguments, which no CPU can compute."""
    product = BFloat16HeadProduct()
    with torch.device("meta"):
        head, states = torch.empty(40, 16), torch.empty(9, 16)
        kept, inputs = product.weights(head), product.inputs(states)
        logits = product.logits(inputs, kept, torch.empty(12, 40)[:9])
        total = torch.empty(40, 16)
        product.add_by_weights(total, logits, inputs)
        found = product.by_states(logits, kept)
    assert (logits.dtype, logits.shape) == (torch.float32, (9, 40))
    assert (found.dtype, found.shape) == (torch.float32, (9, 16))
    with pytest.raises(NotImplementedError):
        torch.mm(
            torch.zeros(2, 2).bfloat16(), torch.zeros(2, 2).bfloat16(), out_dtype=torch.float32
        )
    assert np.prod(total.shape) == 640
