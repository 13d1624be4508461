"""Loss `grpo`: the clipped importance ratio, with an optional pull to the reference."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from rlvr.parts import BuildContext
from rlvr.types import Datum
from rlvr_algos.config import GrpoConfig
from rlvr_algos.kl import LOG_RATIO_LIMIT, kl_to_reference
from rlvr_algos.tokens import PolicyTokens, as_metrics


class GrpoLoss:
    """
    Sum over the policy's tokens of w * (-min(r A, clip(r, 1 - low, 1 + high) A) + beta KL).

    r is pi_theta / pi_sampler, against the logprobs the sampler reported when it drew the token,
    so several optimiser steps on one batch stay corrected. w are `datum.weights`: how tokens are
    averaged is decided there, not here. Source: arXiv:2402.03300, eq. 3; separate bounds from
    DAPO, arXiv:2503.14476. See docs/algorithms/grpo.md.

    Attributes:
        needs: {"reference"} when `kl_coef` > 0, else empty (no reference model is run).
        importance_weighted: True: a sampler that cuts the distribution biases the ratio.
    """

    importance_weighted = True

    def __init__(self, config: GrpoConfig | None, context: BuildContext) -> None:
        self._config = config or GrpoConfig()
        self.needs: frozenset[str] = frozenset({"reference"} if self._config.kl_coef > 0 else ())

    def __call__(
        self, data: Sequence[Datum], logprobs: Sequence[Tensor]
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Loss (scalar) and metrics of D data; both add up over micro-batches.

        A log-ratio past 20 nats is cut there and passes no gradient.

        Returns:
            The loss, and weighted sums: `loss/policy`, `ratio/mean`, `ratio/max` (a maximum),
            `clip/low` and `clip/high` (share of tokens whose gradient the clip stopped),
            `kl/sampler` (k3 estimate of KL(sampler || policy), nats), `logprob/mean` (nats) and,
            with a reference, `kl/reference` (nats, before `kl_coef`).
        """
        config = self._config
        tokens = PolicyTokens.gather(data, logprobs)
        log_ratio = tokens.logprobs - tokens.sampled  # (N,) nats
        log_ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)
        ratio = log_ratio.exp()  # (N,) pi_theta / pi_sampler
        low, high = 1.0 - config.clip_low, 1.0 + config.clip_high
        gain = torch.minimum(
            ratio * tokens.advantages, ratio.clamp(low, high) * tokens.advantages
        )  # (N,)
        loss = policy = -tokens.weighted(gain)
        metrics = {
            "loss/policy": policy,
            "ratio/mean": tokens.weighted(ratio),
            "ratio/max": ratio.amax() if ratio.numel() else ratio.sum(),
            "clip/low": tokens.weighted(((ratio < low) & (tokens.advantages < 0)).to(ratio)),
            "clip/high": tokens.weighted(((ratio > high) & (tokens.advantages > 0)).to(ratio)),
            "kl/sampler": tokens.weighted(torch.expm1(log_ratio) - log_ratio),
            "logprob/mean": tokens.weighted(tokens.logprobs),
        }
        if config.kl_coef > 0:
            kl = tokens.weighted(
                kl_to_reference(
                    tokens.logprobs, tokens.annotation("reference"), config.kl_estimator
                )
            )
            metrics["kl/reference"] = kl
            loss = loss + config.kl_coef * kl
        return loss, as_metrics(metrics)
