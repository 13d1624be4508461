"""The needs of an advantage or a loss, met by other parts, and the methods that both have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Self

from attrs import field, frozen

from rlvr.parts.base import Part
from rlvr.types import DistributionRequest

if TYPE_CHECKING:
    from rlvr.parts.teacher import Teacher


def _names(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str):  # else each letter would be a name
        raise TypeError(f"a set of names was expected: {{{names!r}}}, not {names!r}")
    return frozenset(names)


@frozen(kw_only=True)
class Needs:
    """
    Data that an advantage or a loss needs from other models.

    Attributes:
        annotations: Numbers of each token, by the name of the model that gives them: "reference",
            "teacher", "value" (the critic's estimate before each token), "policy" (the trainer's
            own logprobs before the step).
        provides: Annotations that `per_token` makes itself: nobody else is asked for them.
        teachers: Model specs of the teachers by the name of their annotation
            ({"teacher": "gpt2:PATH"}). The run opens each through the plugin that takes its
            scheme, and asks it in place of the backend. The part's spec names the options that
            they come from (`AdvantageSpec.teachers`).
        distributions: What is asked of teachers by the name of their annotation, in
            `Datum.distributions`; rows are a datum's supervised tokens in order. An ask with
            k = 0 gets `HiddenStates` where the teacher has them, a whole `TopK` else.
        outputs: What a loss needs of the forward pass, besides logprobs: "entropy" (of the
            distribution a token was drawn from, nats, at the datum's temperature), "value" (the
            critic's estimate before the token), or "hidden" with "head" (see `Loss.__call__`).
        logprobs: False for a loss over whole distributions that does not look at the policy's
            logprobs: it gets zeros, which cost nothing.
    """

    annotations: frozenset[str] = field(default=frozenset(), converter=_names)
    provides: frozenset[str] = field(default=frozenset(), converter=_names)
    teachers: Mapping[str, str] = field(factory=dict)
    distributions: Mapping[str, DistributionRequest] = field(factory=dict)
    outputs: frozenset[str] = field(default=frozenset(), converter=_names)
    logprobs: bool = True

    def __or__(self, other: Needs) -> Needs:
        """The union of both; if both say something of one name, `other` decides."""
        return Needs(
            annotations=self.annotations | other.annotations,
            provides=self.provides | other.provides,
            teachers={**self.teachers, **other.teachers},
            distributions={**self.distributions, **other.distributions},
            outputs=self.outputs | other.outputs,
            logprobs=self.logprobs or other.logprobs,
        )


class LearningPart(Part):
    """
    Methods that an advantage and a loss share.

    Attributes:
        needs: What it asks of others.
    """

    needs: Needs = Needs()

    def meet(self, teachers: Mapping[str, Teacher]) -> None:
        """
        Called once when all teachers are open: annotation to teacher, {} if the run has none.

        Raises:
            ConfigError: One cannot give what the part needs.
        """

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        """
        The memory after a step that gave `metrics`, for settings that follow the training.

        {} at the start; kept in checkpoints. A pure function of its arguments.
        """
        return {}

    def with_memory(self, memory: Mapping[str, float]) -> Self:
        """The same part with the settings in the memory; evaluations use the part without them."""
        return self

    def warnings(self, metrics: Mapping[str, float]) -> Iterable[str]:
        """Warnings about a step's metrics, to be logged."""
        return ()
