"""Whole next-token distributions on their way from a teacher to a loss: what distillation needs.

A loss that is `Distilling` says what it wants to know (`Ask`) by the name of the annotation; the
run asks the teacher of that name and puts the answer into `Datum.distributions`. A teacher gives
its k likeliest tokens (`Scoring`), or the states before its output head, which stand for the whole
distribution in few numbers (`Revealing`).

Shapes: S tokens of a sequence, n positions, k tokens, C width of the model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from attrs import frozen

from rlvr.parts import Teacher
from rlvr.types import Datum, Question, States, TopK


@frozen(kw_only=True)
class Ask:
    """
    What a loss wants of a teacher.

    Attributes:
        k: Likeliest tokens a position; 0: the whole distribution.
        temperature: That the teacher's logits are divided by.
    """

    k: int
    temperature: float = 1.0


@frozen(kw_only=True)
class Capabilities:
    """
    What a teacher can answer.

    Attributes:
        max_k: Largest k; 0: up to the whole vocabulary.
        temperatures: Those it scores at; None: any.
        has_states: Whether it is `Revealing`: whole distributions, for fused losses.
        tokenizer: What tells its tokenizer apart by content; "" where it cannot say.
        is_partial: Whether a row may hold fewer tokens than were asked for (ids -1), because some
            of what it knows has no token here. Of all others that is refused.
    """

    max_k: int = 0
    temperatures: tuple[float, ...] | None = None
    has_states: bool = False
    tokenizer: str = ""
    is_partial: bool = False


@runtime_checkable
class Scoring(Protocol):
    """A teacher that tells its likeliest tokens."""

    capabilities: Capabilities

    async def score(self, questions: Sequence[Question]) -> list[TopK]:
        """
        One answer a question, in order.

        Raises:
            BackendError: It cannot: too long, other ids came back, fewer logprobs than asked, a
                server that does not answer. What was asked, what was found, what to do.
        """


@runtime_checkable
class Revealing(Protocol):
    """
    A teacher on this machine that gives the states before its output head.

    Attributes:
        head: `weights` (V, C), `bias` (V,) or None, `scale`, `softcap`: logits are
            `cap(scale * (W h + b))`; tensors of whatever the losses compute with.
    """

    head: Any

    async def states(self, data: Sequence[Datum]) -> list[States]:
        """The states (n, C) that each datum's n supervised tokens (`mask`) were drawn from."""


@runtime_checkable
class Answering(Protocol):
    """
    A teacher that is given whole data: it reads them in its own tokens, or asks others in turn.

    It is asked through `answer` alone, for logprobs and for distributions. `capabilities` are what
    it can tell of distributions; None: nothing.
    """

    capabilities: Capabilities | None

    async def answer(self, data: Sequence[Datum], name: str, ask: Ask | None) -> list[Datum]:
        """
        The data, in order, with what it was asked for.

        That is the annotation `name` (as of `Teacher.logprobs`) where `ask` is None, and
        `distributions[name]` else. It may add annotations of its own ("align/group").
        """


@runtime_checkable
class Distilling(Protocol):
    """
    A loss that compares whole distributions.

    `distributions` are what it asks by the name of the teacher's annotation ("teacher"), in
    `Datum.distributions`; rows are a datum's supervised tokens in order. An ask with k = 0 gets
    `States` where the teacher has them, a whole `TopK` else.
    """

    distributions: Mapping[str, Ask]

    def meet(self, teachers: Mapping[str, Teacher]) -> None:
        """
        Called once, when all teachers are open.

        Raises:
            ConfigError: One cannot give what the loss needs.
        """


@runtime_checkable
class Weighing(Protocol):
    """A loss that says what each token counts once it sees all data of an update."""

    def weighed(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data of one update, in order, with annotations for itself.

        Their weights sum to 1 (`train.aggregation=fixed`: at most 1). Called before the update is
        split over micro-batches, which then add up exactly.
        """
