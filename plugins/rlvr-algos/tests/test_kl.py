"""The KL estimates against the exact divergence of small distributions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rlvr_algos.shaping.kl import LOG_RATIO_LIMIT, kl_to_reference, unbiased_kl


def distributions(seed: int) -> tuple[Tensor, Tensor]:
    """Logits (V,) of the policy, with gradient, and logprobs (V,) of the reference."""
    generator = torch.Generator().manual_seed(seed)
    logits, reference = torch.randn(2, 7, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), reference.log_softmax(0)


def expected(logits: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """Mean of the estimate over the policy; the probabilities stand still, as in sampling."""
    logprobs = logits.log_softmax(0)
    return (logprobs.detach().exp() * kl_to_reference(logprobs, reference, estimator)).sum()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_value_is_unbiased(estimator: str, seed: int) -> None:
    """On average over the policy k1 and k3 are exactly KL(policy || reference)."""
    logits, reference = distributions(seed)
    logprobs = logits.log_softmax(0)
    exact = (logprobs.exp() * (logprobs - reference)).sum()

    assert expected(logits, reference, estimator).item() == pytest.approx(exact.item(), rel=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_gradients_are_those_the_documentation_says(estimator: str, seed: int) -> None:
    """On average over the policy: d KL(policy || reference), for k3 d KL(reference || policy)."""
    logits, reference = distributions(seed)
    (found,) = torch.autograd.grad(expected(logits, reference, estimator), logits)

    logprobs = logits.log_softmax(0)
    p, q = (reference, logprobs) if estimator == "k3" else (logprobs, reference)
    (wanted,) = torch.autograd.grad((p.exp() * (p - q)).sum(), logits)
    assert torch.allclose(found, wanted, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_importance_ratio_makes_k3_unbiased_where_others_sampled(seed: int) -> None:
    """Over tokens that another policy drew: value and gradient of KL(policy || reference)."""
    logits, reference = distributions(seed)
    sampled = distributions(seed + 9)[0].detach().log_softmax(0)
    logprobs = logits.log_softmax(0)
    mean = (sampled.exp() * unbiased_kl(logprobs, reference, "k3", logprobs - sampled)).sum()
    exact = (logprobs.exp() * (logprobs - reference)).sum()

    assert mean.item() == pytest.approx(exact.item(), rel=1e-12)
    found, wanted = [torch.autograd.grad(v, logits, retain_graph=True)[0] for v in (mean, exact)]
    assert torch.allclose(found, wanted, atol=1e-12)
    plain = (sampled.exp() * kl_to_reference(logprobs, reference, "k3")).sum()
    assert plain.item() != pytest.approx(exact.item(), rel=1e-3)


def test_k2_and_k3_are_never_negative_and_zero_at_agreement() -> None:
    """Where policy and reference agree the penalty and its gradient vanish, for all three."""
    gaps = torch.linspace(-30, 30, 601, dtype=torch.float64)
    for estimator in ("k1", "k2", "k3"):
        logprobs = torch.zeros(1, dtype=torch.float64, requires_grad=True)
        value = kl_to_reference(logprobs, torch.zeros(1, dtype=torch.float64), estimator)
        value.sum().backward()
        assert value.item() == 0.0
        assert logprobs.grad is not None
        assert logprobs.grad.item() == 0.0
        if estimator != "k1":
            assert (kl_to_reference(gaps, torch.zeros_like(gaps), estimator) >= 0).all()


def test_small_differences_are_not_lost() -> None:
    """In float32 k3 of a 1e-4 gap is 5e-9, not the rounding error of 1 - 1."""
    value = kl_to_reference(torch.tensor([1e-4]), torch.tensor([0.0]), "k3")

    assert value.item() == pytest.approx(5e-9, rel=0.05)


def test_gaps_are_cut_at_the_limit() -> None:
    """Past 20 nats the value stands still and the gradient is zero."""
    far = torch.tensor([-1e4], requires_grad=True)
    value = kl_to_reference(far, torch.tensor([0.0]), "k3")
    value.backward()

    at_limit = kl_to_reference(torch.tensor([-LOG_RATIO_LIMIT]), torch.tensor([0.0]), "k3")
    assert value.item() == at_limit.item()
    assert far.grad is not None
    assert far.grad.item() == 0.0


def test_unknown_estimator_is_refused() -> None:
    """A misspelt estimator is an error, not another one's value."""
    with pytest.raises(ValueError, match="k9"):
        kl_to_reference(torch.zeros(1), torch.zeros(1), "k9")
