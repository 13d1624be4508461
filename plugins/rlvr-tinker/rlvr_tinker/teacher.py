"""A teacher on the service: a frozen model that scores what a student wrote."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import evolve

from rlvr.errors import BackendError
from rlvr.parts import BuildContext, Tokenizer
from rlvr.types import Datum, FloatArray
from rlvr_tinker.backend import TinkerBackend
from rlvr_tinker.checks import extent
from rlvr_tinker.config import TinkerConfig


class TinkerTeacher:
    """
    The `rlvr.parts.Teacher` of `tinker:NAME`, or of weights saved for sampling.

    Several sequences are scored at the same time; the service gives logprobs at temperature 1.

    Attributes:
        name: The model spec.
        tokenizer: The model's.
        context_length: Longest sequence that it scores.
    """

    def __init__(self, config: TinkerConfig | None, context: BuildContext) -> None:
        self.name = context.model
        # outside a run the backend trains nothing: it opens a sampling client
        self._backend = TinkerBackend(config, evolve(context, run_dir=None))
        self.tokenizer: Tokenizer
        self.context_length = 0

    async def __aenter__(self) -> TinkerTeacher:
        """Find the service and the model; raises as `TinkerBackend` does."""
        await self._backend.__aenter__()
        policy = await self._backend.policy()
        self.tokenizer, self.context_length = policy.tokenizer, policy.context_length
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
