"""A sampling handle of one version of the weights, on the service."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlvr import (
    BackendError,
    Completion,
    FastTokenizer,
    FloatArray,
    GenerateRequest,
    Policy,
    cut_completion,
)
from rlvr_tinker import scoring
from rlvr_tinker.service.errors import LostError, RefusedError
from rlvr_tinker.service.usage import Usage
from rlvr_tinker.training.datum import PADDED
from rlvr_tinker.training.snapshots import Sampler, Samplers

_SEEDS = 2**31


class TinkerPolicy(Policy):
    """
    Samples from the weights of one version, however far training has gone on.

    Attributes:
        version: Optimiser updates these weights have seen.
        digest: sha256 of what made them.
        tokenizer: The model's tokenizer.
        context_length: Tokens of prompt and completion together.
    """

    def __init__(
        self,
        sampler: Sampler,
        samplers: Samplers,
        *,
        tokenizer: FastTokenizer,
        context_length: int,
        usage: Usage,
    ) -> None:
        """
        `samplers` gives the client of these weights anew where its session is lost.

        `sampler` is kept, and with it the weights on the service.
        """
        self._sampler = sampler
        self.version, self.digest = sampler.version, sampler.digest
        self.tokenizer = tokenizer
        self.context_length = context_length
        self._samplers, self._trainer, self._usage = samplers, samplers.trainer, usage

    async def generate(self, request: GenerateRequest) -> Completion:
        """
        One completion; those that are asked for at the same time are in flight together.

        Raises:
            BackendError: The prompt cannot be sent, the service fails, or these weights are gone.
        """
        if not len(request.prompt):
            raise BackendError("cannot generate from an empty prompt: it needs at least one token")
        self._check_ids(request.prompt)
        room = min(request.params.max_tokens, self.context_length - len(request.prompt))
        if room < 1:
            return Completion(tokens=[], logprobs=[], text="", finish="length")
        tries = 0
        while True:
            tries += 1
            client, epoch = await self._client(), self._trainer.epoch
            self._usage.spend(prefilled=len(request.prompt))
            try:
                answer = await self._trainer.wait(
                    client.sample(*self._asked(request, room)), "a completion was asked for"
                )
            except (LostError, RefusedError) as error:
                # another request may have ended the session for all, and a service may call
                # that a mistake of this request
                is_lost = isinstance(error, LostError) or epoch != self._trainer.epoch
                if not is_lost or tries > self._trainer.config.retries:
                    raise
                await self._trainer.renewed(epoch, self.version, error)
            else:
                return self._completion(request, answer)

    async def choices(self, prompt: Sequence[int], choices: Sequence[Sequence[int]]) -> FloatArray:
        """
        Log probability (nats) of each continuation of a prompt: of legal moves, say.

        Raises:
            BackendError: They cannot be sent, the service fails, or these weights are gone.
        """
        self._check_ids(np.asarray([*prompt, *itertools.chain.from_iterable(choices)], np.int64))
        longest = len(prompt) + max(map(len, choices), default=0)
        if longest > self.context_length:
            raise BackendError(
                f"a prompt with a choice has {longest} tokens, the model takes "
                f"{self.context_length}"
            )
        client = await self._client()
        self._usage.spend(scored=len(prompt) + sum(map(len, choices)))
        return await scoring.of_choices(client, prompt, choices, self._trainer.wait)

    async def _client(self) -> Any:
        self._sampler = await self._samplers.of(self.version)
        return self._sampler.client

    def _asked(self, request: GenerateRequest, room: int) -> tuple[Any, int, Any]:
        from tinker import types

        params, stops = request.params, list(filter(None, request.params.stop))
        # a service takes texts or ids, not both: with texts, end tokens are sent as texts
        ends = sorted(self.tokenizer.ends)
        spelled = [text for text in map(self.tokenizer.decode, ([i] for i in ends)) if text]
        return (
            types.ModelInput.from_ints(request.prompt.tolist()),
            1,
            types.SamplingParams(
                max_tokens=room,
                seed=request.seed % _SEEDS,
                stop=[*stops, *spelled] if stops else ends,
                temperature=params.temperature,
                top_k=params.top_k or -1,
                top_p=params.top_p,
            ),
        )

    def _completion(self, request: GenerateRequest, answer: Any) -> Completion:
        (sequence,) = answer.sequences
        tokens, logprobs = list(sequence.tokens), sequence.logprobs
        self._usage.spend(sampled=len(tokens))
        if logprobs is None or len(logprobs) != len(tokens):
            raise BackendError("the service sampled tokens and gave no logprobs of them")
        return cut_completion(
            tokens,
            logprobs,
            tokenizer=self.tokenizer,
            stops=request.params.stop,
            is_stopped=sequence.stop_reason == "stop",
        )

    def _check_ids(self, ids: np.ndarray) -> None:
        vocab = self.tokenizer.vocab_size
        if len(ids) and (ids.min() < 0 or ids.max() >= vocab + PADDED):
            raise BackendError(
                f"a prompt holds token ids {ids.min()}..{ids.max()}, "
                f"the tokenizer knows 0..{vocab - 1}: was it made by another tokenizer?"
            )
