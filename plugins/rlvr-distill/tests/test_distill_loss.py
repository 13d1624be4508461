"""The loss part `distill`: what it asks, what tokens count, metrics, micro-batches, memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    DistributionRequest,
    HiddenStates,
    TopK,
)
from rlvr.testing.distilling import MadeUp
from rlvr_distill.config import REDUCTIONS, WEIGHTINGS, DistillConfig
from rlvr_distill.loss import DistillLoss

V, C = 19, 6
CONTEXT = BuildContext(steps=10)
HEAD = torch.randn(V, C, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
THEIRS = torch.randn(V, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)


def make(context: BuildContext = CONTEXT, **options: Any) -> DistillLoss:
    loss = DistillLoss(DistillConfig(teacher="gpt2:there", **options), context)
    head = SimpleNamespace(weights=THEIRS, bias=None, scale=1.0, softcap=0.0)
    teacher = MadeUp()
    teacher.tokenizer, teacher.head = SimpleNamespace(vocab_size=V), head
    loss.meet({"teacher": teacher})
    return loss


def batch(kind: str = "states", seed: int = 0, spans: bool = True) -> list[Datum]:
    """Four data of 5 to 8 tokens, some supervised; the last two have reasoning only, or neither."""
    rng = np.random.default_rng(seed)
    data = []
    for place, length in enumerate((7, 8, 5, 6)):
        mask = rng.random(length) < 0.7
        mask[0], mask[-2:] = False, True
        span = rng.integers(0, 3, length)
        span[-2:] = (1, 2) if place < 2 else (1, 1) if place == 2 else (0, 0)
        if place == 2:
            span[span == 2] = 1
        if place == 3:
            span[:] = 0
        count = int(mask.sum())
        states = rng.normal(size=(count, 4))
        log_p = torch.log_softmax(torch.tensor(states) @ THEIRS.t(), 1)
        k = V if kind == "whole" else 4
        top = log_p.topk(k, dim=1)
        told = HiddenStates(states=states)
        few = TopK(
            ids=top.indices.numpy(),
            logprobs=top.values.numpy(),
            actual=np.zeros(count),
            is_whole=kind == "whole",
        )
        data.append(
            Datum(
                tokens=rng.integers(0, V, length),
                mask=mask,
                logprobs=np.zeros(length),
                advantages=np.zeros(length),
                weights=np.zeros(length),
                annotations={"span": span.astype(np.float32)} if spans else {},
                distributions={"teacher": told if kind == "states" else few},
                problem_id=f"p{place}",
            )
        )
    total = sum(int(d.mask.sum()) for d in data)
    return [attrs.evolve(d, weights=d.mask / total) for d in data]


def leaves(data: Sequence[Datum], seed: int = 3) -> tuple[list[Tensor], Any]:
    random = torch.Generator().manual_seed(seed)
    hidden = [
        torch.randn(int(d.mask.sum()), C, generator=random, dtype=torch.float64).requires_grad_()
        for d in data
    ]
    head = SimpleNamespace(weights=HEAD.clone().requires_grad_(), bias=None, scale=1.0, softcap=0.0)
    return hidden, head


def run(
    loss: DistillLoss, data: Sequence[Datum], hidden: Sequence[Tensor], head: Any
) -> tuple[Tensor, dict[str, float]]:
    zeros = [torch.zeros(len(d.tokens)) for d in data]
    return loss(data, zeros, {"hidden": list(hidden), "head": [head]})


def per_token(data: Sequence[Datum], hidden: Sequence[Tensor]) -> list[tuple[int, float]]:
    """Span type and forward KL of each supervised token, plainly."""
    found = []
    for datum, states in zip(data, hidden, strict=True):
        told = datum.distributions["teacher"]
        assert isinstance(told, HiddenStates)
        log_p = torch.log_softmax(torch.tensor(told.states).double() @ THEIRS.t(), 1)
        log_q = torch.log_softmax(states @ HEAD.t(), 1)
        values = (log_p.exp() * (log_p - log_q)).sum(1).tolist()
        span = datum.annotations.get("span", np.full(len(datum.tokens), 2))
        found += list(zip(np.asarray(span)[datum.mask].astype(int).tolist(), values, strict=True))
    return found


def test_says_what_it_needs() -> None:
    """It asks a teacher for distributions, wants states and head, and no logprobs."""
    loss = make(top_k=20, temperature=2.0)

    assert loss.needs.outputs == {"hidden", "head"}
    assert loss.needs.teachers == {"teacher": "gpt2:there"}
    assert loss.needs.distributions == {"teacher": DistributionRequest(k=20, temperature=2.0)}
    assert loss.needs.logprobs is False
    cold = make(top_k=20, temperature=2.0, tail="renorm")
    assert cold.needs.distributions["teacher"].temperature == 1.0  # scaled here, exactly


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"teacher": ""}, "without a teacher"),
        ({"adapt_temperature": 1.0, "top_k": 5}, "top_k=5"),
        ({"min_temperature": 3.0, "max_temperature": 2.0}, "exchange"),
        ({"reasoning_weight": 0.0, "action_weight": 0.0}, "no token teaches"),
    ],
)
def test_contradictions_are_refused(options: dict[str, Any], text: str) -> None:
    """Before anything is sampled, with what to do."""
    with pytest.raises(ConfigError, match=text):
        DistillLoss(DistillConfig(**{"teacher": "x:y", **options}), CONTEXT)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reductions_worked_from_their_definitions(reduction: str) -> None:
    """Reasoning weighs 3, action 1: weighted mean, weighted mean of means, weighted sum."""
    data = batch()
    hidden, head = leaves(data)
    loss = make(reduction=reduction, reasoning_weight=3.0)
    found, metrics = run(loss, loss.token_weights(data), hidden, head)

    tokens = per_token(data, hidden)
    thought, acted = ([v for t, v in tokens if t == kind] for kind in (1, 2))
    wanted = {
        "token": (3 * sum(thought) + sum(acted)) / (3 * len(thought) + len(acted)),
        "span": (3 * sum(thought) / len(thought) + sum(acted) / len(acted)) / 4,
        "paper": 3 * sum(thought) + sum(acted),
    }[reduction]
    assert found.item() == pytest.approx(wanted, rel=1e-5)
    assert metrics["loss/distill"] == pytest.approx(wanted, rel=1e-5)
    assert metrics["kl/reasoning"] == pytest.approx(sum(thought) / len(thought), rel=1e-5)
    assert metrics["kl/action"] == pytest.approx(sum(acted) / len(acted), rel=1e-5)
    assert metrics["share/reasoning"] == pytest.approx(len(thought) / len(tokens), rel=1e-5)


def test_an_absent_span_renormalises() -> None:
    """Only reasoning in the update: its mean alone, whatever its weight."""
    data = batch()[2:3]
    data = [attrs.evolve(data[0], weights=data[0].mask / data[0].mask.sum())]
    hidden, head = leaves(data)
    values = [v for t, v in per_token(data, hidden) if t == 1]
    for weight in (1.0, 5.0):
        loss = make(reduction="span", reasoning_weight=weight)
        found, _ = run(loss, loss.token_weights(data), hidden, head)
        assert found.item() == pytest.approx(sum(values) / len(values), rel=1e-5)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_micro_batches_add_up(weighting: str, reduction: str) -> None:
    """Any split of an update, once weighed, sums to its loss, gradients and metrics."""
    data = batch()
    loss = make(weighting=weighting, reduction=reduction, reasoning_weight=1.5)
    loss = loss.with_memory(
        {"step": 4, "distill/reasoning": 2.0, "distill/action": 0.7, "difficulty/action": 1.3}
    )
    data = loss.token_weights(data)
    hidden, head = leaves(data)
    whole, metrics = run(loss, data, hidden, head)
    whole.backward()
    wanted = [h.grad.clone() for h in hidden], head.weights.grad.clone()

    parts, parts_head = leaves(data)
    total, sums = 0.0, dict.fromkeys(metrics, 0.0)
    for some in ([0], [1, 2], [3]):
        value, numbers = run(loss, [data[i] for i in some], [parts[i] for i in some], parts_head)
        value.backward()
        total += value.item()
        sums = {k: sums[k] + numbers[k] for k in sums}
    assert total == pytest.approx(whole.item(), rel=1e-6)
    assert sums == pytest.approx(metrics, rel=1e-6)
    assert all(
        torch.allclose(p.grad, g)
        for p, g in zip(parts, wanted[0], strict=True)  # type: ignore[arg-type]
    )
    assert torch.allclose(parts_head.weights.grad, wanted[1])


@given(factor=st.floats(0.1, 10.0))
@settings(max_examples=10, deadline=None)
def test_weights_of_spans_are_relative(factor: float) -> None:
    """A token mean stays when both weights are multiplied; factors average to 1 over tokens."""
    data = batch()
    hidden, head = leaves(data)
    plain, scaled = make(), make(reasoning_weight=factor, action_weight=factor)
    first = run(plain, plain.token_weights(data), hidden, head)[0].item()

    weighed = scaled.token_weights(data)
    assert run(scaled, weighed, hidden, head)[0].item() == pytest.approx(first, rel=1e-5)
    total = sum(float((d.annotations["distill/weight"] * d.weights).sum()) for d in weighed)
    assert total == pytest.approx(1.0, rel=1e-5)


def test_tokens_of_no_span_teach_nothing() -> None:
    """Span 0 within the mask: exactly no gradient. Without spans all supervised tokens count."""
    data = batch()
    hidden, head = leaves(data)
    loss = make()
    run(loss, loss.token_weights(data), hidden, head)[0].backward()
    for datum, states in zip(data, hidden, strict=True):
        idle = np.asarray(datum.annotations["span"])[datum.mask] == 0
        assert states.grad is not None
        assert not states.grad[torch.from_numpy(idle)].any()

    bare = batch(spans=False)
    value, metrics = run(loss, loss.token_weights(bare), *leaves(bare))
    tokens = per_token(bare, leaves(bare)[0])
    assert value.item() == pytest.approx(sum(v for _, v in tokens) / len(tokens), rel=1e-5)
    assert "kl/reasoning" not in metrics


@pytest.mark.parametrize("kind", ["whole", "few"])
def test_told_tokens_serve_like_states(kind: str) -> None:
    """A whole `TopK` gives what states give; few tokens a bound below it."""
    loss = make()
    data, told = batch("states"), batch(kind)
    value, metrics = run(loss, loss.token_weights(data), *leaves(data))
    again, numbers = run(loss, loss.token_weights(told), *leaves(told))

    if kind == "whole":
        assert again.item() == pytest.approx(value.item(), rel=1e-5)
        assert numbers == pytest.approx(metrics, rel=1e-4)
    else:
        assert 0 < again.item() < value.item()


def test_weightings_by_the_run() -> None:
    """Heavy: 2 to 1. Curriculum: 0.5 to 2, 2 to 1. Adaptive: root of the ratio, bounded."""

    def ratio(loss: DistillLoss) -> float:
        data = loss.token_weights(batch())
        factors = {
            kind: {
                round(float(f), 5)
                for d in data
                for f, s, m in zip(
                    d.annotations["distill/weight"], d.annotations["span"], d.mask, strict=True
                )
                if m and s == kind
            }
            for kind in (1, 2)
        }
        (thought,), (acted,) = factors[1], factors[2]
        return thought / acted

    assert ratio(make(weighting="reasoning_heavy")) == pytest.approx(2.0, rel=1e-4)
    assert ratio(make(weighting="action_heavy")) == pytest.approx(0.5, rel=1e-4)
    course = make(weighting="curriculum")
    for step, wanted in ((0, 0.25), (5, 1.25 / 1.5), (10, 2.0), (99, 2.0)):
        assert ratio(course.with_memory({"step": step})) == pytest.approx(wanted, rel=1e-4)
    adaptive = make(weighting="adaptive")
    assert ratio(adaptive) == pytest.approx(1.0)
    known = {"distill/reasoning": 9.0, "distill/action": 1.0}
    assert ratio(adaptive.with_memory(known)) == pytest.approx(3.0, rel=1e-4)
    far = {"distill/reasoning": 1e6, "distill/action": 0.0}
    assert ratio(adaptive.with_memory(far)) == pytest.approx(math.sqrt(2) / 0.25, rel=1e-3)


def test_confidence_has_mean_one_by_type() -> None:
    """Sure teachers count more; in each type the factors average to the plain ones."""
    loss = make(weighting="confidence", confidence_power=2.0)
    data = loss.token_weights(batch())
    for kind in (1, 2):
        values, entropies = [], []
        for datum in data:
            told = datum.distributions["teacher"]
            assert isinstance(told, HiddenStates)
            log_p = torch.log_softmax(torch.tensor(told.states).double() @ THEIRS.t(), 1)
            at = np.asarray(datum.annotations["span"])[datum.mask] == kind
            values += datum.annotations["distill/weight"][datum.mask][at].tolist()
            entropies += (-(log_p.exp() * log_p).sum(1))[torch.from_numpy(at)].tolist()
        wanted = (1 - np.array(entropies) / math.log(V)) ** 2
        scale = np.mean(values) / wanted.mean()
        assert values == pytest.approx((wanted * scale).tolist(), rel=1e-4)
        types = [np.asarray(d.annotations["span"])[d.mask] for d in data]
        live = sum(int((t > 0).sum()) for t in types)
        tokens = sum(len(t) for t in types)
        assert np.mean(values) == pytest.approx(tokens / live, rel=1e-4)


def test_difficulty_divides_by_the_mean_of_earlier_steps() -> None:
    """Misses count twice, over the running mean by type that the memory holds."""
    data = batch()
    hidden, head = leaves(data)
    loss = make(weighting="difficulty")
    value, metrics = run(loss, loss.token_weights(data), hidden, head)
    assert all(0.999 <= metrics[f"difficulty/{k}"] <= 2.001 for k in ("reasoning", "action"))
    memory = loss.adapted({}, metrics)
    assert memory["difficulty/action"] == metrics["difficulty/action"]

    settled = loss.with_memory(dict.fromkeys(memory, 2.0))
    halved, _ = run(settled, settled.token_weights(data), hidden, head)
    assert halved.item() == pytest.approx(value.item() / 2, rel=1e-6)


def test_memory_is_a_running_mean() -> None:
    """The first step sets it, later ones move it by 1 - ema; a step without the type does not."""
    loss = make(weighting="adaptive", ema=0.9)
    first = {"distill/reasoning": 4.0, "share/reasoning": 0.5, "share/action": 0.0}
    memory = loss.adapted({}, {**first, "distill/action": 0.0})
    assert memory == {"step": 1.0, "distill/reasoning": 4.0}
    memory = loss.adapted(memory, {**first, "distill/reasoning": 2.0})
    assert memory == pytest.approx({"step": 2.0, "distill/reasoning": 3.8})
    assert make().adapted({}, first) == {"step": 1.0}


def test_adapted_temperatures() -> None:
    """Hotter where the teacher is unsure, T0 at its mean entropy, within bounds; used as T."""
    loss = make(adapt_temperature=2.0, temperature=1.5, min_temperature=1.0, max_temperature=1.9)
    data = loss.token_weights(batch())
    heats = np.concatenate([d.annotations["distill/temperature"][d.mask] for d in data])
    assert heats.min() >= 1.0
    assert heats.max() <= 1.9
    assert len(set(heats.round(4).tolist())) > 3
    hidden, head = leaves(data)
    value, _ = run(loss, data, hidden, head)
    total, count = 0.0, 0
    for datum, states in zip(data, hidden, strict=True):
        told = datum.distributions["teacher"]
        assert isinstance(told, HiddenStates)
        own = torch.tensor(datum.annotations["distill/temperature"][datum.mask])[:, None].double()
        log_p = torch.log_softmax(torch.tensor(told.states).double() @ THEIRS.t() / own, 1)
        log_q = torch.log_softmax(states @ HEAD.t() / own, 1)
        values = (log_p.exp() * (log_p - log_q)).sum(1).tolist()
        live = np.asarray(datum.annotations["span"])[datum.mask] > 0
        total += sum(v for v, is_live in zip(values, live, strict=True) if is_live)
        count += int(live.sum())
    assert value.item() == pytest.approx(total / count, rel=1e-5)


def test_groups_are_compared_by_likelihood() -> None:
    """
    Three tokens that the teacher cuts otherwise: KL of (P, 1 - P) and (Q, 1 - Q), counted once.

    The fourth token has a distribution. Gradients agree with finite differences.
    """
    rng = np.random.default_rng(0)
    told = TopK(
        ids=[[-1, -1], [-1, -1], [-1, -1], [3, 5]],
        logprobs=[[-np.inf] * 2] * 3 + [[-0.5, -1.5]],
        actual=np.zeros(4),
    )
    datum = Datum(
        tokens=[1, 2, 4, 7, 3],
        mask=[False, True, True, True, True],
        logprobs=np.zeros(5),
        advantages=np.zeros(5),
        weights=[0.0, 0.25, 0.25, 0.25, 0.25],
        annotations={
            "align/group": np.array([-1, 6, 6, 6, -1], np.float32),
            "align/logprob": np.array([0, math.log(0.3), 0, 0, 0], np.float32),
        },
        distributions={"teacher": told},
    )
    loss = make()
    (weighed,) = loss.token_weights([datum])
    assert weighed.annotations["distill/weight"].tolist() == pytest.approx(
        [0, 2 / 3, 2 / 3, 2 / 3, 2]
    )
    states = torch.tensor(rng.normal(size=(4, C)), requires_grad=True)

    def value(hidden: Tensor) -> float:
        head = SimpleNamespace(weights=HEAD, bias=None, scale=1.0, softcap=0.0)
        return run(loss, [weighed], [hidden], head)[0].item()

    head = SimpleNamespace(weights=HEAD, bias=None, scale=1.0, softcap=0.0)
    found, metrics = run(loss, [weighed], [states], head)
    log_q = torch.log_softmax(states.detach() @ HEAD.t(), 1)
    own = float(log_q[[0, 1, 2], [2, 4, 7]].sum().exp())
    bernoulli = 0.3 * math.log(0.3 / own) + 0.7 * math.log(0.7 / (1 - own))
    p = np.exp([-0.5, -1.5])
    q = log_q[3, [3, 5]].exp().tolist()
    row = sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    row += (1 - p.sum()) * math.log((1 - p.sum()) / (1 - sum(q)))
    assert metrics["align/chunk"] == pytest.approx(bernoulli / 2, rel=1e-5)
    assert found.item() == pytest.approx(bernoulli / 2 + row / 2, rel=1e-5)
    assert metrics["kl/action"] == pytest.approx(row, rel=1e-4)
    assert metrics["share/action"] == pytest.approx(0.25)  # the token that has a distribution

    found.backward()
    assert states.grad is not None
    for place in ((0, 0), (2, 3), (3, 1)):
        moved = [states.detach().clone() for _ in range(2)]
        moved[0][place] += 1e-6
        moved[1][place] -= 1e-6
        slope = (value(moved[0]) - value(moved[1])) / 2e-6
        assert states.grad[place].item() == pytest.approx(slope, abs=1e-7)


def test_shares_make_means_over_updates_exact() -> None:
    """
    A type counts in each part of an evaluation by the tokens that its mean is over.

    Two updates of a teacher with another tokenizer, who says nothing of some tokens: their means
    by share are the mean over the tokens it speaks of; a type it is silent on has no share, and
    moves no running mean.
    """
    data = batch("few")[:2]
    silent = []
    for datum, gone in zip(data, (slice(0, 3), slice(0, 0)), strict=True):
        told = datum.distributions["teacher"]
        assert isinstance(told, TopK)
        ids, logprobs = told.ids.copy(), told.logprobs.copy()
        ids[gone], logprobs[gone] = -1, -np.inf
        changed = attrs.evolve(told, ids=ids, logprobs=logprobs)
        plain = {"distributions": {"teacher": changed}, "annotations": {}}
        silent.append(attrs.evolve(datum, weights=datum.mask / datum.mask.sum(), **plain))
    loss = make(weighting="adaptive")
    hidden, head = leaves(silent)
    updates = [
        run(loss, loss.token_weights([d]), [h], head)[1]
        for d, h in zip(silent, hidden, strict=True)
    ]

    counts = [int(d.mask.sum()) for d in silent]
    spoken = [counts[0] - 3, counts[1]]
    for update, count, all_ in zip(updates, spoken, counts, strict=True):
        assert update["share/action"] == pytest.approx(count / all_)
    shares = [u["share/action"] * n for u, n in zip(updates, counts, strict=True)]
    mean = np.average([u["kl/action"] for u in updates], weights=shares)
    sums = sum(u["kl/action"] * n for u, n in zip(updates, spoken, strict=True))
    assert mean == pytest.approx(sums / sum(spoken))

    told = silent[0].distributions["teacher"]
    assert isinstance(told, TopK)
    nothing = TopK(
        ids=np.full_like(told.ids, -1),
        logprobs=np.full_like(told.logprobs, -np.inf),
        actual=told.actual,
    )
    mute = attrs.evolve(silent[0], distributions={"teacher": nothing})
    _, metrics = run(loss, loss.token_weights([mute]), hidden[:1], head)
    assert metrics["share/action"] == 0.0
    memory = {"distill/action": 0.7}
    assert loss.adapted(memory, metrics)["distill/action"] == 0.7


def test_tokens_that_the_teacher_says_nothing_of_are_left_out() -> None:
    """Rows without an id (unaligned, template): no gradient; the mean is the others' alone."""
    data = batch("few")
    told = data[0].distributions["teacher"]
    assert isinstance(told, TopK)
    ids, logprobs = told.ids.copy(), told.logprobs.copy()
    ids[0], logprobs[0] = -1, -np.inf
    silent = attrs.evolve(told, ids=ids, logprobs=logprobs)
    data[0] = attrs.evolve(data[0], distributions={"teacher": silent}, annotations={})
    data = data[:1]
    loss = make()
    hidden, head = leaves(data)
    value, metrics = run(loss, loss.token_weights(data), hidden, head)
    value.backward()

    assert hidden[0].grad is not None
    assert not hidden[0].grad[0].any()
    rest = attrs.evolve(told, ids=told.ids[1:], logprobs=told.logprobs[1:], actual=told.actual[1:])
    first = int(np.flatnonzero(data[0].mask)[0])
    mask = data[0].mask & (np.arange(len(data[0].mask)) != first)
    total = data[0].weights.sum()
    fewer = attrs.evolve(
        data[0],
        mask=mask,
        weights=mask * total / mask.sum(),
        distributions={"teacher": rest},
    )
    alone, numbers = run(loss, loss.token_weights([fewer]), [hidden[0].detach()[1:]], head)
    assert value.item() == pytest.approx(alone.item(), rel=1e-5)
    assert metrics["distill/action"] == pytest.approx(numbers["distill/action"], rel=1e-5)


def test_missing_outputs_and_distributions_are_said() -> None:
    """What is missing, and what to use: for a backend without states, a run without the ask."""
    data = batch()
    hidden, head = leaves(data)
    zeros = [torch.zeros(len(d.tokens)) for d in data]
    with pytest.raises(BackendError, match=r"'hidden'(.|\n)*logprobs only"):
        make()(data, zeros, {})
    with pytest.raises(BackendError, match="'head'"):
        make()(data, zeros, {"hidden": hidden})
    bare = [attrs.evolve(d, distributions={}) for d in data]
    with pytest.raises(BackendError, match="p0 has none"):
        run(make(), bare, hidden, head)
    strange = DistillLoss(DistillConfig(teacher="x:y"), CONTEXT)
    with pytest.raises(BackendError, match="never met"):
        run(strange, data, hidden, head)


def test_an_exploding_alpha_is_noticed() -> None:
    """Beyond 0..1 and past 100 a sentence says so; otherwise silence."""
    (text,) = make(loss="alpha", alpha=2.0).warnings({"loss/distill": 1e5})
    assert "between 0.3 and 1" in text
    assert list(make(loss="alpha", alpha=2.0).warnings({"loss/distill": 1.0})) == []
    assert list(make(loss="alpha", alpha=0.5).warnings({"loss/distill": 1e5})) == []


@pytest.mark.parametrize("loss", ["jsd", "wasserstein", "akl"])
@pytest.mark.parametrize("kind", ["states", "whole", "few"])
def test_every_kind_of_teacher_with_every_kind_of_loss(kind: str, loss: str) -> None:
    """A finite loss, and gradients for states and head."""
    data = batch(kind)
    part = make(loss=loss, support=4)
    hidden, head = leaves(data)
    value, metrics = run(part, part.token_weights(data), hidden, head)
    value.backward()

    assert math.isfinite(value.item())
    assert value.item() > 0
    assert all(math.isfinite(v) for v in metrics.values())
    assert any(h.grad is not None and h.grad.any() for h in hidden)
    assert head.weights.grad.any()
