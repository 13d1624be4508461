"""Settings that do not go together: refused, or said, before anything is sampled."""

from __future__ import annotations

from rlvr.abilities import TokenCredit
from rlvr.config.core import TrainOptions
from rlvr.errors import ConfigError, explain
from rlvr.log import get
from rlvr.parts import Advantage, Loss, Sampler
from rlvr.types import SamplingParams

log = get(__name__)


def check_together(
    *,
    sampler: Sampler,
    params: SamplingParams,
    advantage: Advantage,
    loss: Loss,
    train: TrainOptions,
    max_staleness: int,
) -> None:
    """
    Refuse what cannot mean what it says; warn of what learns from stale samples uncorrected.

    References are off-policy at any time, so `max_staleness` changes nothing of what they teach
    and is allowed with them: their verification then overlaps training.

    Raises:
        ConfigError: Truncated sampling under importance ratios, ratios without a sampler that
            draws from the policy, the reference asked for twice, or more minibatches than a step
            can have trajectories.
    """
    if params.is_truncated and loss.importance_weighted:
        raise ConfigError(
            explain(
                "top-p or top-k sampling was asked for with an importance-weighted loss.",
                "found: the sampled distribution is then not the policy, and every ratio is biased",
                "set sampler.top_p=1 sampler.top_k=0, or use a loss without ratios (sft)",
            )
        )
    if loss.importance_weighted and not sampler.draws_from_policy:
        raise ConfigError(
            explain(
                "a sampler that does not draw from the policy was chosen with an "
                "importance-weighted loss.",
                "found: ratios need the logprobs of the policy that sampled, and there are none",
                "use sampler 'group', or algorithm sft",
            )
        )
    if isinstance(advantage, TokenCredit) and "reference" in advantage.needs & loss.needs:
        raise ConfigError(
            explain(
                "a KL to the reference was asked for twice.",
                "found: one in the loss (kl_coef of the loss) and one in the reward "
                "(advantage.kl_coef)",
                "set one of the two to 0",
            )
        )
    most = train.problems * params.group_size
    if train.minibatches > most:
        raise ConfigError(
            explain(
                f"{train.minibatches} optimiser steps a pass were asked for (train.minibatches).",
                f"found: a step has at most {most} trajectories (train.problems={train.problems} "
                f"times sampler.group_size={params.group_size})",
                f"set train.minibatches to {most} or less, or raise train.problems",
            )
        )
    if max_staleness and sampler.draws_from_policy and not loss.importance_weighted:
        log.warning(
            "stale_samples_uncorrected",
            max_staleness=max_staleness,
            why="the loss has no importance ratio: samples of older weights count as the policy's",
            do="set run.max_staleness=0, or use an algorithm with ratios (grpo)",
        )
