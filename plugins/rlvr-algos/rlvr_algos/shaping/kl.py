"""KL estimates for a loss, and weights that undo a sampler which is numerically not the trainer."""

from __future__ import annotations

import torch
from torch import Tensor

from rlvr_algos.tokens import PolicyTokens

LOG_RATIO_LIMIT = 20.0
"""Differences of logprobs are cut at this many nats (a ratio of 5e8), so that exp stays finite."""


def limited(log_ratio: Tensor) -> Tensor:
    """Differences of logprobs, past the limit constant and without a gradient."""
    return log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)


def unbiased_kl(logprobs: Tensor, reference: Tensor, estimator: str, log_ratio: Tensor) -> Tensor:
    """
    `kl_to_reference` of each token times its importance ratio, which has a gradient too.

    With k3 value and gradient are, on average over the distribution that sampled, those of
    KL(policy || reference) of now: r (k3 + 1 - pi_ref / pi) grad log pi = r log(pi / pi_ref)
    grad log pi. DeepSeek-V3.2 (arXiv:2512.02556), section 3.1, equation 7; TRL:
    `use_bias_correction_kl`.

    Args:
        logprobs: As of `kl_to_reference`.
        reference: As of `kl_to_reference`.
        estimator: As of `kl_to_reference`.
        log_ratio: (N,) nats, the policy against what sampled; carries the gradient.
    """
    return log_ratio.exp() * kl_to_reference(logprobs, reference, estimator)


def kl_to_reference(logprobs: Tensor, reference: Tensor, estimator: str) -> Tensor:
    """
    Per-token estimate of KL(policy || reference) from tokens that the policy sampled.

    With d = log policy - log reference of the sampled token (Schulman, "Approximating KL
    divergence", 2020):

    - k1 = d. Unbiased, can be negative. Its own derivative is zero on average (the score has
      mean zero), so it is given the gradient d * grad(log policy): value of k1, gradient of k2.
    - k2 = d^2 / 2. Biased value; its gradient is the reverse KL's, unbiased on policy.
    - k3 = exp(-d) + d - 1. Unbiased value, never negative; its gradient is, on average over the
      policy, that of the *forward* KL(reference || policy). GRPO's choice.

    Args:
        logprobs: (N,) nats, carries the gradient.
        reference: (N,) nats, a constant.
        estimator: "k1", "k2" or "k3".

    Returns:
        (N,) nats, finite: past `LOG_RATIO_LIMIT` the value stands still and the gradient is zero.
    """
    difference = limited(logprobs - reference.detach())
    if estimator == "k3":
        return torch.expm1(-difference) + difference
    k2 = difference.square() / 2
    if estimator == "k2":
        return k2
    if estimator == "k1":
        return k2 + (difference - k2).detach()
    raise ValueError(f"no KL estimator {estimator!r}: k1, k2 or k3")


def correction(
    tokens: PolicyTokens, trained: Tensor, kind: str, cap: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """
    The weight (N,) of each token, a constant, and how far sampler and trainer are apart.

    With r = pi_trainer / pi_sampler of a token ("tis-token", "mis-token") or the product of these
    over an answer's tokens ("tis-sequence", "mis-sequence"), both before the step:

    - tis, truncated importance sampling: min(r, cap);
    - mis, masked importance sampling: r where 1 / cap <= r <= cap, else 0.

    Sources: Yao et al., "Your efficient RL framework secretly brings you off-policy RL training"
    (2025) for truncation; sequence products as in Liu et al., "When speed kills stability" (2025).

    Args:
        tokens: The policy's N tokens.
        trained: (N,) nats, the trainer's logprobs before the step.
        kind: One of `CORRECTIONS` without "none".
        cap: Above 1.

    Returns:
        Weights, and weighted sums: `mismatch/kl` (k3 estimate of KL(sampler || trainer), nats),
        `mismatch/ratio/max` (a token's, a maximum), `mismatch/clipped` (share of tokens whose
        weight was cut or masked).
    """
    gap = limited(trained - tokens.sampled)  # (N,) nats
    method, level = kind.split("-")
    log_ratio = gap
    if level == "sequence":
        log_ratio = limited(tokens.per_datum(gap))
    ratio = log_ratio.exp()
    is_out = ratio > cap
    if method == "mis":
        is_out = is_out | (ratio < 1.0 / cap)
        weight = torch.where(is_out, torch.zeros_like(ratio), ratio)
    else:
        weight = ratio.clamp(max=cap)
    metrics = {
        "mismatch/kl": tokens.weighted(torch.expm1(gap) - gap),
        "mismatch/ratio/max": largest(gap.exp()),
        "mismatch/clipped": tokens.weighted(is_out.to(ratio)),
    }
    return weight.detach(), metrics


def largest(values: Tensor) -> Tensor:
    """The maximum of (N,) values, 0 where there are none."""
    return values.amax() if values.numel() else values.sum()
