"""Loss `distill`: pull the student's next-token distributions to a teacher's."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from rlvr import BuildContext, Datum, DistributionRequest, Loss, Needs, Teacher
from rlvr_distill import pacing, spans
from rlvr_distill.config import DistillConfig, check, check_teacher
from rlvr_distill.distributions.functional import divergence
from rlvr_distill.distributions.gathered import Gathered, gather
from rlvr_distill.divergences.catalogue import kernel
from rlvr_distill.grouped import group_term
from rlvr_distill.numbers import added, as_metrics, by_type, metric_names
from rlvr_distill.unsure import HEAT, looked_at

TEACHER = "teacher"


class DistillLoss(Loss):
    """
    Sum over supervised tokens of `w_t * f_t * D(teacher, student)`.

    w are `datum.weights`; f come from the spans that tokens stand in (annotation "span": 0 none,
    1 reasoning, 2 action; absent: all are action) and are set by `token_weights` for all data of an
    update at once, so that micro-batches add up exactly. Without it they are the plain
    weights of the spans. Advantages do not count. See docs/algorithms/distill/index.md.

    Another loss may hold one of these, pass `token_weights`, `meet`, `adapted` and `with_memory`
    on, and add `term` to its own.

    Raises:
        ConfigError: No teacher, or settings that contradict each other.
    """

    importance_weighted = False
    is_policy_gradient = False

    def __init__(self, config: DistillConfig | None, context: BuildContext) -> None:
        self._config = config or DistillConfig()
        check(self._config)
        self._steps = context.steps
        self._memory: Mapping[str, float] = {}
        self._head: Any = None
        self._vocabulary = 0
        self._is_cold = self._config.tail == "renorm" and self._config.top_k > 0
        self._ask = DistributionRequest(
            k=self._config.top_k, temperature=1.0 if self._is_cold else self._config.temperature
        )
        self.needs = Needs(
            teachers={TEACHER: self._config.teacher},
            distributions={TEACHER: self._ask},
            outputs={"hidden", "head"},
            logprobs=False,
        )

    def meet(self, teachers: Mapping[str, Teacher]) -> None:
        """
        Take the output head of a teacher that gives states, and the size of its vocabulary.

        Raises:
            ConfigError: It cannot answer at the temperature of each token.
        """
        check_teacher(self._config, teachers[TEACHER])
        self._head = teachers[TEACHER].head
        self._vocabulary = teachers[TEACHER].tokenizer.vocab_size

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        """All data of one update, with what each token counts as annotations of this loss."""
        config = self._config
        data, certainty = looked_at(data, TEACHER, config, self._head, self._vocabulary)
        return spans.weighed(
            data,
            self._type_weights(),
            config.reduction,
            certainty,
            pacing.miss_scales(config, self._memory),
        )

    def term(
        self, data: Sequence[Datum], outputs: Mapping[str, Sequence[Any]]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """
        The loss (scalar) and metrics as scalar tensors, for losses that add it to their own.

        Returns:
            The loss, and sums that add up over micro-batches: `loss/distill` (the loss); by span
            type that has a weight (`reasoning`, `action`) `share/...`, the weights of its tokens,
            and means over its tokens once `token_weights` was called: `distill/...`, the
            divergence, and with `span_metrics` `kl/...` (nats), `accuracy/...`, `entropy/...`
            (nats), `teacher_entropy/...` (nats) and `overlap/...` (of the 8 likeliest).
        """
        config = self._config
        groups = gather(
            data,
            outputs,
            TEACHER,
            self._head,
            temperature=config.temperature,
            has_rest=config.tail == "rest",
            is_cold=self._is_cold,
        )
        terms = [self._compare(one) for one in groups]
        total = torch.stack([loss for loss, _ in terms]).sum()
        metrics = added([found for _, found in terms])
        return total, {"loss/distill": total.detach(), **metrics}

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Tensor],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Tensor, dict[str, float]]:
        """Loss and metrics (see `term`) of D data; both add up over micro-batches."""
        loss, metrics = self.term(data, outputs)
        return loss, as_metrics(metrics)

    def _compare(self, some: Gathered) -> tuple[Tensor, dict[str, Tensor]]:
        config, data = self._config, some.data
        factors = [self._factors(d) for d in data]
        weights = some.column([f * d.weights for f, d in zip(factors, data, strict=True)])
        is_grouped = some.column([spans.in_group(d) for d in data])
        measure = kernel(config, some.student.weights)
        found = divergence(
            some.student,
            some.teacher,
            measure,
            weights=weights.masked_fill(is_grouped, 0.0),
            temperature=self._heat(some),
            scale_t2=config.scale_t2,
            targets=some.targets,
            names=metric_names(config),
            block=config.chunk_rows,
            doubles_misses=config.weighting == "difficulty",
        )
        is_difficulty = config.weighting == "difficulty"
        metrics = by_type(some, found, self._type_weights(), is_difficulty=is_difficulty)
        loss = found.loss
        if any(spans.GROUP in d.annotations for d in data):
            heat = self._ask.temperature
            of_groups = weights * heat**2 if config.scale_t2 else weights
            extra = group_term(some, measure, of_groups, is_grouped, config.chunk_rows, heat)
            loss, metrics = loss + extra, {**metrics, "align/chunk": extra.detach()}
        return loss, metrics

    def _factors(self, datum: Datum) -> np.ndarray:
        if spans.FACTOR in datum.annotations:
            return np.asarray(datum.annotations[spans.FACTOR])
        return spans.plain_factors(datum, self._type_weights()).astype(np.float32)

    def _type_weights(self) -> dict[int, float]:
        return pacing.type_weights(self._config, self._memory, self._steps)

    def _heat(self, some: Gathered) -> Tensor | float:
        if all(HEAT in d.annotations for d in some.data):
            return some.column([np.asarray(d.annotations[HEAT], np.float32) for d in some.data])
        return self._config.temperature

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """Steps taken, and the running means that weights follow."""
        return pacing.remembered(self._config, memory, metrics)

    def with_memory(self, memory: Mapping[str, float]) -> Self:
        """The same loss at the step, and with the running means, of the memory."""
        loss = copy.copy(self)
        loss._memory = dict(memory)
        return loss

    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        """A warning where an alpha beyond 0..1 has exploded."""
        config, found = self._config, metrics.get("loss/distill", 0.0)
        if config.loss != "alpha" or 0 <= config.alpha <= 1 or found < 100:
            return []
        return [
            f"the alpha divergence is {found:.3g} at alpha={config.alpha:g}: beyond 0..1 single "
            "tokens decide it; set alpha between 0.3 and 1"
        ]
