"""A policy whose tokens a server draws."""

from __future__ import annotations

import attrs
import numpy as np

from rlvr import (
    BackendError,
    Completion,
    GenerateRequest,
    ImageProcessor,
    Policy,
    Tokenizer,
    UnknownNameError,
    cut,
)
from rlvr_servers.client.endpoint import RequestError
from rlvr_servers.protocols.protocol import AmbiguousError, Drawn, LacksError, ServerProtocol

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
            drawn = await self._protocol.draw(
                request.prompt.tolist(), params, request.seed, self.tokenizer.ends
            )
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
        found = cut(
            drawn.tokens,
            ends=self.tokenizer.ends,
            stops=params.stop,
            bytes_of=self.tokenizer.bytes_of,
        )
        return Completion(
            tokens=drawn.tokens[: found.count],
            logprobs=np.minimum(np.asarray(drawn.logprobs[: found.count], np.float32), 0.0),
            text=found.text,
            finish="stop" if found.is_stopped or drawn.is_stopped else "length",
        )

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
