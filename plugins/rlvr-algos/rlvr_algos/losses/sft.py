"""Loss `sft`: imitate the data, each trajectory as much as its advantage says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from rlvr import Datum, Loss, NamedForm
from rlvr_algos.tokens import PolicyTokens, as_metrics


class SftLoss(Loss):
    """
    Sum over the policy's tokens of -w * A * log pi_theta: cross-entropy where A is 1.

    With the advantage `one` this is maximum likelihood of the references; with another advantage
    it is reward-weighted imitation. Asks nothing of who sampled the tokens, so data written by
    people or other models serve as well. See docs/algorithms/sft.md.

    Attributes:
        importance_weighted: False: no ratio, so a truncated sampler biases nothing.
    """

    importance_weighted = False

    def builtin_form(self) -> NamedForm:
        """Tinker's `cross_entropy`, the advantages in its weights."""
        return NamedForm(name="cross_entropy")

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Loss (scalar) and metrics of D data; both add up over micro-batches.

        Returns:
            The loss, and weighted sums: `loss/policy` (the loss) and `logprob/mean` (nats; its
            negative exponential is the perplexity when weights are per token).
        """
        tokens = PolicyTokens.gather(data, logprobs)
        loss = -tokens.weighted(tokens.advantages * tokens.logprobs)
        mean = tokens.weighted(tokens.logprobs)
        return loss, as_metrics({"loss/policy": loss, "logprob/mean": mean})
