"""A teacher behind a server: a frozen model that scores what a student wrote."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import structlog

from rlvr import (
    BackendError,
    BuildContext,
    Datum,
    FloatArray,
    Question,
    Teacher,
    TeacherCapabilities,
    Tokenizer,
    TopK,
    all_of,
    extent,
    fingerprint,
)
from rlvr_servers.client.endpoint import RequestError
from rlvr_servers.config import ServersConfig
from rlvr_servers.protocols.choose import build_protocol
from rlvr_servers.protocols.probe import probe
from rlvr_servers.protocols.protocol import OtherIdsError, Scored, ServerProtocol
from rlvr_servers.protocols.top_k import check_actual, top_k

T = TypeVar("T")

log = structlog.get_logger(__name__)


class ServerTeacher(Teacher):
    """
    The teacher of `vllm:URL`, `sglang:URL` and `server:URL`.

    Each sequence is one request, `servers.concurrency` of them at a time; one that fails for good
    ends the others. Nothing is taken for granted: what the server can do is probed when the
    teacher is opened (`rlvr_servers.protocols.probe`), and the ids of every answer are compared.

    Attributes:
        name: The model spec.
        tokenizer: Read on this machine.
        context_length: Tokens that it scores: one less than the server holds, which draws one.
        capabilities: What the probe found.
    """

    def __init__(self, config: ServersConfig | None, context: BuildContext) -> None:
        self.name = context.model
        self._config = config or ServersConfig()
        self._protocol: ServerProtocol
        self.tokenizer: Tokenizer
        self.context_length = 0
        self.capabilities = TeacherCapabilities(has_scores=True)
        self._has_lost = False

    async def __aenter__(self) -> ServerTeacher:
        """
        Find the server, its model and its tokenizer, and probe what it can do.

        Raises:
            PrerequisiteError: It cannot be reached, wants a key, or its tokenizer is not here.
            ConfigError: No such model, or its ids are not the tokenizer's.
            BackendError: It cannot score prompts.
        """
        self._protocol, self.tokenizer, served = await build_protocol(self.name, self._config)
        if not served.context_length:
            log.warning("context_unknown", teacher=self.name, why="the server does not say")
        self.context_length = (served.context_length or 1 << 20) - 1
        found = await probe(
            self._protocol,
            self.tokenizer,
            length=self.context_length,
            most=self._config.probe_k,
            name=self.name,
        )
        self.capabilities = TeacherCapabilities(
            has_scores=True,
            max_k=found.max_k,
            temperatures=None if found.honours_temperature else (1.0,),
            tokenizer=fingerprint(self.tokenizer),
            is_partial=True,  # ids that only pad its matrix; `top_k` refuses what is really missing
        )
        log.info(
            "teacher_probed",
            teacher=self.name,
            max_k=found.max_k or "all",
            temperatures="any" if found.honours_temperature else "1 only",
            context=self.context_length,
            ids="compared" if found.are_ids_checked else "compared sequence by sequence",
            weights=served.version or "version not told",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing stays open between requests."""

    async def score(self, questions: Sequence[Question]) -> list[TopK]:
        """
        The k likeliest tokens and the actual one at each position asked for, in order.

        Raises:
            BackendError: Too long, too large a k, a temperature that it does not score at; other
                ids, fewer logprobs or NaN came back; or it does not answer.
        """
        for question in questions:
            self._check(len(question.ids), question.k, question.temperature)
        return await self._all([self._answer(question) for question in questions])

    async def _answer(self, question: Question) -> TopK:
        """One answer as arrays, as soon as it is there: as objects it is many times larger."""
        scored = await self._ask(question.ids, question.start, question.k, question.temperature)
        if scored.lost and not self._has_lost:
            self._has_lost = True
            every = sum(map(len, scored.rows)) + scored.lost
            log.warning(
                "likely_tokens_lost",
                teacher=self.name,
                share=round(scored.lost / every, 4),
                why="several tokens are written alike; they count as the rest",
            )
        count = max(len(question.ids) - question.start, 0)
        return top_k(scored, question.k, count, self.tokenizer.vocab_size, self.name)

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Natural logs (T,) of the policy's tokens at the datum's temperature; 0 elsewhere.

        Raises:
            BackendError: As `score` does.
        """
        for datum in data:
            self._check(max(extent(datum), 1), 0, datum.temperature)
        return await self._all([self._logprobs(datum) for datum in data])

    async def _logprobs(self, datum: Datum) -> FloatArray:
        values = np.zeros(len(datum.tokens), np.float32)
        end = extent(datum)
        start = max(int(datum.mask.argmax()), 1) if end else 1  # the first token has no logprob
        scored = await self._ask(datum.tokens[:end], start, 0, datum.temperature)
        values[start:end] = check_actual(scored.actual, max(end - start, 0), self.name)
        return np.where(datum.mask, np.minimum(values, 0.0), np.float32(0))

    def _check(self, length: int, k: int, temperature: float) -> None:
        asked = f"teacher {self.name} was asked to score {length} tokens"
        most, temperatures = self.capabilities.max_k, self.capabilities.temperatures
        if length > self.context_length:
            raise BackendError(
                f"{asked}.",
                f"found: it reads {self.context_length}",
                "lower sampler.max_tokens, or serve the model with a longer context",
            )
        if most and k > most:
            raise BackendError(
                f"{asked}, the {k} likeliest a position.",
                f"found: the server gives {most} at most",
                f"ask for fewer (distill.top_k={most}), or allow more on the server "
                "(vllm serve --max-logprobs K)",
            )
        if temperatures is not None and temperature not in temperatures:
            raise BackendError(
                f"{asked} at temperature {temperature:g}.",
                "found: its logprobs of a prompt are those of temperature 1, and cannot be "
                "had at another from a few likely tokens",
                "set the temperature to 1, or serve it with vllm serve --logprobs-mode "
                "processed_logprobs",
            )

    async def _ask(self, ids: Any, start: int, k: int, temperature: float) -> Scored:
        ids = [int(token) for token in ids]
        if len(ids) <= start:
            return Scored(rows=[], actual=[])
        try:
            return await self._protocol.score(ids, start, k, temperature)
        except RequestError as error:
            found, do = (
                f"found: {error}",
                (
                    "look at the log of the server; the run goes on from its last checkpoint with "
                    "--resume when the server answers again"
                ),
            )
            if isinstance(error, OtherIdsError):
                found, do = (
                    f"found: it scored other ids: {error}",
                    (
                        "give the server's own tokenizer (servers.tokenizer=PATH), and look for "
                        "truncation in its settings"
                    ),
                )
            asked = f"teacher {self.name} was asked for the logprobs of {len(ids)} tokens."
            raise BackendError(asked, found, do) from error

    async def _all(self, work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """All of them at once; the first error ends the others."""
        begun, repeated = time.monotonic(), self._protocol.endpoint.repeated
        try:
            return await all_of(work)
        finally:
            log.debug(
                "teacher_asked",
                requests=len(work),
                seconds=round(time.monotonic() - begun, 3),
                repeated=self._protocol.endpoint.repeated - repeated,
            )
