"""A teacher: a frozen model that gives logprobs of the policy's tokens."""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from rlvr.errors import UnsupportedError
from rlvr.parts.base import Part
from rlvr.types import Datum, FloatArray, HiddenStates, Problem, TeacherRequest, TopK

if TYPE_CHECKING:
    from rlvr.parts.tokenizer import Tokenizer
    from rlvr.tokenization.image_processor import ImageProcessor
    from rlvr.types import DistributionRequest


@frozen(kw_only=True)
class TeacherCapabilities:
    """
    Abilities of a teacher besides the logprobs of given tokens.

    Attributes:
        has_scores: Whether it tells its k likeliest tokens: by `Teacher.score`, or by `answer`
            where it `reads_data`.
        max_k: Largest k; 0: up to the whole vocabulary.
        temperatures: It scores at these; None: at any.
        has_states: Whether it gives the states before its output head (`states`, `head`).
        reads_data: Whether it is given whole data, because it reads them in its own tokens or asks
            others in turn: it is then asked through `Teacher.answer` alone.
        tokenizer: What tells its tokenizer apart by content; "" where it cannot say.
        is_partial: Whether a row may hold fewer tokens than were asked for (ids -1), because some
            of what it knows has no token here. Of all others that is refused.
    """

    has_scores: bool = False
    max_k: int = 0
    temperatures: tuple[float, ...] | None = None
    has_states: bool = False
    reads_data: bool = False
    tokenizer: str = ""
    is_partial: bool = False


class Teacher(Part):
    """
    A frozen model that gives logprobs of the policy's tokens.

    Built with `context.model` = its own model spec. Data come in the ids of its own tokenizer: a
    run compares that with the policy's by content, and aligns the two by bytes where they differ.

    Attributes:
        name: In messages and reports.
        tokenizer: Its own.
        context_length: Most tokens of a sequence.
        capabilities: What it can tell besides the logprobs of given tokens.
        head: Where it `has_states`: `weights` (V, C), `bias` (V,) or None, `scale`, `softcap`;
            logits are `cap(scale * (W h + b))`; tensors of whatever the losses compute with.
        image_processor: What makes pixels of pictures; None where it reads text alone.
    """

    kind: ClassVar[str] = "teacher"

    name: str
    tokenizer: Tokenizer
    context_length: int
    capabilities: TeacherCapabilities = TeacherCapabilities()
    head: Any = None
    image_processor: ImageProcessor | None = None

    @abc.abstractmethod
    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Natural logs (T,) of the policy's tokens (`mask`) at the datum's temperature; 0 elsewhere.

        Order kept; all of a datum's tokens, the prompt's too, are what a token is conditioned on.
        Raises `BackendError` for data that it cannot score.
        """

    def check_problems(self, problems: Iterable[Problem]) -> None:
        """
        Called once, before anything is sampled.

        Raises:
            ConfigError: It is not for one of the problems.
        """

    def metrics(self, data: Sequence[Datum]) -> Mapping[str, float]:
        """Metrics by path, of the data of a step with its answers; never asked of an empty step."""
        return {}

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The teacher's most likely tokens at positions, one answer a question, in order.

        Raises:
            BackendError: It cannot: too long, other ids came back, fewer logprobs than asked, a
                server that does not answer. What was asked, what was found, what to do.
        """
        raise UnsupportedError(f"{type(self).__name__} does not tell its likeliest tokens")

    async def states(self, data: Sequence[Datum]) -> list[HiddenStates]:
        """The states (n, C) that each datum's n supervised tokens (`mask`) were drawn from."""
        raise UnsupportedError(f"{type(self).__name__} does not give its hidden states")

    async def answer(
        self, data: Sequence[Datum], name: str, ask: DistributionRequest | None
    ) -> list[Datum]:
        """
        The data, in order, with the answers added (if it `reads_data`).

        That is the annotation `name` (as of `logprobs`) where `ask` is None, and
        `distributions[name]` else. It may add annotations of its own ("align/group").
        """
        raise UnsupportedError(f"{type(self).__name__} is asked by tokens, not by data")
