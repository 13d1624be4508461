"""A model in training: exact gradients, Adam, and no update from a part of a batch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tinker.types import AdamParams

from rlvr_tinker_server.nets.losses import choose
from rlvr_tinker_server.nets.model import shared_leads
from rlvr_tinker_server.refusal import Refusal
from rlvr_tinker_server.wire import Row

SETTINGS = {"dtype": torch.float32, "is_cancelled": lambda: False}


def weighted(make_row, lengths=(7, 3, 12)):
    """Rows for cross-entropy with random weights."""
    rows = []
    for seed, length in enumerate(lengths):
        weights = np.random.default_rng(seed).normal(size=length).astype(np.float32)
        rows.append(make_row(length, seed, weights=weights))
    return rows


def run(model, rows, *, only=False, most_tokens=10_000, loss="cross_entropy"):
    """One pass."""
    return model.run(
        rows, choose(loss, {}), is_forward_only=only, most_tokens=most_tokens, **SETTINGS
    )


def grads(model):
    """A copy of all gradients."""
    return {name: weight.grad.clone() for name, weight in model.weights().items()}


def test_logprobs_and_gradient_are_those_of_the_whole_forward(net, gpt2, make_model, make_row):
    """Row by row through the plain model with autograd: same logprobs, loss and gradients."""
    model = make_model()
    rows = weighted(make_row)

    found, total = run(model, rows)
    ours = grads(model)
    for weight in model.weights().values():
        weight.grad = None
    wanted = 0.0
    with net.using(model.factors):
        for row, got in zip(rows, found, strict=True):
            hidden = gpt2.hidden(torch.from_numpy(row.tokens)[None])[0]
            p = F.linear(hidden, net.head).log_softmax(dim=1)
            p = p.gather(1, torch.from_numpy(row.inputs["target_tokens"])[:, None])[:, 0]
            assert np.allclose(got, p.detach().numpy(), atol=1e-5)
            wanted = wanted - (p * torch.from_numpy(row.inputs["weights"])).sum()
        wanted.backward()

    assert total == pytest.approx(float(wanted.detach()), abs=1e-4)
    for name, weight in model.weights().items():
        assert torch.allclose(ours[name], weight.grad, atol=1e-4), name
    assert max(float(g.abs().max()) for g in ours.values()) > 0.01


def test_a_batch_splits_exactly(make_model, make_row):
    """Losses are sums: the size of the forward passes does not matter, nor several requests."""
    rows = weighted(make_row)
    whole, pieces, requests = make_model(), make_model(), make_model()

    logprobs, total = run(whole, rows)
    split, split_total = run(pieces, rows, most_tokens=4)
    parts = [run(requests, [row]) for row in rows]

    assert split_total == pytest.approx(total, abs=1e-4)
    assert sum(value for _, value in parts) == pytest.approx(total, abs=1e-4)
    for one, other in zip(logprobs, split, strict=True):
        assert np.allclose(one, other, atol=1e-5)
    for name, grad in grads(whole).items():
        assert torch.allclose(grad, grads(pieces)[name], atol=1e-4)
        assert torch.allclose(grad, grads(requests)[name], atol=1e-4)


@pytest.mark.parametrize("loss", ["importance_sampling", "cispo"])
def test_shared_prompts_change_nothing(make_model, make_row, loss):
    """Rows of one prompt, computed once, give the numbers and gradients of each row alone."""
    together, alone = make_model(), make_model()
    prompt = make_row(12, 5).tokens
    rows = []
    for seed, length in enumerate((6, 9, 1, 4)):
        ids = np.concatenate([prompt, make_row(length, seed).tokens])
        random = np.random.default_rng(seed)
        is_policy = np.arange(len(ids) - 1) >= 11
        inputs = {
            "target_tokens": ids[1:],
            "advantages": (random.normal(size=len(ids) - 1) * is_policy).astype(np.float32),
            "logprobs": (-4 * is_policy).astype(np.float32),
        }
        rows.append(Row(tokens=ids[:-1], inputs=inputs))
    rows.insert(1, make_row(20, 3, logprobs=np.zeros(20), advantages=np.ones(20)))
    begins = [choose(loss, {}).begin(row) for row in rows]
    assert begins == [11, 0, 11, 11, 11]
    assert shared_leads(rows, begins) == [([0, 2, 3, 4], 11)]

    logprobs, total = run(together, rows, loss=loss)
    parts = [run(alone, [row], loss=loss) for row in rows]

    assert total == pytest.approx(sum(value for _, value in parts), abs=1e-3)
    for one, ((other,), _) in zip(logprobs, parts, strict=True):
        assert np.allclose(one, other, atol=1e-5)
    for name, grad in grads(together).items():
        assert torch.allclose(grad, grads(alone)[name], atol=2e-4), name


def test_a_penalty_has_a_gradient_at_every_token(make_row):
    """DRO's does not vanish with the advantage: nothing is shared there."""
    row = make_row(12, 1, logprobs=np.zeros(12), advantages=np.zeros(12))
    assert choose("dro", {"beta": 0.1}).begin(row) == 0
    assert choose("ppo", {}).begin(row) == 11


def test_forward_alone_leaves_no_gradient(make_model, make_row):
    """`forward` gives the same numbers and trains nothing."""
    model = make_model()
    rows = weighted(make_row)

    logprobs, total = run(model, rows, only=True)

    assert all(weight.grad is None for weight in model.weights().values())
    again, total_again = run(model, rows)
    assert total == pytest.approx(total_again)
    assert np.allclose(logprobs[0], again[0], atol=1e-6)


def test_several_targets_at_a_token(make_model, make_row):
    """A table of targets (N, K) gives a table of logprobs; rows of other widths go beside it."""
    model = make_model()
    plain = make_row(5, 1, weights=np.ones(5, np.float32))
    ids = np.stack([plain.inputs["target_tokens"], np.arange(5)], axis=1)
    table = make_row(5, 1, target_tokens=ids, weights=np.full((5, 2), 0.5, np.float32))

    (one, two), total = run(model, [plain, table])

    assert two.shape == (5, 2)
    assert np.allclose(two[:, 0], one, atol=1e-5)
    assert total == pytest.approx(float(-one.sum() - 0.5 * two.sum()), abs=1e-4)


def test_adam_is_adamw(make_model, make_row):
    """Five steps with other settings each time: the weights are those of torch's AdamW."""
    ours, theirs = make_model(), make_model()
    optimiser = torch.optim.AdamW(theirs.weights().values())
    for step in range(5):
        rows = weighted(make_row, (4 + step,))
        params = AdamParams(
            learning_rate=0.01 * (step + 1),
            beta1=0.9,
            beta2=0.95,
            eps=1e-8,
            weight_decay=0.1 * (step % 2),
        )
        run(ours, rows)
        run(theirs, rows)
        (group,) = optimiser.param_groups
        group["lr"], group["betas"] = params.learning_rate, (params.beta1, params.beta2)
        group["eps"], group["weight_decay"] = params.eps, params.weight_decay

        metrics = ours.step(params)

        norm = math.sqrt(sum(float(w.grad.square().sum()) for w in theirs.weights().values()))
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert metrics["steps"] == step + 1
        optimiser.step()
        optimiser.zero_grad()
        for name, weight in ours.weights().items():
            assert torch.allclose(weight, theirs.weights()[name], atol=1e-6), name


def test_clipping_scales_the_whole_gradient(make_model, make_row):
    """With grad_clip_norm the first step is the one of a smaller loss; 0 does not clip."""
    clipped, scaled = make_model(), make_model()
    rows = weighted(make_row)
    run(clipped, rows)
    norm = clipped.step(AdamParams(learning_rate=0.0))["grad_norm"]
    run(clipped, rows)
    run(scaled, rows)
    for weight in scaled.weights().values():
        weight.grad *= 0.5 / norm
    scaled.adam.steps = 0
    clipped.adam = type(clipped.adam)()

    params = AdamParams(learning_rate=0.01, eps=1.0)  # a large eps: Adam feels the scale
    clipped.step(AdamParams(learning_rate=0.01, eps=1.0, grad_clip_norm=0.5))
    scaled.step(params)

    for name, weight in clipped.weights().items():
        assert torch.allclose(weight, scaled.weights()[name], atol=1e-7), name


def test_a_failed_pass_makes_the_next_step_fail(make_model, make_row):
    """A part of a batch is never trained on: the step is refused, moves nothing, and clears."""
    model = make_model()
    good, bad = weighted(make_row, (4, 4))
    huge = make_row(4, 9, weights=np.full(4, 3e38, np.float32))
    before = {name: w.detach().clone() for name, w in model.weights().items()}
    run(model, [good])

    with pytest.raises(Refusal, match="the loss is"):
        run(model, [bad, huge], most_tokens=4)
    with pytest.raises(Refusal, match="a forward_backward before this step failed"):
        model.step(AdamParams(learning_rate=0.1))

    assert all(torch.equal(w, before[name]) for name, w in model.weights().items())
    assert model.adam.steps == 0
    run(model, [good])
    assert model.step(AdamParams(learning_rate=0.1))["steps"] == 1


def test_gradients_that_are_not_finite_move_nothing(make_model, make_row):
    """A norm that overflows is refused before any weight or average changes."""
    model = make_model()
    run(model, weighted(make_row))
    next(iter(model.weights().values())).grad.fill_(float("inf"))
    before = model.snapshot()

    with pytest.raises(Refusal, match="norm of the gradient is inf"):
        model.step(AdamParams(learning_rate=0.1))

    for site, pair in model.snapshot().items():
        assert all(torch.equal(x, y) for x, y in zip(pair, before[site], strict=True))
    assert not model.adam.means


@pytest.mark.parametrize(
    "bad",
    [{"learning_rate": -1.0}, {"beta1": 1.0}, {"eps": float("nan")}, {"grad_clip_norm": -1.0}],
)
def test_settings_of_a_step_are_checked(make_model, bad):
    """Numbers that would damage weights are refused by name."""
    with pytest.raises(Refusal, match=next(iter(bad))):
        make_model().step(AdamParams(**bad))


def test_the_order_of_a_checkpoints_tensors_changes_nothing(net, make_model, make_row):
    """A file's tensors come in another order each time it is read; the step is exactly the same."""
    plain = make_model()
    run(plain, weighted(make_row))
    wanted = plain.step(AdamParams(learning_rate=0.1, grad_clip_norm=0.01))

    for seed in range(20):
        model = make_model()
        sites = np.random.default_rng(seed).permutation(list(model.factors)).tolist()
        model.factors = {site: model.factors[site] for site in sites}
        run(model, weighted(make_row))

        assert list(model.weights()) == list(plain.weights())
        assert model.step(AdamParams(learning_rate=0.1, grad_clip_norm=0.01)) == wanted
        for name, weight in plain.weights().items():
            assert torch.equal(model.weights()[name], weight)
