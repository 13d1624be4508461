"""Loss `opd`: a policy gradient, and a divergence from the teacher on the policy's own answers."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs
from torch import Tensor

from rlvr import BackendError, BuildContext, Datum, Loss, NamedForm, Teacher
from rlvr_distill.numbers import as_metrics
from rlvr_distill.opd.config import OpdLossConfig

if TYPE_CHECKING:
    from rlvr_distill.loss import DistillLoss

REWARD = "credit/reward"
"""Annotation: the advantages (T,) without the teacher's share, of the advantage `opd`."""
_OWN = "distill/"
"""What the divergence keeps in the loss's memory begins so."""


class OpdLoss(Loss):
    """
    A policy gradient and, unless `mode` is "pg", a divergence of the teacher on the same tokens.

    - pg: the teacher speaks through the advantages alone: exactly the policy gradient.
    - supervised: the policy gradient on the reward's advantages (annotation "credit/reward"), plus
      `coef` times the divergence of the whole distributions (every option of the loss `distill`).
    - both: the policy gradient on the advantages as they are, plus the same.

    The gradient of the divergence does not pass through what was sampled: on the student's own
    answers it is the derivative of the KL at each position, with far less noise than the sampled
    token's log-ratio. See docs/algorithms/opd.md.

    Attributes:
        needs: The policy gradient's, with the distributions, states and head that the divergence
            needs unless `mode` is "pg".
        importance_weighted: As the policy gradient's.

    Args:
        config: Options of both.
        context: `context.inner` is the policy gradient, the loss `reinforce`.
    """

    def __init__(self, config: OpdLossConfig | None, context: BuildContext) -> None:
        self._config = config or OpdLossConfig()
        self._gradient: Loss = context.inner
        self._distill: DistillLoss | None = None
        self.importance_weighted = self._gradient.importance_weighted
        self.needs = self._gradient.needs
        if self._config.mode != "pg":
            self._distill = _distill(self._config, context)
            self.needs |= attrs.evolve(self._distill.needs, teachers={})  # it is the advantage's

    def meet(self, teachers: Mapping[str, Teacher]) -> None:
        self._gradient.meet(teachers)
        if self._distill is not None:
            self._distill.meet(teachers)

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        """All data of an update, with what each token counts in the divergence."""
        data = self._gradient.token_weights(data)
        return data if self._distill is None else self._distill.token_weights(data)

    def builtin_form(self) -> NamedForm | None:
        """As the policy gradient in mode "pg"; no service's loss has a divergence."""
        return self._gradient.builtin_form() if self._distill is None else None

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Loss (scalar) and metrics of D data; both add up over micro-batches.

        Returns:
            The loss, the policy gradient's metrics, and with a divergence `loss/distill` (before
            `coef`) and its own.

        Raises:
            BackendError: As the policy gradient; in mode "supervised" also where the advantage
                left no "credit/reward".
        """
        is_rewarded = self._config.mode == "supervised"
        own = [_rewarded(datum) for datum in data] if is_rewarded else data
        loss, metrics = self._gradient(own, logprobs, outputs)
        if self._distill is None:
            return loss, metrics
        term, told = self._distill.term(data, outputs)
        return loss + self._config.coef * term, {**metrics, **as_metrics(told)}

    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        own = [] if self._distill is None else self._distill.warnings(metrics)
        return [*self._gradient.warnings(metrics), *own]

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """Memory of the policy gradient (its KL weight) and of the divergence."""
        theirs, own = _parted(memory)
        kept = self._gradient.adapted(theirs, metrics)
        learnt = {} if self._distill is None else self._distill.adapted(own, metrics)
        return {**kept, **{_OWN + k: v for k, v in learnt.items()}}

    def with_memory(self, memory: Mapping[str, float]) -> Self:
        """The same loss, teachers and all, with the settings of the memory."""
        loss = copy.copy(self)
        theirs, own = _parted(memory)
        loss._gradient = self._gradient.with_memory(theirs)
        if self._distill is not None:
            loss._distill = self._distill.with_memory(own)
        return loss


def _distill(config: OpdLossConfig, context: BuildContext) -> DistillLoss:
    """The divergence with the options that both records have; its teacher is the advantage's."""
    from rlvr_distill.config import DistillConfig, TokenDistillConfig
    from rlvr_distill.loss import DistillLoss

    shared = {f.name: getattr(config, f.name) for f in attrs.fields(TokenDistillConfig)}
    return DistillLoss(DistillConfig(**shared, teacher="advantage.teacher"), context)


def _rewarded(datum: Datum) -> Datum:
    if REWARD not in datum.annotations:
        raise BackendError(
            "opd.mode=supervised learns the reward's advantages beside the divergence.",
            f"found: problem {datum.problem_id!r} has no annotation {REWARD!r}",
            "use advantage opd (--algo opd), or opd.mode=both",
        )
    return attrs.evolve(datum, advantages=datum.annotations[REWARD])


def _parted(memory: Mapping[str, float]) -> tuple[dict[str, float], dict[str, float]]:
    """What the policy gradient remembers, and what the divergence does, by its own names."""
    own = {k.removeprefix(_OWN): v for k, v in memory.items() if k.startswith(_OWN)}
    return {k: v for k, v in memory.items() if not k.startswith(_OWN)}, own
