"""Asks a server for chat completions: bounded, patient with what passes, clear about what stays."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

import structlog
from attrs import define, field, frozen

from rlvr.errors import PrerequisiteError, RlvrError, UnknownNameError, explain
from rlvr.types import Finish, Message, SamplingParams
from rlvr_servers.address import CHAT, Address
from rlvr_servers.config import ServerConfig
from rlvr_servers.exchange import Reply, UnreachableError, exchange

KEY = "RLVR_SERVER_KEY"
PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
LONGEST_PAUSE_S = 60.0
_OVERFLOW = re.compile(
    r"context[ _](length|size|window)|maximum context|exceed\w* .{0,40}(token|context)|too long",
    re.IGNORECASE,
)

log = structlog.get_logger(__name__)


class RequestError(RlvrError, RuntimeError):
    """One request got no answer; says nothing about the others."""


class _PassingError(Exception):
    """Worth another try. `pause_s` is how long the server asks to wait."""

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


@frozen(kw_only=True)
class ChatAnswer:
    """One completion. `model` is what the server calls itself, `reason` its finish reason."""

    text: str
    finish: Finish
    model: str
    reason: str


@define
class ChatClient:
    """
    The chats of one model.

    Attributes:
        served: Names that the server lists; empty where it lists none.
    """

    address: Address
    model: str
    config: ServerConfig
    key: str = field(default="", repr=False)
    served: tuple[str, ...] = ()
    _slots: asyncio.Semaphore = field(init=False)
    _failed_in_a_row: int = field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        self._slots = asyncio.Semaphore(self.config.concurrency)

    async def chat(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> ChatAnswer:
        """
        The model's next message.

        Raises:
            RequestError: No answer, after all repetitions; or the server refuses this request.
            PrerequisiteError: The server wants a (another) key.
            UnknownNameError: The server has no such model.
        """
        body = self._body(messages, params, seed)
        async with self._slots:
            # a server that has gone away is not waited for a thousand times
            is_gone = self._failed_in_a_row >= 3 * self.config.concurrency
            tries = 1 if is_gone else 1 + self.config.retries
            for number in range(1, tries + 1):
                try:
                    answer = await self._once(body, params)
                except _PassingError as error:
                    if number == tries:
                        self._failed_in_a_row += 1
                        raise RequestError(f"{error} ({number} tries)") from error
                    log.debug("request_repeated", reason=str(error), number=number)
                    await asyncio.sleep(self._pause_s(number, error.pause_s))
                else:
                    self._failed_in_a_row = 0
                    return answer
        raise AssertionError("unreachable: the last try returns or raises")

    def _pause_s(self, number: int, asked_s: float) -> float:
        doubled = self.config.backoff_s * 2 ** (number - 1) * random.uniform(0.75, 1.25)
        return min(max(doubled, asked_s), LONGEST_PAUSE_S)

    def _body(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            self.config.token_field: params.max_tokens,
            "temperature": params.temperature,
            "seed": seed % (1 << 31),
        }
        if params.top_p < 1.0:
            body["top_p"] = params.top_p
        if params.top_k:
            body["top_k"] = params.top_k
        if params.stop:
            body["stop"] = list(params.stop)
        return {k: v for k, v in body.items() if k not in self.config.leave_out}

    async def _once(self, body: Mapping[str, Any], params: SamplingParams) -> ChatAnswer:
        try:
            reply = await exchange(
                self.address.url(CHAT),
                key=self.key,
                body=body,
                timeout_s=self.config.timeout_s,
                is_local=self.address.is_local,
            )
        except UnreachableError as error:
            raise _PassingError(f"the server did not answer: {error}") from error
        if reply.status in PASSING:
            raise _PassingError(f"HTTP {reply.status}: {reply.message}", reply.retry_after_s)
        if reply.status != 200:
            raise self._refusal(reply, params)
        return _answer(reply, self.model)

    def _refusal(self, reply: Reply, params: SamplingParams) -> RlvrError:
        if reply.status in (401, 403):
            return key_error(self.address, reply, has_key=bool(self.key))
        if reply.status in (404, 405):
            return unknown_model(self.address, self.model, self.served, reply.message)
        if _OVERFLOW.search(reply.message):
            return RequestError(
                f"the prompt and sampler.max_tokens={params.max_tokens} do not fit the model's "
                f"context: {reply.message} (lower sampler.max_tokens, or serve the model with a "
                "longer context)"
            )
        return RequestError(
            f"the server refused the request: HTTP {reply.status}: {reply.message} "
            "(server.leave_out=FIELD leaves out a field that it does not know)"
        )


def key_error(address: Address, reply: Reply, *, has_key: bool) -> PrerequisiteError:
    """The error for a server that wants a key, or another one."""
    found = f"HTTP {reply.status}: {reply.message}"
    do = f"{KEY} holds a key that it does not take" if has_key else f"export {KEY}=..."
    return PrerequisiteError(
        explain(f"the server at {address.base} wants a key.", f"found: {found}", do)
    )


def unknown_model(
    address: Address, model: str, served: Sequence[str], found: str
) -> UnknownNameError:
    """The error for a model that the server does not have, or for a wrong path."""
    names = ", ".join(served[:20]) or "it lists none"
    return UnknownNameError(
        explain(
            f"model '{model}' of the server at {address.base} was asked for.",
            f"found: {found}; it serves: {names}",
            f"name one of them: --model server:{address.base}#NAME, or check the URL's path",
        )
    )


def _answer(reply: Reply, model: str) -> ChatAnswer:
    body = reply.json()
    try:
        choice = body["choices"][0]
        content = choice["message"].get("content")
        if isinstance(content, list):
            content = "".join(part.get("text", "") for part in content)
        if content is not None and not isinstance(content, str):
            raise TypeError("content is no text")
        reason = str(choice.get("finish_reason") or "stop")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise _PassingError(f"the answer is no chat completion: {reply.message}") from error
    return ChatAnswer(
        text=content or "",
        finish="length" if reason in ("length", "max_tokens") else "stop",
        model=str(body.get("model") or model),
        reason=reason,
    )
