"""Loss `opd`: what the policy learns of its teacher on its own answers, and of the reward."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import attrs
from torch import Tensor

from rlvr.abilities import NamedForm
from rlvr.distributions import Ask
from rlvr.errors import BackendError, explain
from rlvr.parts import BuildContext, Teacher
from rlvr.types import Datum
from rlvr_algos import adaptive_kl
from rlvr_algos.opd import REWARD
from rlvr_algos.opd_config import OpdLossConfig
from rlvr_algos.reinforce import ReinforceLoss
from rlvr_algos.tokens import as_metrics

if TYPE_CHECKING:
    from rlvr_algos.distill.loss import DistillLoss

_OWN = "distill/"
"""What the divergence keeps in the loss's memory begins so."""


class OpdLoss(ReinforceLoss):
    """
    `reinforce` and, unless `mode` is "pg", a divergence of the teacher on the same tokens.

    - pg: the teacher speaks through the advantages alone: exactly `reinforce`.
    - supervised: `reinforce` on the reward's advantages (annotation "credit/reward"), plus `coef`
      times the divergence of the whole distributions (every option of the loss `distill`).
    - both: `reinforce` on the advantages as they are, plus the same.

    The gradient of the divergence does not pass through what was sampled: on the student's own
    answers it is the derivative of the KL at each position, with far less noise than the sampled
    token's log-ratio. See docs/algorithms/opd.md.

    Attributes:
        outputs: With "hidden" and "head" unless `mode` is "pg".
        distributions: What the teacher is asked; nothing in mode "pg".
    """

    name = "opd"
    config_class = OpdLossConfig

    def __init__(self, config: OpdLossConfig | None, context: BuildContext) -> None:
        super().__init__(config, context)
        self._distill: DistillLoss | None = None
        self.distributions: Mapping[str, Ask] = {}
        if self._config.mode != "pg":
            self._distill = _distill(self._config, context)
            self.distributions = self._distill.distributions
            self.outputs = self.outputs | self._distill.outputs

    def meet(self, teachers: Mapping[str, Teacher]) -> None:
        """The divergence takes what it needs of its teacher."""
        if self._distill is not None:
            self._distill.meet(teachers)

    def weighed(self, data: Sequence[Datum]) -> list[Datum]:
        """All data of an update, with what each token counts in the divergence."""
        return list(data) if self._distill is None else self._distill.weighed(data)

    def named(self) -> NamedForm | None:
        """As `reinforce` in mode "pg"; no service's loss has a divergence."""
        return super().named() if self._distill is None else None

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Any]] | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """
        Loss (scalar) and metrics of D data; both add up over micro-batches.

        Returns:
            The loss, `reinforce`'s metrics, and with a divergence `loss/distill` (before `coef`)
            and its own.

        Raises:
            BackendError: As `reinforce`; in mode "supervised" also where the advantage left no
                "credit/reward".
        """
        if self._distill is None:
            return super().__call__(data, logprobs, outputs)
        rewarded = [_rewarded(d) for d in data] if self._config.mode == "supervised" else data
        loss, metrics = super().__call__(rewarded, logprobs, outputs)
        term, told = self._distill.term(data, outputs)
        return loss + self._config.coef * term, {**metrics, **as_metrics(told)}

    def notices(self, metrics: Mapping[str, float]) -> Iterable[str]:
        """What either of the two has to warn of."""
        own = [] if self._distill is None else self._distill.notices(metrics)
        return [*super().notices(metrics), *own]

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """The KL weight where it has a target, and what the divergence remembers."""
        kept = super().adapted({k: v for k, v in memory.items() if not _is_own(k)}, metrics)
        if self._distill is None:
            return kept
        own = self._distill.adapted(_own(memory), metrics)
        return {**kept, **{_OWN + k: v for k, v in own.items()}}

    def recalled(self, memory: Mapping[str, float]) -> Self:
        """The same loss, teachers and all, with the settings of the memory."""
        loss = copy.copy(self)
        if adaptive_kl.MEMORY in memory:
            loss._config = attrs.evolve(self._config, kl_coef=memory[adaptive_kl.MEMORY])
        if self._distill is not None:
            loss._distill = self._distill.recalled(_own(memory))
        return loss


def _distill(config: OpdLossConfig, context: BuildContext) -> DistillLoss:
    """The divergence with the options that both records have; its teacher is the advantage's."""
    from rlvr_algos.distill.config import DistillConfig, TokenDistillConfig
    from rlvr_algos.distill.loss import DistillLoss

    shared = {f.name: getattr(config, f.name) for f in attrs.fields(TokenDistillConfig)}
    return DistillLoss(DistillConfig(**shared, teacher="advantage.teacher"), context)


def _rewarded(datum: Datum) -> Datum:
    if REWARD not in datum.annotations:
        raise BackendError(
            explain(
                "opd.mode=supervised learns the reward's advantages beside the divergence.",
                f"found: problem {datum.problem_id!r} has no annotation {REWARD!r}",
                "use advantage opd (--algo opd), or opd.mode=both",
            )
        )
    return attrs.evolve(datum, advantages=datum.annotations[REWARD])


def _is_own(key: str) -> bool:
    return key.startswith(_OWN)


def _own(memory: Mapping[str, float]) -> dict[str, float]:
    return {k.removeprefix(_OWN): v for k, v in memory.items() if _is_own(k)}
