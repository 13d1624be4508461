"""The optimiser's groups, rate and clipping."""

from __future__ import annotations

import copy
import math
import sys

import pytest
import torch

from rlvr import PrerequisiteError
from rlvr_torch.config import TorchConfig
from rlvr_torch.training.optimizer import (
    OptimSettings,
    Updater,
    build_adamw,
    clip_gradients,
    learning_rate,
)


def rates(total, **options):
    """The rate of every update of a run, peak 1."""
    settings = OptimSettings(lr=1.0, **options)
    return [learning_rate(update, total, settings) for update in range(total)]


def test_warm_up_then_constant():
    """Update n of w warm-up updates takes (n + 1) / w of the peak."""
    assert rates(6, warmup=4) == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]


def test_linear_decay_reaches_zero_after_the_last_update():
    """From the peak along a line; every update still learns."""
    assert rates(5, decay="linear") == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])
    assert learning_rate(9, 5, OptimSettings(lr=1.0, decay="linear")) == 0.0


def test_cosine_decay_after_warm_up():
    """Half a cosine over what warm-up leaves."""
    found = rates(6, warmup=2, decay="cosine")
    wanted = [0.5, 1.0] + [0.5 * (1 + math.cos(math.pi * n / 4)) for n in range(4)]
    assert found == pytest.approx(wanted)


def test_cosine_linear_decay():
    """
    Half a cosine to a tenth of the peak, then a line to 0 over the last tenth.

    By hand, for 20 updates after warm-up: number 9 of them is half-way down the cosine of 18
    (0.1 + 0.9 / 2), number 18 begins the line with a tenth, number 19 has half of that.
    """
    found = rates(22, warmup=2, decay="cosine-linear")
    assert found[:3] == [0.5, 1.0, 1.0]
    assert [found[2 + n] for n in (9, 18, 19)] == pytest.approx([0.55, 0.1, 0.05])
    assert found[2:] == sorted(found[2:], reverse=True)
    settings = OptimSettings(lr=1.0, warmup=2, decay="cosine-linear")
    assert learning_rate(22, 22, settings) == 0.0
    just_before = 2 + 18 - 1e-9
    assert learning_rate(just_before, 22, settings) == pytest.approx(0.1)  # no jump


def test_unknown_length_never_decays():
    """Outside a run there is no total, so the peak stays."""
    assert learning_rate(50, 0, OptimSettings(lr=1.0, decay="cosine")) == 1.0


def test_decay_is_for_matrices_only(model):
    """Norms, biases and embeddings are not decayed; every weight is in exactly one group."""
    optimizer = build_adamw(model, OptimSettings(weight_decay=0.1), (0.9, 0.95))
    names = {id(value): name for name, value in model.named_parameters()}
    decayed, plain = ([names[id(p)] for p in g["params"]] for g in optimizer.param_groups)
    assert [g["weight_decay"] for g in optimizer.param_groups] == [0.1, 0.0]
    assert len(decayed) == 4 * model.config.n_layer
    assert all(name.startswith("h.") and name.endswith(".weight") for name in decayed)
    assert sorted(decayed + plain) == sorted(names.values())


def test_clipping_scales_the_global_norm(model):
    """The norm over all weights together is brought to the limit; directions stay."""
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    count = sum(value.numel() for value in model.parameters())
    assert clip_gradients(model.parameters(), 0.5) == pytest.approx(math.sqrt(count), rel=1e-5)
    total = math.sqrt(sum(float((value.grad**2).sum()) for value in model.parameters()))
    assert total == pytest.approx(0.5, rel=1e-4)
    assert clip_gradients(model.parameters(), 0.0) == pytest.approx(0.5, rel=1e-4)
    total = math.sqrt(sum(float((value.grad**2).sum()) for value in model.parameters()))
    assert total == pytest.approx(0.5, rel=1e-4)


def updater_of(model, kind):
    """An updater with weight decay and a critic."""
    config = TorchConfig(optimizer=kind, weight_decay=0.1)
    settings = OptimSettings(lr=1e-2, weight_decay=0.1, warmup=2)
    updater = Updater(model, config, settings, 6)
    updater.have_critic()
    return updater


def train(updater, model, steps):
    """Updates `steps` with gradients that depend on the update's number alone."""
    for step in steps:
        random = torch.Generator().manual_seed(step)
        for value in [*model.parameters(), *updater.critic.parameters()]:
            value.grad = torch.randn(value.shape, generator=random)
        updater.clip(updater.critic)
        updater.set_rates(step)
        updater.apply()
        updater.forget_gradients()
        assert all(value.grad is None for value in model.parameters())


def weights_of(updater, model):
    """Copies of all that is trained."""
    return [value.detach().clone() for value in [*model.parameters(), *updater.critic.parameters()]]


def test_offloaded_adamw_is_adamw_to_the_bit(model):
    """Weights, the critic's too, and the state that is saved."""
    other = copy.deepcopy(model)
    updaters = [
        (updater_of(m, kind), m) for m, kind in [(model, "adamw"), (other, "adamw-offload")]
    ]
    for updater, own in updaters:
        train(updater, own, range(4))
    plain, offloaded = (weights_of(*one) for one in updaters)
    assert all(map(torch.equal, plain, offloaded))
    states = [updater.state()[0]["state"] for updater, _ in updaters]
    assert states[0].keys() == states[1].keys()
    for number, state in states[0].items():
        assert all(torch.equal(state[name], states[1][number][name]) for name in state)


def test_unfused_adamw_moves_weights_as_the_fused_does(model):
    """Within float32's rounding, by PyTorch's loop over weights."""
    other = copy.deepcopy(model)
    fused, loop = updater_of(model, "adamw"), updater_of(other, "adamw-unfused")
    assert [u.state()[0]["param_groups"][0]["fused"] for u in (fused, loop)] == [True, False]
    train(fused, model, range(4))
    train(loop, other, range(4))
    for one, two in zip(weights_of(fused, model), weights_of(loop, other), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adamw", "adamw-unfused", "adamw-8bit", "adamw-offload"])
def test_each_kind_goes_on_exactly_from_what_it_saved(kind, model, tmp_path):
    """Two updates, a checkpoint, two more; a new optimiser from the checkpoint: the same bits."""
    if kind == "adamw-8bit":
        pytest.importorskip("bitsandbytes", minversion="0.50")  # from there on a CPU is enough
    updater = updater_of(model, kind)
    train(updater, model, range(2))
    optimizer, critic = updater.state()
    torch.save({"optimizer": optimizer, "critic": critic}, tmp_path / "state.pt")
    other = copy.deepcopy(model)
    train(updater, model, range(2, 4))

    state = torch.load(tmp_path / "state.pt", weights_only=True)
    resumed = updater_of(other, kind)
    resumed.restore(state["optimizer"], state["critic"])
    train(resumed, other, range(2, 4))
    assert all(map(torch.equal, weights_of(updater, model), weights_of(resumed, other)))


def test_moments_of_8_bits_take_a_quarter_and_stay_near(model):
    """Large matrices have a byte a moment; weights move within a tenth of AdamW's way of it."""
    pytest.importorskip("bitsandbytes", minversion="0.50")
    other = copy.deepcopy(model)
    start = weights_of(updater_of(model, "adamw"), model)
    plain, small = updater_of(model, "adamw"), updater_of(other, "adamw-8bit")
    train(plain, model, range(4))
    train(small, other, range(4))
    states = small._optimizer.state.values()
    assert {s["state1"].dtype for s in states if s["state1"].numel() >= 4096} == {torch.uint8}
    large = [i for i, value in enumerate(start) if value.numel() >= 4096]
    assert large
    for at in large:
        way = weights_of(plain, model)[at] - start[at]
        apart = weights_of(small, other)[at] - weights_of(plain, model)[at]
        assert 0 < apart.norm() < 0.1 * way.norm()


def test_without_bitsandbytes(model, monkeypatch):
    """Exit 4, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(PrerequisiteError, match=r"pip install.*rlvr-torch\[8bit\]"):
        updater_of(model, "adamw-8bit")
