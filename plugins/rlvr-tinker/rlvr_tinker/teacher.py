"""A teacher on the service: a frozen model that scores what a student wrote."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlvr import (
    BackendError,
    BuildContext,
    Datum,
    FloatArray,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    Tokenizer,
    TopK,
    extent,
    fingerprint,
)
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.config import TinkerConfig
from rlvr_tinker.service.usage import Usage
from rlvr_tinker.training.datum import PADDED, TEMPERATURES


class TinkerTeacher(Teacher):
    """
    The teacher of `tinker:NAME`, or of weights saved for sampling.

    Several sequences are scored at the same time; the service gives logprobs at temperature 1.

    Attributes:
        name: The model spec.
        tokenizer: The model's.
        context_length: Longest sequence that it scores.
        capabilities: Temperature 1; how many likeliest tokens the service gives, it does not say.
    """

    def __init__(self, config: TinkerConfig | None, context: BuildContext) -> None:
        self.name = context.model
        # outside a run the backend trains nothing: it opens a sampling client
        alone = evolve(context, run_dir=None)
        usage = Usage(role="teacher", run_dir=context.run_dir)
        self._backend = TinkerBackend(config, alone, usage=usage)
        self.tokenizer: Tokenizer
        self.context_length = 0
        self.capabilities = TeacherCapabilities(has_scores=True, temperatures=TEMPERATURES)

    async def __aenter__(self) -> TinkerTeacher:
        """Find the service and the model; raises as `TinkerBackend` does."""
        await self._backend.__aenter__()
        policy = await self._backend.policy()
        self.tokenizer, self.context_length = policy.tokenizer, policy.context_length
        self.capabilities = evolve(self.capabilities, tokenizer=fingerprint(policy.tokenizer))
        return self

    async def __aexit__(self, *error: object) -> None:
        """End the session."""
        await self._backend.__aexit__(None)

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Natural logs (T,) of the policy's tokens; 0 elsewhere.

        Raises:
            BackendError: The data cannot be sent, or the service failed.
        """
        for datum in data:
            if extent(datum) > self.context_length:
                raise BackendError(
                    f"problem {datum.problem_id!r} has {extent(datum)} tokens, the teacher "
                    f"{self.name} takes {self.context_length}\n  try: a smaller sampler.max_tokens"
                )
        return await self._backend.logprobs(data, "reference")

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The likeliest tokens at the positions of each question, in descending order.

        Raises:
            BackendError: A question cannot be sent, or the service failed or gives no such thing.
        """
        size = self.tokenizer.vocab_size
        for number, question in enumerate(questions):
            if reason := self._fault(question, size):
                raise BackendError(
                    f"teacher {self.name}: question {number} of {len(questions)} was not sent.",
                    f"found: {reason}",
                )
        return await self._backend.likeliest(questions)

    def _fault(self, question: TeacherRequest, size: int) -> str:
        ids, length = question.ids, len(question.ids)
        if question.temperature not in TEMPERATURES:
            return f"temperature {question.temperature:g}; the service scores at 1 only"
        if not (1 <= question.start < length and question.k >= 1):
            return f"{length} tokens, from position {question.start} on, k={question.k}"
        if length > self.context_length:
            return f"{length} tokens; the teacher takes {self.context_length}"
        if ids.min() < 0 or ids.max() >= size + PADDED:
            return f"token ids {ids.min()}..{ids.max()}, the vocabulary is 0..{size - 1}"
        return ""
