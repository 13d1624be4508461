"""Policies whose tokens a server draws: its own weights, or those that training gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import attrs
import numpy as np
import structlog

from rlvr import (
    BackendError,
    Completion,
    Datum,
    FloatArray,
    GenerateRequest,
    ImageProcessor,
    Policy,
    TeacherRequest,
    Tokenizer,
    UnknownNameError,
    cut_completion,
    seed_of,
)
from rlvr_servers.client.endpoint import MissingError, RefusedError, RequestError
from rlvr_servers.protocols.protocol import AmbiguousError, Drawn, LacksError, ServerProtocol

log = structlog.get_logger(__name__)

PADDED = 1024
"""Ids that a model may have, and draw, beyond those of its tokenizer: rows that pad its matrix."""


class ServedPolicy(Policy):
    """
    The `rlvr.parts.Policy` of a server's model: ids go out, ids and logprobs come back.

    Attributes:
        version: Optimiser updates the weights have seen; 0 where nobody trains them.
        digest: sha256 of the weights, where they are ours; else what the server calls them, which
            does not tell one set of weights from another.
        tokenizer: Read on this machine.
        context_length: Tokens of prompt and completion together.
    """

    draws_on_server = True

    def __init__(
        self,
        protocol: ServerProtocol,
        tokenizer: Tokenizer,
        *,
        context_length: int,
        digest: str = "",
        image_processor: ImageProcessor | None = None,
    ) -> None:
        self.version, self.digest = 0, digest
        self.tokenizer, self.context_length = tokenizer, context_length
        self.image_processor = image_processor
        self._protocol = protocol
        self._label = ""  # weight version that every answer must name, where the server names one

    async def generate(self, request: GenerateRequest) -> Completion:
        """
        One completion; of those that are asked for, `servers.concurrency` are under way at a time.

        Where a server writes texts, one with a token that could be several ids has finish "error":
        it is lost, and no other.

        Raises:
            BackendError: The prompt is empty, the server does not answer, or it gives tokens
                without ids or logprobs.
        """
        if not len(request.prompt):
            raise BackendError("cannot generate from an empty prompt: it needs a token")
        room = min(request.params.max_tokens, self.context_length - len(request.prompt))
        if room < 1:
            return Completion(tokens=[], logprobs=[], text="", finish="length")
        params = attrs.evolve(request.params, max_tokens=room)
        try:
            asked = attrs.evolve(request, params=params)
            drawn = await self._protocol.draw(asked, self.tokenizer.ends)
        except UnknownNameError as error:
            if not self._protocol.adapter:
                raise
            raise self._failed(
                f"{error}; it had this run's adapter, and has lost it",
                "it was restarted: the run goes on from its last checkpoint with --resume",
            ) from error
        except AmbiguousError as error:
            return Completion(tokens=[], logprobs=[], text="", finish="error", error=str(error))
        except LacksError as error:
            raise self._failed(error, "ask for a chat instead: --model server:URL#NAME") from error
        except RequestError as error:
            raise self._failed(
                error,
                "look at the log of the server; a run goes on from its last checkpoint with "
                "--resume when the server answers again",
            ) from error
        self._check(drawn)
        return cut_completion(
            drawn.tokens,
            drawn.logprobs,
            tokenizer=self.tokenizer,
            stops=params.stop,
            is_stopped=drawn.is_stopped,
        )

    async def score(self, data: Sequence[Datum]) -> list[FloatArray] | None:
        """
        What the server gives to the tokens, at temperature 1; None where it scores no prompts.

        One sequence at a time, so that equal weights give equal bits.

        Raises:
            BackendError: The server does not answer.
        """
        found: list[FloatArray] = []
        for datum in data:
            start = int(datum.mask.argmax())
            try:
                told = await self._protocol.score(
                    TeacherRequest(ids=datum.tokens, start=start, k=0)
                )
            except (LacksError, RefusedError, MissingError) as error:
                log.warning("syncs_unchecked", why=str(error)[:200])
                return None
            except RequestError as error:
                raise self._failed(error, "look at the log of the server") from error
            numbers = np.zeros(len(datum.tokens), np.float32)
            numbers[start:] = told.actual
            found.append(np.where(datum.mask, numbers, np.float32(0)))
        return found

    def _check(self, drawn: Drawn) -> None:
        size = self.tokenizer.vocab_size
        problem = ""
        if len(drawn.tokens) != len(drawn.logprobs):
            problem = f"{len(drawn.tokens)} tokens with {len(drawn.logprobs)} logprobs"
        elif np.isnan(np.asarray(drawn.logprobs, np.float32)).any():
            problem = "a logprob that is NaN"
        elif self._label and drawn.version and drawn.version != self._label:
            problem = f"tokens of the weights {drawn.version!r}, {self._label!r} were asked"
        elif drawn.tokens and not 0 <= min(drawn.tokens) <= max(drawn.tokens) < size + PADDED:
            problem = f"token ids up to {max(drawn.tokens)}, the tokenizer has {size}"
        if problem:
            raise self._failed(problem, "look at the log of the server")

    def _failed(self, found: object, do: str) -> BackendError:
        endpoint = self._protocol.endpoint
        return BackendError(
            f"a completion of {endpoint.model} was asked of the server at {endpoint.address.base}.",
            f"found: {found}",
            do,
        )


class FedPolicy(ServedPolicy):
    """
    Draws with the newest weights that the server was given; each completion names their version.

    Requests wait while weights change, and weights change when no request is under way: no
    request is drawn by two versions. A rollout's later turns may be drawn by a newer one, and with
    `slice_tokens` the later tokens of a completion, too: each slice of it is a request of its own.
    """

    def __init__(
        self,
        protocol: ServerProtocol,
        policy: Policy,
        *,
        context_length: int,
        slice_tokens: int = 0,
    ) -> None:
        """`policy` gives the tokenizer; `stand_for` says whose weights the server has."""
        super().__init__(
            protocol,
            policy.tokenizer,
            context_length=context_length,
            image_processor=policy.image_processor,
        )
        self._gate, self._under_way = asyncio.Lock(), 0
        self._idle = asyncio.Event()
        self._slice = slice_tokens

    async def generate(self, request: GenerateRequest) -> Completion:
        """As `ServedPolicy.generate`; what is drawn so far is read again with each slice."""
        if not self._slice:
            return await self._drawn(request)
        tokens, logprobs, versions = list[int](), list[float](), dict[int, None]()
        prompt, params = request.prompt.tolist(), request.params
        while True:
            left = params.max_tokens - len(tokens)
            part = attrs.evolve(
                request,
                prompt=[*prompt, *tokens],
                params=attrs.evolve(params, max_tokens=min(self._slice, left)),
                seed=seed_of(request.seed, len(tokens)) if tokens else request.seed,
            )
            drawn = await self._drawn(part)
            tokens += drawn.tokens.tolist()
            logprobs += drawn.logprobs.tolist()
            versions |= dict.fromkeys(drawn.versions)
            if drawn.finish == "error":
                return drawn
            whole = cut_completion(
                tokens,
                logprobs,
                tokenizer=self.tokenizer,
                stops=params.stop,
                is_stopped=drawn.finish == "stop",
            )
            is_full = len(drawn.tokens) in (0, left) or len(drawn.tokens) < part.params.max_tokens
            if whole.finish == "stop" or is_full:
                return attrs.evolve(whole, versions=tuple(versions))

    async def _drawn(self, request: GenerateRequest) -> Completion:
        """The completion of one request, by one version."""
        async with self._gate:  # first come, first served: weights that wait hold up those behind
            self._under_way += 1
        try:
            return attrs.evolve(await super().generate(request), versions=(self.version,))
        finally:
            self._under_way -= 1
            self._idle.set()

    @asynccontextmanager
    async def resting(self) -> AsyncIterator[None]:
        """No request is under way within; those that come wait."""
        async with self._gate:
            while self._under_way:
                self._idle.clear()
                await self._idle.wait()
            yield

    def stand_for(self, policy: Policy, label: str) -> None:
        """The server has these weights now; `label`: the version that its answers name."""
        self.version, self.digest, self._label = policy.version, policy.digest, label
