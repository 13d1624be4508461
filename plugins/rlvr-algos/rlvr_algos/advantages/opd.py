"""Advantage `opd`: on-policy distillation, alone or on top of a verified reward."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr import BuildContext, ConfigError, Datum, Needs
from rlvr_algos.advantages.group import GroupAdvantage
from rlvr_algos.shaping.config import OpdConfig
from rlvr_algos.shaping.reward_kl import (
    annotated,
    to_go,
    token_kl,
    with_advantages,
    with_annotation,
)

TEACHER = "teacher"
REWARD = "credit/reward"
"""Annotation: the advantages (T,) without the teacher's share, for `opd.mode=supervised`."""


class OpdAdvantage(GroupAdvantage):
    """
    Advantage of each token: what its answer earned, less how unlikely the teacher finds it.

    `A_t = reward_coef * A - kl_penalty_coef * sum_{s >= t} kl_discount_factor^(s - t) * k1_s`
    with `k1_s = log pi_sampler(s) - log pi_teacher(s)` at the policy's own tokens (0 at others,
    cut at 20 nats), A the reward relative to its group. So the policy follows the reward
    `R - kl_penalty_coef * KL(policy || teacher)`. With a discount of 0 a token answers for itself
    alone (Thinking Machines, "On-policy distillation", 2025); with 1 the sum is the exact policy
    gradient of the KL of whole answers. Steps count all tokens between, as in tinker-cookbook's
    `train_on_policy`. With `kl_in="reward"` the KL of the whole answer is taken off its reward
    before that is compared with its group's: `A = R - mean(R)`, `R = reward_coef * r -
    kl_penalty_coef * sum_s k1_s`. Then `whiten` and `clip` bound the sum token by token. The
    reward's share alone goes along as the annotation "credit/reward". See docs/algorithms/opd.md.

    Attributes:
        needs: The teacher and its annotation while it counts, and "reference" with a KL in the
            reward; gives "credit/reward".

    Raises:
        ConfigError: No teacher, nothing to learn from, or groups of one with a reward.
    """

    name = "opd"
    config_class = OpdConfig
    is_bounded_by_token = True

    def __init__(self, config: OpdConfig | None, context: BuildContext) -> None:
        options = config or OpdConfig()
        if options.reward_coef == 0 and options.kl_in == "token":
            self.smallest_group = 1
        _check(options)
        super().__init__(options, context)
        self.needs |= Needs(provides={REWARD})
        if options.kl_penalty_coef > 0:
            self.needs |= Needs(annotations={TEACHER}, teachers={TEACHER: options.teacher})

    def raw(self, rewards_P_G: Sequence[Sequence[float]]) -> list[NDArray[np.float64]]:
        """Shape (P, G), unit: reward (or none when normalised); zeros without `reward_coef`."""
        coef = self._config.reward_coef
        if coef == 0:
            return [np.zeros(len(rewards_G)) for rewards_G in rewards_P_G]
        return [coef * row for row in super().raw(rewards_P_G)]

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data with the teacher's share in their advantages, bounded as the options say.

        Raises:
            BackendError: A datum has no annotation "teacher" (or "reference", where needed).
        """
        data = super().per_token(data)
        labels = [datum.labels for datum in data]
        credit = [d.advantages[d.mask].astype(np.float64) for d in data]
        taught = [c + t for c, t in zip(credit, self._taught(data), strict=True)]
        return [
            with_annotation(with_advantages(d, both), REWARD, reward)
            for d, both, reward in zip(
                data, self.bounded(taught, labels), self.bounded(credit, labels), strict=True
            )
        ]

    def metrics(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """
        Means over the policy's tokens.

        `teacher/kl` (k1 of KL(sampler || teacher), nats), `teacher/logprob` (nats) and, with a
        clip, `advantage/clipped`, the share of tokens at it.
        """
        found: dict[str, float] = {}
        if self.needs.teachers:
            kl = np.concatenate([token_kl(d, TEACHER) for d in data])
            theirs = np.concatenate([annotated(d, TEACHER) for d in data])
            found = {"teacher/kl": float(kl.mean()), "teacher/logprob": float(theirs.mean())}
        if clip := self._config.clip:
            credit = np.concatenate([d.advantages[d.mask] for d in data])
            found["advantage/clipped"] = float((np.abs(credit) >= np.float32(clip)).mean())
        return found

    def _taught(self, data: Sequence[Datum]) -> list[NDArray[np.float64]]:
        """The teacher's share of the advantages of each datum's n tokens, (n,)."""
        config = self._config
        if not self.needs.teachers:
            return [np.zeros(int(d.mask.sum())) for d in data]
        if config.kl_in == "reward":
            answers = np.array([token_kl(d, TEACHER).sum() for d in data])
            _, place = np.unique(np.array([d.problem_id for d in data]), return_inverse=True)
            above = answers - (np.bincount(place, answers) / np.bincount(place))[place]
            return [
                np.full(int(d.mask.sum()), -config.kl_penalty_coef * value)
                for d, value in zip(data, above, strict=True)
            ]
        taught = []
        for datum in data:
            kl = np.zeros(len(datum.tokens))
            kl[datum.mask] = token_kl(datum, TEACHER)
            own = to_go(kl, config.kl_discount_factor)[datum.mask]
            taught.append(-config.kl_penalty_coef * own)
        return taught


def _check(options: OpdConfig) -> None:
    if options.kl_in == "reward" and (options.normalise_std or options.kl_discount_factor):
        raise ConfigError(
            "advantage.kl_in=reward was asked for: the KL of whole answers, in the reward.",
            f"found: advantage.normalise_std={str(options.normalise_std).lower()} and "
            f"advantage.kl_discount_factor={options.kl_discount_factor:g}, which belong to "
            "advantage.kl_in=token",
            "set advantage.normalise_std=false and advantage.kl_discount_factor=0",
        )
    if options.kl_penalty_coef > 0 and not options.teacher:
        raise ConfigError(
            "on-policy distillation was asked for without a teacher.",
            "found: advantage.teacher is empty",
            "name one whose tokenizer is the policy's: --teacher hf:PATH_OR_ID, "
            "--teacher gpt2:PATH",
        )
    if options.kl_penalty_coef == 0 and options.reward_coef == 0:
        raise ConfigError(
            "advantage.kl_penalty_coef=0 and advantage.reward_coef=0 were asked for.",
            "found: then neither the teacher nor the reward teaches anything",
            "set one of them above 0",
        )
    if options.kl_penalty_coef == 0 and options.teacher:
        raise ConfigError(
            f"the teacher {options.teacher} was asked for.",
            "found: advantage.kl_penalty_coef=0, so nothing it says would count",
            "set advantage.kl_penalty_coef=1, or leave the teacher out (--algo grpo)",
        )
