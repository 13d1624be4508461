"""Base of the reward-based advantages: shaping, filtering, limits, KL in the reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rlvr import Advantage, BuildContext, ConfigError, Datum, Needs, ScoredGroup
from rlvr_algos.shaping.adaptive_kl import AdaptiveKl
from rlvr_algos.shaping.config import CreditConfig
from rlvr_algos.shaping.overlong import Shaping, verdicts
from rlvr_algos.shaping.reward_kl import to_go, token_kl, whitened_apart, with_advantages


class Credit(AdaptiveKl, Advantage):
    """
    Base of the advantages; a subclass gives `raw`, and the name and record of its options.

    The order: rewards are shaped, `raw` makes credit of them, `whiten` and `clip` bound it, masked
    answers become None; then, token by token, the KL in the reward is taken off (`per_token`). All
    are off by default and change nothing then. See docs/which-algorithm.md.

    Attributes:
        needs: The annotation "reference" with a KL in the reward.
        refill_limit: How many further groups a step may draw in place of dropped ones.

    Raises:
        ConfigError: Settings that contradict each other, or groups of one where credit is
            relative to a group.
    """

    name: ClassVar[str]
    config_class: ClassVar[type[CreditConfig]]
    smallest_group: int = 2
    is_bounded_by_token: ClassVar[bool] = False

    def __init__(self, config: Any, context: BuildContext) -> None:
        super().__init__(config, context, "advantage")
        self._shaping = Shaping(self._config, context)
        self.needs = Needs(annotations={"reference"} if self._config.kl_coef > 0 else ())
        self.refill_limit = self._config.refills
        self.is_per_group = self.is_bounded_by_token or not self._config.whiten
        self._check()

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """Credit (P, G) of shaped rewards, ragged alike: the formula of the advantage."""
        raise NotImplementedError

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float | None]]:
        """
        Advantages of all groups.

        Args:
            groups: P scored groups; sizes may differ after failed verifications were dropped.

        Returns:
            Shape (P, G), ragged in G. None: the trajectory stays in the baseline and leaves the
            training data (cut answers with `truncated=mask`, and groups too small to compare).

        Raises:
            TaskError: A trajectory has no reward.
        """
        credit_P_G = self.raw([self._shaping.rewards(group) for group in groups])
        if not self.is_bounded_by_token:
            credit_P_G = self.bounded(credit_P_G, [group.problem.labels for group in groups])
        return [
            [
                None if too_small or self._shaping.is_masked(trajectory) else float(value)
                for trajectory, value in zip(group.trajectories, row, strict=True)
            ]
            for group, row in zip(groups, credit_P_G, strict=True)
            for too_small in [len(row) < self.smallest_group]
        ]

    def bounded(
        self, rows: Sequence[NDArray[np.float64]], labels: Sequence[Mapping[str, str]]
    ) -> list[NDArray[np.float64]]:
        """
        Ragged rows whitened, then clipped, as the options say.

        Rows whose problems differ in the label `whiten_by` are whitened apart; `labels` are the
        rows' problems'. Problems without the label are one more kind.

        Raises:
            ConfigError: No problem has the label.
        """
        config = self._config
        rows = list(rows)
        if config.whiten_by and labels and not any(config.whiten_by in own for own in labels):
            raise ConfigError(
                f"advantage.whiten_by={config.whiten_by} was asked for.",
                f"found: problems with the labels {', '.join(sorted(labels[0])) or 'none'}",
                "name one of them, or leave whiten_by out",
            )
        if config.whiten:
            kinds = [own.get(config.whiten_by, "") for own in labels]
            rows = whitened_apart(rows, kinds, config.epsilon)
        return [row.clip(-config.clip, config.clip) for row in rows] if config.clip else rows

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        """
        Take the KL that each token still has to pay off its advantage; without a KL, nothing.

        `A_t = A - kl_coef * sum_{s >= t} (log pi_sampler(s) - log pi_reference(s))` over the
        policy's tokens s: the exact policy gradient of the KL of whole answers (k1).
        """
        if self._config.kl_coef == 0:
            return list(data)
        beta = self._config.kl_coef
        return [with_advantages(d, d.advantages[d.mask] - beta * to_go(token_kl(d))) for d in data]

    def keep(self, group: ScoredGroup) -> bool:
        """False where `drop_equal` is set and the verdicts of the group are all equal."""
        values = [reward.value for reward in verdicts(group)]
        return not self._config.drop_equal or len(set(values)) > 1

    def _check(self) -> None:
        config, sampling = self._config, self._context.sampling
        if sampling is not None and sampling.group_size < self.smallest_group:
            raise ConfigError(
                f"advantage '{self.name}' was asked for with groups of one trajectory.",
                "found: sampler.group_size=1, and credit is relative to a group of answers",
                "set sampler.group_size=8, or use --algo ppo, reinforce++ or sft",
            )
        if config.refills and not config.drop_equal:
            raise ConfigError(
                f"advantage.refills={config.refills} was asked for.",
                "found: advantage.drop_equal=false, so no group is dropped and none refilled",
                "set advantage.drop_equal=true, or advantage.refills=0",
            )
        if config.whiten_by and not config.whiten:
            raise ConfigError(
                f"advantage.whiten_by={config.whiten_by} was asked for.",
                "found: advantage.whiten=false, so nothing is normalised over the batch",
                "set advantage.whiten=true, or leave whiten_by out",
            )
        if config.drop_equal and sampling is not None and sampling.group_size == 1:
            raise ConfigError(
                "advantage.drop_equal=true was asked for with groups of one trajectory.",
                "found: sampler.group_size=1; the rewards of such a group are always equal",
                "set sampler.group_size=8, or advantage.drop_equal=false",
            )
