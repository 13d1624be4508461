"""Estimates of the KL divergence to the reference, made for use in a loss."""

from __future__ import annotations

import torch
from torch import Tensor

LOG_RATIO_LIMIT = 20.0
"""Differences of logprobs are cut at this many nats (a ratio of 5e8), so that exp stays finite."""


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
    difference = (logprobs - reference.detach()).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
    if estimator == "k3":
        return torch.expm1(-difference) + difference
    k2 = difference.square() / 2
    if estimator == "k2":
        return k2
    if estimator == "k1":
        return k2 + (difference - k2).detach()
    raise ValueError(f"no KL estimator {estimator!r}: k1, k2 or k3")
