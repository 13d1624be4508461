"""One divergence, many ways to it: logits, states and heads, few tokens, chunks, types, masks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from rlvr_distill.config import DivergenceConfig
from rlvr_distill.distributions.functional import Outcome, divergence
from rlvr_distill.distributions.sides import HeadLogits, Sparse, common_vocabulary
from rlvr_distill.divergences.catalogue import kernel
from rlvr_distill.divergences.pair import Kernel

N, V, C = 9, 17, 5
RANDOM = torch.Generator().manual_seed(7)
EMBEDDINGS = torch.randn(V, C, generator=RANDOM, dtype=torch.float64)
SMOOTH: list[dict[str, Any]] = [
    {"loss": "forward_kl"},
    {"loss": "reverse_kl"},
    {"loss": "jeffreys"},
    {"loss": "jsd", "beta": 0.3},
    {"loss": "jsd", "beta": 0.3, "normalize": "scaled"},
    {"loss": "skew_kl"},
    {"loss": "skew_rkl"},
    {"loss": "alpha", "alpha": 0.4},
    {"loss": "alpha", "alpha": 1.5},
    {"loss": "tv"},
    {"loss": "wasserstein", "cost": "energy"},
    {"loss": "wasserstein", "support": 4, "blur": 0.3},
]
DETACHED: list[dict[str, Any]] = [
    {"loss": "akl"},
    {"loss": "focal"},
    {"loss": "focal", "focal_on": "top"},
]


def ids(options: dict[str, Any]) -> str:
    return "-".join(map(str, options.values()))


SMOOTH_ONES = pytest.mark.parametrize("options", SMOOTH, ids=ids)
EVERY = pytest.mark.parametrize("options", [*SMOOTH, *DETACHED], ids=ids)


def made(options: dict[str, Any]) -> Kernel:
    return kernel(DivergenceConfig(**options), EMBEDDINGS)


def tensor(*shape: int, seed: int, scale: float = 2.0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return scale * torch.randn(*shape, generator=random, dtype=torch.float64)


def slopes(leaf: Tensor, value: Callable[[Tensor], float], step: float = 1e-6) -> Tensor:
    """Central differences of a scalar function by every entry."""
    found = torch.zeros_like(leaf)
    flat = leaf.detach().clone().reshape(-1)
    for place in range(len(flat)):
        ends = []
        for sign in (1, -1):
            moved = flat.clone()
            moved[place] += sign * step
            ends.append(value(moved.view_as(leaf)))
        found.view(-1)[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def gradients(outcome: Outcome, *leaves: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(outcome.loss, leaves, retain_graph=True))


@SMOOTH_ONES
@pytest.mark.parametrize("kind", ["dense", "few"])
def test_gradient_by_logits_equals_finite_differences(kind: str, options: dict[str, Any]) -> None:
    """In float64, at a temperature and with weights; of whole distributions and of few tokens."""
    is_iterated = options.get("loss") == "wasserstein" and "support" in options
    rows = 2 if is_iterated else 3
    measure, student, theirs = made(options), tensor(rows, V, seed=1), tensor(rows, V, seed=2)
    top = theirs.div(1.7).log_softmax(1).topk(5, dim=1)
    teacher = theirs if kind == "dense" else Sparse(ids=top.indices, logprobs=top.values)
    settings: dict[str, Any] = {
        "weights": torch.tensor([0.2, 0.5, 1.3][:rows]).double(),
        "temperature": 1.7,
        "scale_t2": True,
    }

    def value(logits: Tensor) -> float:
        return divergence(logits, teacher, measure, **settings).loss.item()

    leaf = student.clone().requires_grad_()
    (found,) = gradients(divergence(leaf, teacher, measure, **settings), leaf)
    assert torch.allclose(found, slopes(student, value), atol=3e-5 if is_iterated else 1e-7)


@pytest.mark.parametrize("options", DETACHED, ids=ids)
def test_gradient_of_a_detached_reweighting(options: dict[str, Any]) -> None:
    """AKL and focal: the weights held still, as a function of p and q, the rest differentiated."""
    student, teacher = tensor(3, V, seed=1), tensor(3, V, seed=2)
    p, q = teacher.softmax(1), student.softmax(1)
    if options["loss"] == "akl":
        by_size, order = p.sort(dim=1, descending=True)
        is_head = by_size.cumsum(1) <= 0.5
        is_head[:, 0] = True
        gaps = (p - q).abs().gather(1, order)
        share = (gaps * is_head).sum(1) / gaps.sum(1)
        ahead, back = share, 1 - share
    else:
        overlap = torch.minimum(p, q).sum(1)
        if options.get("focal_on") == "top":
            overlap = q.gather(1, p.argmax(1, keepdim=True))[:, 0]
        ahead, back = (1 - overlap) ** 2, torch.zeros(3).double()

    def value(logits: Tensor) -> Tensor:
        log_p, log_q = teacher.log_softmax(1), logits.log_softmax(1)
        forward = (log_p.exp() * (log_p - log_q)).sum(1)
        backward = (log_q.exp() * (log_q - log_p)).sum(1)
        return (ahead * forward + back * backward).mean()

    leaf = student.clone().requires_grad_()
    outcome = divergence(leaf, teacher, made(options))
    assert outcome.loss.item() == pytest.approx(value(student).item(), rel=1e-9)
    wanted = slopes(student, lambda logits: value(logits).item())
    assert torch.allclose(gradients(outcome, leaf)[0], wanted, atol=1e-8)


@EVERY
def test_states_and_heads_give_what_their_logits_give(options: dict[str, Any]) -> None:
    """Fused: values and gradients of states, weights and bias; scaled and capped heads too."""
    measure = made(options)
    leaves = [tensor(N, C, seed=1), tensor(V, C, seed=2, scale=1.0), tensor(V, seed=3)]
    theirs = HeadLogits(hidden=tensor(N, 4, seed=4), weights=tensor(V, 4, seed=5, scale=1.0))
    weights = torch.rand(N, generator=torch.Generator().manual_seed(1)).double()
    weights[[1, 4]] = 0.0
    for scale, cap in ((1.0, 0.0), (0.5, 3.0)):
        for leaf in leaves:
            leaf.requires_grad_()
        student = HeadLogits(
            hidden=leaves[0], weights=leaves[1], bias=leaves[2], scale=scale, softcap=cap
        )
        logits = (leaves[0] @ leaves[1].t() + leaves[2]) * scale
        logits = cap * torch.tanh(logits / cap) if cap else logits
        plain = divergence(
            logits, theirs.hidden @ theirs.weights.t(), measure, weights=weights, temperature=1.3
        )
        fused = divergence(
            student, theirs, measure, weights=weights, temperature=1.3, block=2, chunk=2
        )
        assert torch.allclose(fused.values, plain.values, atol=1e-12)
        assert fused.loss.item() == pytest.approx(plain.loss.item(), rel=1e-12)
        for mine, wanted in zip(gradients(fused, *leaves), gradients(plain, *leaves), strict=True):
            assert torch.allclose(mine, wanted, atol=1e-11)


@EVERY
@pytest.mark.parametrize("kind", ["dense", "few", "fused"])
def test_the_size_of_chunks_does_not_matter(kind: str, options: dict[str, Any]) -> None:
    """1, 7 and all rows at a time: the same values and gradients."""
    measure, theirs = made(options), tensor(N, V, seed=2)
    top = theirs.log_softmax(1).topk(4, dim=1)
    teacher = Sparse(ids=top.indices, logprobs=top.values) if kind == "few" else theirs
    hidden, head = tensor(N, C, seed=1).requires_grad_(), tensor(V, C, seed=3)
    found = []
    for chunk in (1, 7, N):
        student = HeadLogits(hidden=hidden, weights=head) if kind == "fused" else hidden @ head.t()
        outcome = divergence(student, teacher, measure, chunk=chunk, block=chunk)
        found.append((outcome.values, gradients(outcome, hidden)[0]))
    for values, gradient in found[1:]:
        assert torch.allclose(values, found[0][0], atol=1e-12)
        assert torch.allclose(gradient, found[0][1], atol=1e-12)


@pytest.mark.parametrize("options", [*SMOOTH[:-2], *DETACHED], ids=ids)
def test_all_tokens_told_is_the_whole_distribution(options: dict[str, Any]) -> None:
    """A sparse teacher with k = V, in any order, and the fused path: equal to the dense one."""
    measure, theirs = made(options), tensor(N, V, seed=2)
    order = theirs.log_softmax(1).sort(dim=1, descending=True)
    few = Sparse(ids=order.indices, logprobs=order.values, has_rest=False)
    leaf = tensor(N, V, seed=1).requires_grad_()
    dense, sparse = (divergence(leaf, t, measure) for t in (theirs, few))

    assert torch.allclose(sparse.values, dense.values, atol=1e-12)
    assert torch.allclose(gradients(sparse, leaf)[0], gradients(dense, leaf)[0], atol=1e-12)


def test_few_tokens_worked_by_hand() -> None:
    """Two of four told: KL of (0.5, 0.3, 0.2) and the student's (1/4, 1/4, 1/2)."""
    teacher = Sparse(
        ids=torch.tensor([[2, 0, -1]]),
        logprobs=torch.tensor([[0.5, 0.3, 0.0]]).log(),
    )
    leaf = torch.zeros(1, 4, requires_grad=True)
    outcome = divergence(leaf, teacher, kernel("forward_kl"))
    wanted = 0.5 * torch.tensor(2.0).log() + 0.3 * torch.tensor(1.2).log()
    wanted += 0.2 * torch.tensor(0.4).log()

    assert outcome.loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    # q - p at the told ones; the rest has (1/2 - 0.2), half of it each
    assert torch.allclose(
        gradients(outcome, leaf)[0], torch.tensor([[-0.05, 0.15, -0.25, 0.15]]), atol=1e-6
    )
    renormalised = Sparse(ids=teacher.ids, logprobs=teacher.logprobs, has_rest=False)
    outcome = divergence(leaf, renormalised, kernel("forward_kl"))
    assert torch.allclose(
        gradients(outcome, leaf)[0], torch.tensor([[0.125, 0.0, -0.125, 0.0]]), atol=1e-6
    )


def test_more_probability_than_one_is_rounding() -> None:
    """A server's logprobs may sum to above 1; values stay finite and near the whole one's."""
    theirs = tensor(N, V, seed=2, scale=6.0)
    top = theirs.log_softmax(1).topk(V - 1, dim=1)
    told = Sparse(ids=top.indices, logprobs=top.values + 1e-4)
    student = tensor(N, V, seed=1, scale=1.0)
    for options in SMOOTH:
        values = divergence(student, told, made(options)).values
        assert bool(torch.isfinite(values).all())
    forward = divergence(student, told, kernel("forward_kl")).values
    assert torch.allclose(
        forward, divergence(student, theirs, kernel("forward_kl")).values, rtol=1e-2
    )


@EVERY
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_costs_only_its_rounding(
    dtype: torch.dtype, options: dict[str, Any]
) -> None:
    """Inputs of 16 bits, arithmetic in float32: values as of the same numbers in float64."""
    student, theirs = tensor(N, V, seed=1).to(dtype), tensor(N, V, seed=2).to(dtype)
    leaf, wide = student.clone().requires_grad_(), student.double().requires_grad_()
    outcome, exact = (
        divergence(a, b, made(options)) for a, b in ((leaf, theirs), (wide, theirs.double()))
    )
    (found,), (wanted,) = gradients(outcome, leaf), gradients(exact, wide)

    assert found.dtype == dtype
    assert outcome.loss.dtype == torch.float32
    assert torch.allclose(outcome.values.double(), exact.values, rtol=1e-4, atol=1e-5)
    assert (found.double() - wanted).norm() <= 2e-2 * wanted.norm()


def test_half_precision_heads() -> None:
    """Weights of bfloat16: gradients come back in bfloat16, near those of float32."""
    hidden, head, theirs = tensor(N, C, seed=1), tensor(V, C, seed=2), tensor(N, V, seed=3)
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        leaves = [hidden.to(dtype).requires_grad_(), head.to(dtype).requires_grad_()]
        student = HeadLogits(hidden=leaves[0], weights=leaves[1])
        outcome = divergence(student, theirs.float(), kernel("jsd"))
        found.append([*gradients(outcome, *leaves), outcome.loss])
    for wide, narrow in zip(*found, strict=True):
        assert (narrow.float() - wide).norm() <= 3e-2 * wide.norm()
    assert found[1][0].dtype == found[1][1].dtype == torch.bfloat16


@EVERY
@pytest.mark.parametrize("kind", ["dense", "few", "fused"])
def test_rows_without_weight_are_never_looked_at(kind: str, options: dict[str, Any]) -> None:
    """NaN in a row of weight 0 does no harm; its gradient is exactly 0, the others' as alone."""
    measure, theirs = made(options), tensor(N, V, seed=2)
    hidden, head = tensor(N, C, seed=1), tensor(V, C, seed=3)
    weights = torch.ones(N).double()
    weights[[0, 3, 8]] = 0.0
    soiled = hidden.clone()
    soiled[weights == 0] = float("nan")

    def run(states: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        leaf = states.clone().requires_grad_()
        top = theirs[chosen].log_softmax(1).topk(4, dim=1)
        few = Sparse(ids=top.indices, logprobs=top.values)
        student = HeadLogits(hidden=leaf, weights=head) if kind == "fused" else leaf
        teacher = few if kind == "few" else theirs[chosen]
        if kind != "fused":
            leaf = (states @ head.t()).requires_grad_()
            student = leaf
        outcome = divergence(student, teacher, measure, weights=weights[chosen])
        return outcome.values, gradients(outcome, leaf)[0]

    live = weights > 0
    values, gradient = run(soiled, torch.arange(N))
    alone, wanted = run(hidden[live], torch.arange(N)[live])
    assert bool((gradient[~live] == 0).all())
    assert bool((values[~live] == 0).all())
    assert torch.allclose(values[live], alone)
    assert torch.allclose(gradient[live], wanted)


@pytest.mark.parametrize("kind", ["dense", "fused"])
def test_a_batch_without_a_live_row(kind: str) -> None:
    """All masked: loss 0, gradients all 0 and there."""
    hidden, head = tensor(N, C, seed=1).requires_grad_(), tensor(V, C, seed=2).requires_grad_()
    student = HeadLogits(hidden=hidden, weights=head) if kind == "fused" else hidden @ head.t()
    outcome = divergence(student, tensor(N, V, seed=3), kernel("jsd"), weights=torch.zeros(N))
    outcome.loss.backward()

    assert outcome.loss.item() == 0.0
    for leaf in (hidden, head):
        assert leaf.grad is not None
        assert not leaf.grad.any()


def test_weights_are_only_a_scale() -> None:
    """A token mean stays when all weights are multiplied; a gradient is theirs times the row's."""
    student, theirs = tensor(N, V, seed=1), tensor(N, V, seed=2)
    weights = torch.rand(N, generator=RANDOM, dtype=torch.float64)
    means, pulls = [], []
    for factor in (1.0, 5.0):
        scaled = factor * weights
        leaf = student.clone().requires_grad_()
        outcome = divergence(leaf, theirs, kernel("jsd"), weights=scaled / scaled.sum())
        means.append(outcome.loss.item())
        pulls.append(gradients(outcome, leaf)[0])
    assert means[0] == pytest.approx(means[1], rel=1e-12)
    assert torch.allclose(pulls[0], pulls[1])


def test_a_frozen_head_gets_no_gradient() -> None:
    """Weights without `requires_grad` cost no product: the states' gradient is the same."""
    hidden, head = tensor(N, C, seed=1).requires_grad_(), tensor(V, C, seed=2)
    outcome = divergence(
        HeadLogits(hidden=hidden, weights=head), tensor(N, V, seed=3), kernel("jsd")
    )
    outcome.loss.backward()
    trained = divergence(
        HeadLogits(hidden=hidden, weights=head.clone().requires_grad_()),
        tensor(N, V, seed=3),
        kernel("jsd"),
    )

    assert head.grad is None
    assert torch.allclose(hidden.grad, gradients(trained, hidden)[0])  # type: ignore[arg-type]


@EVERY
@pytest.mark.parametrize("kind", ["dense", "fused"])
def test_impossible_tokens(kind: str, options: dict[str, Any]) -> None:
    """Logits of -inf on either side or both: as if the vocabulary had not these tokens."""
    bias, theirs = torch.zeros(V).double(), tensor(N, V, seed=2)
    bias[:2] = -torch.inf
    theirs[:, :2] = -torch.inf
    hidden, head = tensor(N, C, seed=1).requires_grad_(), tensor(V, C, seed=3)
    student = HeadLogits(hidden=hidden, weights=head, bias=bias)
    logits = hidden @ head.t() + bias
    found = divergence(student if kind == "fused" else logits, theirs, made(options))
    short = kernel(DivergenceConfig(**options), EMBEDDINGS[2:])
    wanted = divergence(logits[:, 2:], theirs[:, 2:], short)

    assert torch.allclose(found.values, wanted.values, atol=2e-6)
    assert torch.allclose(gradients(found, hidden)[0], gradients(wanted, hidden)[0], atol=2e-6)


def test_a_token_that_the_student_cannot_say() -> None:
    """A p > 0 where q = 0: finite, the floor of 10^4 nats times p; gradients finite."""
    student, theirs = torch.zeros(1, 3), torch.zeros(1, 3)
    student[0, 0] = -torch.inf
    leaf = student.requires_grad_()
    outcome = divergence(leaf, theirs, kernel("forward_kl"))

    assert outcome.loss.item() == pytest.approx(1e4 / 3, rel=1e-2)
    assert bool(torch.isfinite(gradients(outcome, leaf)[0]).all())


def test_padded_vocabularies() -> None:
    """A longer teacher is cut, a longer student's padding gets no gradient; both renormalised."""
    student, theirs = tensor(N, V + 6, seed=1), tensor(N, V, seed=2)
    leaf = student.clone().requires_grad_()
    found, plain = (divergence(x, theirs, kernel("jsd")) for x in (leaf, student[:, :V]))
    assert torch.equal(found.values, plain.values)
    assert not gradients(found, leaf)[0][:, V:].any()
    longer = divergence(student[:, :V], torch.cat([theirs, 9 + theirs[:, :3]], 1), kernel("jsd"))
    assert torch.equal(longer.values, plain.values)


def test_other_vocabularies_are_refused() -> None:
    """Padding explains 128 rows or 2 %; more is another tokenizer, and ids beyond are none."""
    assert common_vocabulary(151936, 152064) == 151936
    with pytest.raises(ValueError, match=r"151936(.|\n)*199998(.|\n)*align"):
        common_vocabulary(151936, 199998)
    told = Sparse(ids=torch.tensor([[V]]), logprobs=torch.tensor([[-0.1]]))
    with pytest.raises(ValueError, match=r"token 17(.|\n)*0 to 16"):
        divergence(torch.zeros(1, V), told, kernel("jsd"))
    with pytest.raises(ValueError, match="2 rows"):
        divergence(torch.zeros(2, V), torch.zeros(3, V), kernel("jsd"))


def test_temperatures_by_row() -> None:
    """(N,) temperatures: each row as with its own alone."""
    student, theirs = tensor(3, V, seed=1), tensor(3, V, seed=2)
    heats = [0.5, 1.0, 3.0]
    leaf = student.clone().requires_grad_()
    together = divergence(
        leaf, theirs, kernel("jsd"), temperature=torch.tensor(heats), weights=torch.ones(3)
    )
    (pulls,) = gradients(together, leaf)
    for row, heat in enumerate(heats):
        one = student[row : row + 1].clone().requires_grad_()
        alone = divergence(
            one, theirs[row : row + 1], kernel("jsd"), temperature=heat, weights=torch.ones(1)
        )
        assert together.values[row].item() == pytest.approx(alone.loss.item(), rel=1e-9)
        assert torch.allclose(pulls[row : row + 1], gradients(alone, one)[0])


def test_a_second_backward_is_refused() -> None:
    """The gradient was handed over: there is none left, and none is made up."""
    leaf = tensor(N, V, seed=1).requires_grad_()
    loss = divergence(leaf, tensor(N, V, seed=2), kernel("jsd")).loss
    (3 * loss).backward(retain_graph=True)
    again = tensor(N, V, seed=1).requires_grad_()
    divergence(again, tensor(N, V, seed=2), kernel("jsd")).loss.backward()

    assert leaf.grad is not None
    assert again.grad is not None
    assert torch.allclose(leaf.grad, 3 * again.grad)
    with pytest.raises(RuntimeError, match="twice"):
        loss.backward()


def test_numbers_seen_on_the_way() -> None:
    """KL, entropies, accuracy, overlap and agreement, against plain formulas; few tokens too."""
    student, theirs = tensor(N, V, seed=1), tensor(N, V, seed=2)
    targets = student.argmax(1)
    targets[:4] = student.argmin(1)[:4]
    names = ("kl", "accuracy", "entropy", "teacher_entropy", "overlap", "agreement")
    log_p, log_q = theirs.log_softmax(1), student.log_softmax(1)
    order = log_p.sort(dim=1, descending=True)
    whole = Sparse(ids=order.indices, logprobs=order.values, has_rest=False)
    shared = [
        len(set(a) & set(b)) / 8
        for a, b in zip(
            log_p.topk(8, 1).indices.tolist(), log_q.topk(8, 1).indices.tolist(), strict=True
        )
    ]
    wanted = {
        "kl": (log_p.exp() * (log_p - log_q)).sum(1),
        "accuracy": (torch.arange(N) >= 4).double(),
        "entropy": -(log_q.exp() * log_q).sum(1),
        "teacher_entropy": -(log_p.exp() * log_p).sum(1),
        "overlap": torch.tensor(shared).double(),
        "agreement": (log_p.argmax(1) == log_q.argmax(1)).double(),
    }
    for teacher in (theirs, whole):
        seen = divergence(student, teacher, kernel("tv"), targets=targets, names=names).seen
        for name, values in wanted.items():
            assert torch.allclose(seen[name], values, atol=1e-6), name


def test_misses_count_twice() -> None:
    """A row whose likeliest token is not the teacher's has double weight, and double gradient."""
    student, theirs = tensor(N, V, seed=1), tensor(N, V, seed=2)
    theirs[:3] = student[:3] + 0.1 * theirs[:3]
    lifted = 1 + (student.argmax(1) != theirs.argmax(1)).double()
    leaf = student.clone().requires_grad_()
    found = divergence(leaf, theirs, kernel("jsd"), doubles_misses=True)
    wanted = divergence(leaf, theirs, kernel("jsd"), weights=lifted / N)

    assert set(lifted.tolist()) == {1.0, 2.0}
    assert found.loss.item() == pytest.approx(wanted.loss.item(), rel=1e-12)
    assert torch.allclose(gradients(found, leaf)[0], gradients(wanted, leaf)[0])
