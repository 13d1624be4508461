"""Distillation where numbers end: underflow, impossible tokens, few tokens, other temperatures."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import attrs
import numpy as np
import pytest
import torch
from torch import Tensor

from rlvr import BuildContext, ConfigError, Datum, TeacherCapabilities, TopK
from rlvr.testing.distilling import MadeUp
from rlvr_distill.config import DistillConfig, DivergenceConfig
from rlvr_distill.distributions.functional import divergence
from rlvr_distill.distributions.sides import HeadLogits, Sparse
from rlvr_distill.divergences.catalogue import kernel
from rlvr_distill.loss import DistillLoss
from rlvr_distill.unsure import entropies

N, V = 5, 12
UNLIKELY = [
    {"loss": "jsd"},
    {"loss": "skew_kl"},
    {"loss": "skew_rkl"},
    {"loss": "skew_kl", "skew": 0.0},
    {"loss": "skew_rkl", "skew": 0.0},
    {"loss": "reverse_kl"},
    {"loss": "alpha"},
]


def logits(seed: int, **far: float) -> Tensor:
    """(N, V), with tokens `t3=150` that many nats below the others."""
    found = torch.randn(N, V, generator=torch.Generator().manual_seed(seed))
    for name, distance in far.items():
        found[:, int(name[1:])] -= distance
    return found


@pytest.mark.parametrize("options", UNLIKELY, ids=str)
@pytest.mark.parametrize("heat", [1.0, 0.25])
def test_probabilities_too_small_for_float32(options: dict[str, Any], heat: float) -> None:
    """Both sides find a token 1e-65 likely: fused and dense give what float64 gives."""
    measure = kernel(DivergenceConfig(**options))
    student, theirs = logits(1, t3=160 * heat, t7=300 * heat), logits(2, t3=150 * heat)
    exact = student.double().requires_grad_()
    wanted = divergence(exact, theirs.double(), measure, temperature=heat)
    wanted.loss.backward()
    dense, states = student.clone().requires_grad_(), student.clone().requires_grad_()
    head = torch.eye(V)
    for leaf, side in (
        (dense, dense),
        (states, HeadLogits(hidden=states, weights=head)),
    ):
        weights = torch.full((N,), 1 / N)
        found = divergence(side, theirs, measure, weights=weights, temperature=heat, block=2)
        found.loss.backward()
        assert found.loss.item() == pytest.approx(wanted.loss.item(), rel=1e-4)
        assert leaf.grad is not None
        assert exact.grad is not None
        assert torch.allclose(leaf.grad.double(), exact.grad, atol=1e-6)


def test_a_row_that_underflows_still_counts_its_miss_twice_once() -> None:
    """Its block is computed again, and the doubling is not done again."""
    measure = kernel("jsd")
    student, theirs = logits(1, t3=160), logits(2, t3=150)
    side = HeadLogits(hidden=student.double().requires_grad_(), weights=torch.eye(V).double())
    wanted = divergence(side, theirs.double(), measure, doubles_misses=True).loss
    narrow = HeadLogits(hidden=student.clone().requires_grad_(), weights=torch.eye(V))
    found = divergence(narrow, theirs, measure, doubles_misses=True).loss
    assert found.item() == pytest.approx(wanted.item(), rel=1e-5)


@pytest.mark.parametrize("whose", ["teacher", "student", "both"])
def test_metrics_of_few_tokens_stay_finite(whose: str) -> None:
    """A told token of probability 0, on either side, makes no metric infinite or NaN."""
    student, theirs = logits(1), logits(2)
    if whose != "student":
        theirs[1, 3] = -math.inf
    if whose != "teacher":
        student[1, 3] = -math.inf
    ids = torch.arange(6).expand(N, 6)
    told = Sparse(ids=ids, logprobs=theirs.log_softmax(1)[:, :6])
    names = ("kl", "entropy", "teacher_entropy", "overlap")
    seen = divergence(student, told, kernel("tv"), names=names).seen
    for name in names:
        assert torch.isfinite(seen[name]).all(), name


def test_metrics_of_renormalised_tokens_are_of_what_was_compared() -> None:
    """Without a rest, KL and entropy are those of both sides renormalised on the told tokens."""
    student, theirs = logits(1).double(), logits(2).double()
    ids = torch.arange(4).expand(N, 4)
    told = Sparse(ids=ids, logprobs=theirs.log_softmax(1)[:, :4], has_rest=False)
    found = divergence(student, told, kernel("forward_kl"), names=("kl", "teacher_entropy"))
    log_p = theirs[:, :4].log_softmax(1)
    assert torch.allclose(found.seen["kl"], found.values)
    assert torch.allclose(found.seen["teacher_entropy"], -(log_p.exp() * log_p).sum(1))


def test_absent_tokens_are_no_part_of_the_overlap() -> None:
    """A row of two tokens and two gaps, both among the student's likeliest: 1, not a half."""
    student = logits(1)
    ids = student.topk(4, dim=1).indices
    ids[:, 2:] = -1
    told = Sparse(ids=ids, logprobs=torch.log(torch.tensor([0.4, 0.3, 0.0, 0.0])).expand(N, 4))
    seen = divergence(student, told, kernel("tv"), names=("overlap",)).seen
    assert seen["overlap"].tolist() == [1.0] * N


def test_entropy_of_an_impossible_token() -> None:
    """A half, a half and one that cannot be: ln 2, so weights by confidence stay finite."""
    told = TopK(
        ids=[[4, 2, 9]],
        logprobs=[[math.log(0.5), math.log(0.5), -math.inf]],
        actual=[0.0],
        is_whole=True,
    )
    assert entropies(told, None, 1.0, 8) == pytest.approx([math.log(2)])


def test_gradients_of_a_narrow_head_add_up_in_float32() -> None:
    """128 blocks are as near to float64 as one is: bfloat16 is rounded to at the end."""
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(2048, 64, generator=random).bfloat16()
    theirs = torch.randn(2048, 100, generator=random)
    head = torch.randn(100, 64, generator=random).bfloat16()
    gradients = []
    for dtype, block in ((torch.float64, 2048), (torch.bfloat16, 2048), (torch.bfloat16, 16)):
        leaf = head.to(dtype, copy=True).requires_grad_()
        side = HeadLogits(hidden=hidden.to(dtype), weights=leaf)
        divergence(side, theirs, kernel("forward_kl"), block=block).loss.backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        gradients.append(leaf.grad.double())
    exact, one, many = gradients
    assert (many - exact).norm() < 1.1 * (one - exact).norm()


def grouped(log_p: float, told: TopK) -> Datum:
    """Two tokens of a group and one with a distribution, all of equal weight."""
    return Datum(
        tokens=[1, 2, 4, 3],
        mask=[False, True, True, True],
        logprobs=np.zeros(4),
        advantages=np.zeros(4),
        weights=[0.0, 1 / 3, 1 / 3, 1 / 3],
        annotations={
            "align/group": np.array([-1, 0, 0, -1], np.float32),
            "align/logprob": np.array([0, log_p, 0, 0], np.float32),
        },
        distributions={"teacher": told},
    )


def made(**options: Any) -> DistillLoss:
    loss = DistillLoss(DistillConfig(teacher="gpt2:there", **options), BuildContext(steps=10))
    teacher = MadeUp()
    teacher.tokenizer = SimpleNamespace(vocab_size=V)
    loss.meet({"teacher": teacher})
    return loss


@pytest.mark.parametrize("scale_t2", [False, True])
def test_groups_are_compared_at_the_temperature_that_was_asked(scale_t2: bool) -> None:
    """
    A teacher that is the student, asked at T = 2: the term of its groups is 0, and so is the loss.

    Where it is not, the squared temperature counts for groups as it does for tokens.
    """
    states = logits(3)[:3].double()
    log_q = (states / 2).log_softmax(1)
    own = float(log_q[0, 2] + log_q[1, 4])
    few = torch.tensor([0, 3])
    told = TopK(
        ids=[[-1, -1], [-1, -1], few.tolist()],
        logprobs=[[-math.inf] * 2, [-math.inf] * 2, log_q[2, few].tolist()],
        actual=np.zeros(3),
    )
    loss = made(temperature=2.0, top_k=2, scale_t2=scale_t2)
    head = SimpleNamespace(weights=torch.eye(V).double(), bias=None, scale=1.0, softcap=0.0)
    for log_p in (own, own - 0.7):
        data = loss.token_weights([grouped(log_p, told)])
        forward = {"hidden": [states.requires_grad_()], "head": [head]}
        value, _ = loss(data, [torch.zeros(4)], forward)
        p, q = math.exp(log_p), math.exp(own)
        apart = p * (log_p - own) + (1 - p) * math.log((1 - p) / (1 - q))
        factor = 4 if scale_t2 else 1
        assert value.item() == pytest.approx(factor * apart / 2, abs=1e-6)


def test_groups_are_neither_sure_nor_unsure() -> None:
    """Confidence knows nothing of a group: it counts as a token of the mean confidence."""
    told = TopK(
        ids=[[-1, -1], [-1, -1], [0, 3]],
        logprobs=[[-math.inf] * 2, [-math.inf] * 2, [-0.5, -1.5]],
        actual=np.zeros(3),
    )
    datum = grouped(-2.0, told)
    found = [
        made(weighting=weighting).token_weights([datum])[0].annotations["distill/weight"].tolist()
        for weighting in ("uniform", "confidence")
    ]
    assert found[1] == pytest.approx(found[0])


def test_groups_are_neither_easy_nor_difficult() -> None:
    """Difficulty never doubles a group, so the mean of that factor does not divide it."""
    told = TopK(
        ids=[[-1, -1], [-1, -1], [0, 3]],
        logprobs=[[-math.inf] * 2, [-math.inf] * 2, [-0.5, -1.5]],
        actual=np.zeros(3),
    )
    loss = made(weighting="difficulty").with_memory({"difficulty/action": 1.6})
    (found,) = loss.token_weights([grouped(-2.0, told)])
    assert found.annotations["distill/weight"].tolist() == pytest.approx([0, 0.75, 0.75, 1.5 / 1.6])


def test_temperatures_by_token_need_a_teacher_that_tells_all() -> None:
    """One with another tokenizer tells few tokens at one temperature: refused, with what to do."""
    loss = DistillLoss(DistillConfig(teacher="t", adapt_temperature=0.5), BuildContext())
    teacher = MadeUp("hf:OTHER")
    teacher.tokenizer = SimpleNamespace(vocab_size=V)
    teacher.capabilities = TeacherCapabilities(is_partial=True)
    with pytest.raises(ConfigError, match="adapt_temperature=0"):
        loss.meet({"teacher": teacher})
    teacher.capabilities = attrs.evolve(teacher.capabilities, is_partial=False)
    loss.meet({"teacher": teacher})


def test_a_whole_answer_wider_than_the_student() -> None:
    """A teacher whose vocabulary has padding that the student's lacks is cut, as states are."""
    random = np.random.default_rng(0)
    wide = torch.tensor(random.normal(size=(3, V + 4)))
    told = TopK(
        ids=np.tile(np.arange(V + 4), (3, 1)),
        logprobs=wide.log_softmax(1).numpy(),
        actual=np.zeros(3),
        is_whole=True,
    )
    datum = attrs.evolve(grouped(0.0, told), annotations={})
    states = logits(3)[:3].double().requires_grad_()
    head = SimpleNamespace(weights=torch.eye(V).double(), bias=None, scale=1.0, softcap=0.0)
    loss = made()
    value, _ = loss(
        loss.token_weights([datum]), [torch.zeros(4)], {"hidden": [states], "head": [head]}
    )
    log_p, log_q = wide[:, :V].log_softmax(1), states.log_softmax(1)
    assert value.item() == pytest.approx(
        (log_p.exp() * (log_p - log_q)).sum(1).mean().item(), rel=1e-5
    )
