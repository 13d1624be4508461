"""What must hold of every divergence, whatever the logits."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rlvr_distill.config import DivergenceConfig
from rlvr_distill.distributions.functional import divergence
from rlvr_distill.distributions.sides import Sparse
from rlvr_distill.divergences.catalogue import kernel

V = 13
EMBEDDINGS = torch.randn(V, 6, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
ALL: list[dict[str, Any]] = [
    {"loss": "forward_kl"},
    {"loss": "reverse_kl"},
    {"loss": "jeffreys"},
    {"loss": "jsd", "beta": 0.5},
    {"loss": "jsd", "beta": 0.1, "normalize": "scaled"},
    {"loss": "skew_kl"},
    {"loss": "skew_rkl"},
    {"loss": "alpha", "alpha": 0.5},
    {"loss": "alpha", "alpha": 0.9},
    {"loss": "akl"},
    {"loss": "focal"},
    {"loss": "focal", "focal_on": "top", "gamma": 1.0},
    {"loss": "tv"},
    {"loss": "wasserstein", "cost": "embedding", "support": 4},
    {"loss": "wasserstein", "cost": "discrete"},
    {"loss": "wasserstein", "cost": "energy"},
]
EVERY = pytest.mark.parametrize("options", ALL, ids=lambda o: "-".join(map(str, o.values())))


def compare(student: Tensor, teacher: Any, options: dict[str, Any], **further: Any) -> Tensor:
    """Values of rows."""
    measure = kernel(DivergenceConfig(**options), EMBEDDINGS)
    return divergence(student, teacher, measure, **further).values


def logits(seed: int, spread: float = 3.0, rows: int = 4, dtype: Any = torch.float64) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(rows, V, generator=random, dtype=torch.float64)).to(dtype)


SEEDS = st.integers(0, 10**6)


@EVERY
def test_a_distribution_is_no_distance_from_itself(options: dict[str, Any]) -> None:
    """D(p, p) is 0 within 1e-6 in float32, and a shift of the student's logits changes nothing."""
    teacher = logits(1, dtype=torch.float32)

    assert compare(teacher, teacher, options).abs().max() < 1e-6
    assert compare(teacher + 2.5, teacher, options).abs().max() < 2e-6


@EVERY
def test_divergences_are_never_negative(options: dict[str, Any]) -> None:
    """For random logits, near and far; shifting either side by a constant changes nothing."""

    @given(seed=SEEDS, spread=st.floats(0.01, 12.0))
    @settings(max_examples=25, deadline=None)
    def check(seed: int, spread: float) -> None:
        student, teacher = logits(seed, spread), logits(seed + 1, spread)
        values = compare(student, teacher, options)
        ended_early = 1e-3 * ("support" in options)  # Sinkhorn's 50 iterations
        assert float(values.min()) > -1e-9 - ended_early
        shifted = compare(student - 7.25, teacher + 3.5, options)
        assert torch.allclose(values, shifted, atol=1e-9)

    check()


@EVERY
def test_gradients_sum_to_nothing(options: dict[str, Any]) -> None:
    """A gradient by logits never moves all of them together."""
    student = logits(3).requires_grad_()
    measure = kernel(DivergenceConfig(**options), EMBEDDINGS)
    divergence(student, logits(4), measure).loss.backward()

    assert student.grad is not None
    assert student.grad.abs().max() > 1e-4
    assert student.grad.sum(dim=1).abs().max() < 1e-12


@given(seed=SEEDS, spread=st.floats(0.1, 12.0), beta=st.floats(0.05, 0.95))
@settings(max_examples=40, deadline=None)
def test_jsd_is_bounded_and_turns_around(seed: int, spread: float, beta: float) -> None:
    """At most -b ln b - (1-b) ln(1-b); JSD_b(p, q) is JSD_(1-b)(q, p): symmetric at a half."""
    a, b = logits(seed, spread), logits(seed + 1, spread)
    values = compare(a, b, {"loss": "jsd", "beta": beta})

    assert float(values.max()) <= -beta * math.log(beta) - (1 - beta) * math.log(1 - beta) + 1e-12
    assert torch.allclose(values, compare(b, a, {"loss": "jsd", "beta": 1 - beta}), atol=1e-12)


def test_jsd_at_its_ends() -> None:
    """As published it tends to 0 there but is taken for the KLs; scaled, it tends to them."""
    a, b = logits(1, 1.0), logits(2, 1.0)
    forward, backward = (compare(a, b, {"loss": x}) for x in ("forward_kl", "reverse_kl"))

    for normalize in ("gkd", "scaled"):
        ends = [{"loss": "jsd", "beta": x, "normalize": normalize} for x in (0.0, 1.0)]
        assert torch.equal(compare(a, b, ends[0]), forward)
        assert torch.equal(compare(a, b, ends[1]), backward)
    near = [{"loss": "jsd", "beta": x, "normalize": "scaled"} for x in (1e-5, 1 - 1e-5)]
    assert torch.allclose(compare(a, b, near[0]), forward, rtol=1e-3)
    assert torch.allclose(compare(a, b, near[1]), backward, rtol=1e-3)
    assert compare(a, b, {"loss": "jsd", "beta": 1e-5}).max() < 1e-3


@given(seed=SEEDS, spread=st.floats(0.1, 6.0))
@settings(max_examples=40, deadline=None)
def test_relations_between_divergences(seed: int, spread: float) -> None:
    """Jeffreys is both KLs and symmetric; Pinsker; skew is bounded; alpha turns around."""
    a, b = logits(seed, spread), logits(seed + 1, spread)

    def of(first: Tensor, second: Tensor, **options: Any) -> Tensor:
        return compare(first, second, options)

    forward, backward = of(a, b, loss="forward_kl"), of(a, b, loss="reverse_kl")
    variation = of(a, b, loss="tv")
    assert torch.allclose(of(a, b, loss="jeffreys"), forward + backward)
    assert torch.allclose(of(a, b, loss="jeffreys"), of(b, a, loss="jeffreys"))
    assert torch.allclose(of(b, a, loss="forward_kl"), backward)
    assert bool((2 * variation.square() <= forward + 1e-12).all())
    assert bool(((variation >= 0) & (variation <= 1 + 1e-12)).all())
    assert bool((of(a, b, loss="skew_kl", skew=0.1) <= math.log(10)).all())
    assert bool((of(a, b, loss="skew_rkl", skew=0.1) <= math.log(10)).all())
    assert torch.allclose(of(a, b, loss="alpha", alpha=0.3), of(b, a, loss="alpha", alpha=0.7))
    assert torch.allclose(of(a, b, loss="wasserstein", cost="discrete"), variation)


def test_limits_of_families() -> None:
    """Alpha at 1 and 0, skew at 0, focal with power 0 are the KLs; also across the switch."""
    a, b = logits(1, 1.5), logits(2, 1.5)
    forward, backward = (compare(a, b, {"loss": x}) for x in ("forward_kl", "reverse_kl"))

    for off in (-1e-3, -1e-4, 0.0, 1e-4, 1e-3):
        assert torch.allclose(
            compare(a, b, {"loss": "alpha", "alpha": 1 + off}), forward, rtol=1e-2
        )
        assert torch.allclose(compare(a, b, {"loss": "alpha", "alpha": off}), backward, rtol=1e-2)
    assert torch.allclose(compare(a, b, {"loss": "skew_kl", "skew": 0.0}), forward)
    assert torch.allclose(compare(a, b, {"loss": "skew_rkl", "skew": 0.0}), backward)
    assert torch.allclose(compare(a, b, {"loss": "focal", "gamma": 0.0}), forward)


def test_two_tokens_worked_by_hand() -> None:
    """With p = (1/4, 3/4), q = (1/2, 1/2): all closed forms; a uniform student's is ln V - H."""
    p, q = torch.tensor([[0.25, 0.75]]).double(), torch.tensor([[0.5, 0.5]]).double()
    forward = 0.25 * math.log(0.5) + 0.75 * math.log(1.5)
    backward = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    m = (0.375, 0.625)
    jsd = 0.5 * (
        0.25 * math.log(0.25 / m[0])
        + 0.75 * math.log(0.75 / m[1])
        + 0.5 * math.log(0.5 / m[0])
        + 0.5 * math.log(0.5 / m[1])
    )
    mix = (0.1 * 0.25 + 0.9 * 0.5, 0.1 * 0.75 + 0.9 * 0.5)  # a tenth of p
    other = (0.9 * 0.25 + 0.1 * 0.5, 0.9 * 0.75 + 0.1 * 0.5)  # a tenth of q
    wanted = {
        "forward_kl": forward,
        "reverse_kl": backward,
        "jeffreys": forward + backward,
        "jsd": jsd,
        "tv": 0.25,
        "alpha": 4 * (1 - math.sqrt(0.125) - math.sqrt(0.375)),
        "skew_kl": 0.25 * math.log(0.25 / mix[0]) + 0.75 * math.log(0.75 / mix[1]),
        "skew_rkl": 0.5 * math.log(0.5 / other[0]) + 0.5 * math.log(0.5 / other[1]),
        "focal": 0.25**2 * forward,  # they overlap in 3/4
        "akl": (forward + backward) / 2,  # both gaps are 1/4
    }
    for loss, value in wanted.items():
        assert compare(q.log(), p.log(), {"loss": loss}).item() == pytest.approx(value), loss
    entropy = -(0.25 * math.log(0.25) + 0.75 * math.log(0.75))
    assert forward == pytest.approx(math.log(2) - entropy)


def test_hot_kl_is_half_the_squared_gap() -> None:
    """T^2 KL tends to (1 / 2V) sum of squared gaps of centred logits as T grows."""
    a, b = logits(1), logits(2)
    gap = (a - a.mean(1, keepdim=True)) - (b - b.mean(1, keepdim=True))
    result = divergence(a.requires_grad_(), b, kernel("forward_kl"), temperature=1e4, scale_t2=True)

    wanted = gap.square().sum(1) / (2 * V)
    assert torch.allclose(result.values * 1e8, wanted, rtol=1e-3)
    assert result.loss.item() == pytest.approx(wanted.mean().item(), rel=1e-3)


def test_transport_between_sure_distributions_costs_their_distance() -> None:
    """From all on token i to all on token j it is 1 - cos(e_i, e_j), at any blur; energy too."""
    sure = torch.full((2, V), -60.0, dtype=torch.float64)
    sure[0, 3] = sure[1, 7] = 60.0
    cosine = torch.cosine_similarity(EMBEDDINGS[3], EMBEDDINGS[7], dim=0).item()
    for blur in (0.05, 0.1, 1.0):
        found = compare(sure[:1], sure[1:], {"loss": "wasserstein", "support": 3, "blur": blur})
        assert found.item() == pytest.approx(1 - cosine, abs=1e-6)
    energy = compare(sure[:1], sure[1:], {"loss": "wasserstein", "cost": "energy"})
    assert energy.item() == pytest.approx(1 - cosine, abs=1e-9)


def test_energy_is_the_quadratic_form() -> None:
    """It is p'Cq - p'Cp / 2 - q'Cq / 2 with C = 1 - cos."""
    a, b = logits(1), logits(2)
    unit = torch.nn.functional.normalize(EMBEDDINGS, dim=1)
    cost = 1 - unit @ unit.t()
    q, p = a.softmax(1), b.softmax(1)
    wanted = ((p @ cost) * q - (p @ cost) * p / 2 - (q @ cost) * q / 2).sum(1)

    assert torch.allclose(compare(a, b, {"loss": "wasserstein", "cost": "energy"}), wanted)


@pytest.mark.parametrize("loss", ["forward_kl", "reverse_kl", "jsd", "skew_kl", "alpha", "tv"])
def test_few_tokens_never_show_more_than_all(loss: str) -> None:
    """Data processing: the coarse divergence grows with k, and is the whole one at k = V."""
    student, teacher = logits(11, 2.0), logits(12, 2.0)
    whole = compare(student, teacher, {"loss": loss})
    before = torch.zeros_like(whole) - 1e-9
    log_p = teacher.log_softmax(1)
    for k in (1, 2, 4, 8, V):
        top = log_p.topk(k, dim=1)
        few = Sparse(ids=top.indices, logprobs=top.values, has_rest=k < V)
        found = compare(student, few, {"loss": loss})
        assert bool((found >= before - 1e-9).all()), k
        before = found
    assert torch.allclose(before, whole)


def test_single_sample_estimators_have_the_gradients_they_are_said_to() -> None:
    """
    Under q: k2 = (log r)^2 / 2 has the gradient of KL(q || p), k1 none, k3 that of KL(p || q).

    The divergences that the sampled forms of policy gradients stand for are these kernels.
    """
    teacher = logits(2, 1.0, rows=1)[0].log_softmax(0)
    gradients = {}
    for name in ("k1", "k2", "k3"):
        student = logits(1, 1.0, rows=1)[0].requires_grad_()
        log_q = student.log_softmax(0)
        gap = teacher - log_q
        k = {"k1": -gap, "k2": gap.square() / 2, "k3": gap.exp() - 1 - gap}[name]
        (log_q.detach().exp() * k).sum().backward()
        gradients[name] = student.grad
    exact = {}
    for loss in ("forward_kl", "reverse_kl"):
        student = logits(1, 1.0, rows=1).requires_grad_()
        divergence(student, teacher[None], kernel(loss)).loss.backward()
        assert student.grad is not None
        exact[loss] = student.grad[0]

    assert gradients["k1"].abs().max() < 1e-12
    assert torch.allclose(gradients["k2"], exact["reverse_kl"])
    assert torch.allclose(gradients["k3"], exact["forward_kl"])
