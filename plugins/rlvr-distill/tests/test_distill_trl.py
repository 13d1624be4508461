"""Beside TRL's `generalized_jsd_loss`: its formula, written out, and TRL itself where installed."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from rlvr_distill.config import DivergenceConfig
from rlvr_distill.distributions.functional import divergence
from rlvr_distill.divergences.catalogue import kernel

B, T, V = 2, 5, 37


def formula(student: Tensor, teacher: Tensor, beta: float) -> Tensor:
    """Generalised JSD of arXiv:2306.13649, equation 1, summed; its ends are the KLs."""
    log_q, log_p = student.log_softmax(-1), teacher.log_softmax(-1)
    q, p = log_q.exp(), log_p.exp()
    if beta == 0.0:
        return (p * (log_p - log_q)).sum()
    if beta == 1.0:
        return (q * (log_q - log_p)).sum()
    log_m = torch.logaddexp(log_p + math.log(beta), log_q + math.log(1 - beta))
    return (beta * p * (log_p - log_m) + (1 - beta) * q * (log_q - log_m)).sum()


def sides() -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(3)
    student, teacher = (3 * torch.randn(B, T, V, generator=random) for _ in range(2))
    return student, teacher, torch.rand(B, T, generator=random) < 0.6


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("temperature", [1.0, 2.0])
def test_equals_the_formula(beta: float, temperature: float) -> None:
    """Loss and gradient within 1e-5, over the supervised tokens of a batch."""
    student, teacher, mask = sides()
    mine, plain = student.clone().requires_grad_(), student.clone().requires_grad_()
    loss = divergence(
        mine,
        teacher,
        kernel(DivergenceConfig(loss="jsd", beta=beta)),
        weights=mask / mask.sum(),
        temperature=temperature,
    ).loss
    loss.backward()
    wanted = formula(plain[mask] / temperature, teacher[mask] / temperature, beta) / mask.sum()
    wanted.backward()

    assert loss.item() == pytest.approx(wanted.item(), abs=1e-5)
    assert torch.allclose(mine.grad, plain.grad, atol=1e-6)  # type: ignore[arg-type]


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_equals_trl(beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's own loss and gradient within 1e-5, masked by its labels."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    gkd = pytest.importorskip("trl.experimental.gkd", reason="TRL is not installed here")
    student, teacher, mask = sides()
    mine, theirs = student.clone().requires_grad_(), student.clone().requires_grad_()
    weights = mask / mask.sum()
    jsd = kernel(DivergenceConfig(loss="jsd", beta=beta))
    loss = divergence(mine, teacher, jsd, weights=weights).loss
    loss.backward()
    wanted = gkd.GKDTrainer.generalized_jsd_loss(
        theirs, teacher, labels=torch.where(mask, 1, -100), beta=beta
    )
    wanted.backward()

    assert loss.item() == pytest.approx(wanted.item(), abs=1e-5)
    assert torch.allclose(mine.grad, theirs.grad, atol=1e-5)  # type: ignore[arg-type]
