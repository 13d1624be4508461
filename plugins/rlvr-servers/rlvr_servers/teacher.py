"""A teacher behind a server: a frozen model that scores what a student wrote."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np
import structlog

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
    all_of,
    extent,
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
        length, most = self.context_length, self._config.probe_k
        self.capabilities, is_checked = await probe(
            self._protocol, self.tokenizer, length=length, most=most, name=self.name
        )
        log.info(
            "teacher_probed",
            teacher=self.name,
            max_k=self.capabilities.max_k or "all",
            temperatures="1 only" if self.capabilities.temperatures else "any",
            context=self.context_length,
            ids="compared" if is_checked else "compared sequence by sequence",
            weights=served.version or "version not told",
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing stays open between requests."""

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The k likeliest tokens and the actual one at each position asked for, in order.

        Raises:
            BackendError: Too long, too large a k, a temperature that it does not score at; other
                ids, fewer logprobs or NaN came back; or it does not answer.
        """
        return await self._asked(questions, self._answer)

    async def _answer(self, question: TeacherRequest) -> TopK:
        """One answer as arrays, as soon as it is there: as objects it is many times larger."""
        scored = await self._ask(question)
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
        questions = [_question(datum) for datum in data]
        found = await self._asked(questions, self._ask)
        answers = []
        for datum, question, scored in zip(data, questions, found, strict=True):
            end = len(question.ids)
            count = max(end - question.start, 0)
            values = np.zeros(len(datum.tokens), np.float32)
            values[end - count : end] = check_actual(scored.actual, count, self.name)
            answers.append(np.where(datum.mask, np.minimum(values, 0.0), np.float32(0)))
        return answers

    async def _asked(
        self,
        questions: Sequence[TeacherRequest],
        ask: Callable[[TeacherRequest], Coroutine[Any, Any, T]],
    ) -> list[T]:
        """All answers, asked for at once; the first error ends the others."""
        for question in questions:
            self._check(question)
        begun, repeated = time.monotonic(), self._protocol.endpoint.repeated
        try:
            return await all_of(map(ask, questions))
        finally:
            log.debug(
                "teacher_asked",
                requests=len(questions),
                seconds=round(time.monotonic() - begun, 3),
                repeated=self._protocol.endpoint.repeated - repeated,
            )

    def _check(self, question: TeacherRequest) -> None:
        able, length, k = self.capabilities, len(question.ids), question.k
        if length > self.context_length:
            found = f"it reads {self.context_length} tokens"
            do = "lower sampler.max_tokens, or serve the model with a longer context"
        elif able.max_k and k > able.max_k:
            found = f"the server gives {able.max_k} at most"
            do = (
                f"ask for fewer (distill.top_k={able.max_k}), or allow more on the server "
                "(vllm serve --max-logprobs K)"
            )
        elif able.temperatures is not None and question.temperature not in able.temperatures:
            found = (
                "its logprobs of a prompt are those of temperature 1, and cannot be had at another "
                "from a few likely tokens"
            )
            do = (
                "set the temperature to 1, or serve it with vllm serve --logprobs-mode "
                "processed_logprobs"
            )
        else:
            return
        raise BackendError(
            f"teacher {self.name} was asked to score {length} tokens at temperature "
            f"{question.temperature:g}, with the {k} likeliest a position.",
            f"found: {found}",
            do,
        )

    async def _ask(self, question: TeacherRequest) -> Scored:
        if len(question.ids) <= question.start:
            return Scored(rows=[], actual=[])
        try:
            return await self._protocol.score(question)
        except RequestError as error:
            found = str(error)
            do = (
                "look at the log of the server; the run goes on from its last checkpoint with "
                "--resume when the server answers again"
            )
            if isinstance(error, OtherIdsError):
                found = f"it scored other ids: {error}"
                do = (
                    "give the server's own tokenizer (servers.tokenizer=PATH), and look for "
                    "truncation in its settings"
                )
            raise BackendError(
                f"teacher {self.name} was asked for the logprobs of {len(question.ids)} tokens.",
                f"found: {found}",
                do,
            ) from error


def _question(datum: Datum) -> TeacherRequest:
    """The question about a datum's own tokens, from the first supervised one on."""
    end = extent(datum)
    start = max(int(datum.mask.argmax()), 1) if end else 1  # the first token has no logprob
    return TeacherRequest(ids=datum.tokens[:end], start=start, k=0, temperature=datum.temperature)
