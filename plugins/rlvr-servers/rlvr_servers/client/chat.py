"""Asks a server for chat completions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from attrs import define, field, frozen

from rlvr import (
    Finish,
    Message,
    RlvrError,
    SamplingParams,
    UnknownNameError,
    parse_variables,
)
from rlvr_servers.client.address import CHAT, Address
from rlvr_servers.client.http import Reply
from rlvr_servers.client.requests import BrokenError, Client, RequestError, key_error
from rlvr_servers.config import ServerConfig

_OVERFLOW = re.compile(
    r"context[ _](length|size|window)|maximum context|exceed\w* .{0,40}(token|context)|too long",
    re.IGNORECASE,
)


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
    _caller: Client = field(init=False)

    def __attrs_post_init__(self) -> None:
        self._caller = Client(
            address=self.address,
            key=self.key,
            concurrency=self.config.concurrency,
            timeout_s=self.config.timeout_s,
            retries=self.config.retries,
            backoff_s=self.config.backoff_s,
        )

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
        return await self._caller.call(
            self.address.url(CHAT),
            self._body(messages, params, seed),
            lambda reply: _answer(reply, self.model),
            lambda reply: self._refusal(reply, params),
        )

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
        if self.config.template:
            variables = parse_variables(self.config.template, "server.template")
            body["chat_template_kwargs"] = variables
        return {k: v for k, v in body.items() if k not in self.config.leave_out}

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


def unknown_model(
    address: Address, model: str, served: Sequence[str], found: str
) -> UnknownNameError:
    """The error for a model that the server does not have, or for a wrong path."""
    names = ", ".join(served[:20]) or "it lists none"
    return UnknownNameError(
        f"model '{model}' of the server at {address.base} was asked for.",
        f"found: {found}; it serves: {names}",
        f"name one of them: --model server:{address.base}#NAME, or check the URL's path",
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
        raise BrokenError(f"the answer is no chat completion: {reply.message}") from error
    return ChatAnswer(
        text=content or "",
        finish="length" if reason in ("length", "max_tokens") else "stop",
        model=str(body.get("model") or model),
        reason=reason,
    )
