"""Weights that undo a sampler which is numerically not the trainer: TIS and MIS."""

from __future__ import annotations

import torch
from torch import Tensor

from rlvr_algos.shaping.kl import LOG_RATIO_LIMIT
from rlvr_algos.tokens import PolicyTokens


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
    gap = (trained - tokens.sampled).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)  # (N,) nats
    method, level = kind.split("-")
    log_ratio = gap
    if level == "sequence":
        log_ratio = tokens.per_datum(gap).clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
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
