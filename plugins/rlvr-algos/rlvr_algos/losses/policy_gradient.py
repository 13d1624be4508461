"""Base of the policy-gradient losses: ratio, correction, KL, entropy, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlvr import (
    BuildContext,
    Datum,
    Loss,
    NamedForm,
    Needs,
    PolicyGradientConfig,
    compilable,
)
from rlvr_algos.shaping.adaptive_kl import AdaptiveKl
from rlvr_algos.shaping.kl import correction, kl_to_reference, largest, limited, unbiased_kl
from rlvr_algos.tokens import PolicyTokens, as_metrics


class PolicyGradientLoss(AdaptiveKl, Loss):
    """
    Base of the losses; a subclass gives `surrogate`, and the name and record of its options.

    Sum over the policy's tokens of `w * (c * surrogate + kl_coef * KL - entropy_coef * H)`: w are
    `datum.weights`, so how tokens are averaged is decided there and not here; c is the off-policy
    correction (1 without one). The ratio is pi_theta / pi_sampler, against the logprobs the
    sampler reported when it drew the token; with a correction it is pi_theta / pi_trainer before
    the step, and c stands for pi_trainer / pi_sampler.

    Attributes:
        needs: The annotations "reference" when `kl_coef` > 0 and "policy" with a correction, the
            output "entropy" when `entropy_coef` > 0.
        importance_weighted: True: a sampler that cuts the distribution biases the ratio.

    Raises:
        ConfigError: Settings that contradict each other.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[PolicyGradientConfig]]

    def __init__(self, config: Any, context: BuildContext) -> None:
        self._namespace = context.namespace or self.name
        super().__init__(config, context, self._namespace)
        config = self._config
        wanted = {"reference": config.kl_coef > 0, "policy": config.correction != "none"}
        self.needs = Needs(
            annotations=(name for name, is_on in wanted.items() if is_on),
            outputs={"entropy"} if config.entropy_coef > 0 else (),
        )

    def surrogate(
        self, tokens: PolicyTokens, log_ratio: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """
        What the policy term adds at each token, (N,), and scalar metrics.

        Args:
            tokens: The policy's N tokens.
            log_ratio: (N,) nats, carries the gradient; cut at 20 nats.
        """
        raise NotImplementedError

    def further(self, tokens: PolicyTokens) -> tuple[Tensor | None, dict[str, Tensor]]:
        """A further scalar term of the loss (a critic's), and its metrics; None where none is."""
        return None, {}

    def builtin_form(self) -> NamedForm | None:
        """
        The built-in loss of a service that this is, with its settings.

        None with a KL, an entropy bonus or a correction: no built-in loss has these. How token
        losses are averaged does not matter: the weights go into the advantages.
        """
        config = self._config
        is_bare = config.kl_coef == 0 and config.entropy_coef == 0 and config.correction == "none"
        return self.form() if is_bare else None

    def form(self) -> NamedForm | None:
        """The built-in loss that the bare surrogate is; None where there is none."""
        return None

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Loss (scalar) and metrics of D data; both add up over micro-batches.

        A log-ratio past 20 nats is cut there and passes no gradient.

        Returns:
            The loss, and weighted sums: `loss/policy`, `ratio/mean`, `ratio/max` (a maximum),
            `kl/sampler` (k3 estimate of KL(sampler || policy), nats), `logprob/mean` (nats), what
            the surrogate adds, and where they are on `kl/reference` (nats, before `kl_coef`),
            `kl/coefficient` (`kl_coef` as it is now, with a target), `entropy/mean` (nats) and the
            correction's `mismatch/...`.

        Raises:
            BackendError: A datum lacks what is in `needs`, or the backend an output.
        """
        tokens = PolicyTokens.gather(data, logprobs, outputs, self.needs)
        coefficient = self._config.kl_coef
        kl_coef = tokens.weights.new_full((), coefficient) if coefficient > 0 else None
        loss, metrics = self._objective(tokens, kl_coef)
        return loss, as_metrics(metrics)

    @compilable
    def _objective(
        self, tokens: PolicyTokens, kl_coef: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its metrics as scalar tensors; `kl_coef` is scalar, None without a KL."""
        config = self._config
        moved = limited(tokens.logprobs - tokens.sampled)  # (N,) nats, from the sampler
        log_ratio, scale = moved, None
        mismatch: dict[str, Tensor] = {}
        if config.correction != "none":
            trained = tokens.annotations["policy"]
            log_ratio = limited(tokens.logprobs - trained)
            scale, mismatch = correction(tokens, trained, config.correction, config.correction_cap)
        per_token, clipped = self.surrogate(tokens, log_ratio)
        loss = policy = tokens.weighted(per_token if scale is None else scale * per_token)
        ratio = log_ratio.detach().exp()
        metrics = {
            "loss/policy": policy,
            "ratio/mean": tokens.weighted(ratio),
            "ratio/max": largest(ratio),
            **clipped,
            "kl/sampler": tokens.weighted(torch.expm1(moved) - moved),
            "logprob/mean": tokens.weighted(tokens.logprobs),
            **mismatch,
        }
        if kl_coef is not None:
            apart = tokens.logprobs, tokens.annotations["reference"], config.kl_estimator
            is_weighted = config.kl_bias_correction
            kl = tokens.weighted(
                unbiased_kl(*apart, log_ratio) if is_weighted else kl_to_reference(*apart)
            )
            metrics["kl/reference"] = kl
            if config.kl_target > 0:
                metrics["kl/coefficient"] = tokens.weighted(kl_coef.expand_as(tokens.weights))
            loss = loss + kl_coef * kl
        if config.entropy_coef > 0:
            entropy = tokens.weighted(tokens.outputs["entropy"])
            metrics["entropy/mean"] = entropy
            loss = loss - config.entropy_coef * entropy
        term, more = self.further(tokens)
        metrics |= more
        told = {name: value.detach() for name, value in metrics.items()}
        return loss if term is None else loss + term, told

    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        """A warning where sampler and trainer are further apart than `mismatch_warn`."""
        limit, found = self._config.mismatch_warn, metrics.get("mismatch/kl", 0.0)
        if not 0 < limit < found:
            return []
        advice = (
            f"set {self._namespace}.correction=tis-token to weigh it out"
            if self._config.correction == "none"
            else "look at mismatch/clipped, and at the sampler's precision"
        )
        return [
            f"the sampler is not quite the trainer: mismatch/kl is {found:.3g} nats a token, "
            f"above {self._namespace}.mismatch_warn={limit:g}; {advice}"
        ]
