"""A policy that gives texts for messages: no tokens, no logprobs, no weights."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn

from attrs import field, frozen

from rlvr import (
    BackendError,
    Finish,
    GenerateRequest,
    Message,
    Policy,
    SamplingParams,
    parse_variables,
)
from rlvr_servers.client.endpoint import (
    BrokenError,
    Endpoint,
    MissingError,
    RefusedError,
    RequestError,
)
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


@frozen(kw_only=True)
class ServerPolicy(Policy):
    """What the sampler `chat` asks. `digest` is the model's name: its weights are the server's."""

    endpoint: Endpoint
    config: ServerConfig
    version: int = 0
    digest: str = field(init=False)

    @digest.default
    def _name(self) -> str:
        return self.endpoint.model

    async def generate(self, request: GenerateRequest) -> NoReturn:
        """Refused: only the sampler `chat` asks it."""
        raise BackendError(f"the server's model {self.digest} gives texts, no tokens")

    async def complete(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> ChatAnswer:
        """
        The model's next message in a chat.

        Raises:
            RequestError: No answer, after all repetitions; or the server refuses this request.
            PrerequisiteError: The server wants a (another) key.
            UnknownNameError: The server has no such model.
        """
        body = self._body(messages, params, seed)
        try:
            return await self.endpoint.ask("/v1/chat/completions", body, self._read)
        except MissingError as error:
            raise self.endpoint.unknown_model(str(error)) from error
        except RefusedError as error:
            if _OVERFLOW.search(str(error)):
                raise RequestError(
                    f"the prompt and sampler.max_tokens={params.max_tokens} do not fit the "
                    f"model's context: {error} (lower sampler.max_tokens, or serve the model with "
                    "a longer context)"
                ) from error
            raise RequestError(
                f"the server refused the request: {error} (server.leave_out=FIELD leaves out a "
                "field that it does not know)"
            ) from error

    def _body(
        self, messages: Sequence[Message], params: SamplingParams, seed: int
    ) -> dict[str, Any]:
        config = self.config
        body: dict[str, Any] = {
            "model": self.endpoint.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            config.token_field: params.max_tokens,
            "temperature": params.temperature,
            "seed": seed % (1 << 31),
        }
        if params.top_p < 1.0:
            body["top_p"] = params.top_p
        if params.top_k:
            body["top_k"] = params.top_k
        if params.stop:
            body["stop"] = list(params.stop)
        if config.template:
            body["chat_template_kwargs"] = parse_variables(config.template, "server.template")
        return {k: v for k, v in body.items() if k not in config.leave_out}

    def _read(self, body: Any) -> ChatAnswer:
        try:
            choice = body["choices"][0]
            content = choice["message"].get("content")
            if isinstance(content, list):
                content = "".join(part.get("text", "") for part in content)
            if content is not None and not isinstance(content, str):
                raise TypeError("content is no text")
            reason = str(choice.get("finish_reason") or "stop")
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            said = "no JSON" if body is None else " ".join(str(body).split())[:300]
            raise BrokenError(f"the answer is no chat completion: {said}") from error
        return ChatAnswer(
            text=content or "",
            finish="length" if reason in ("length", "max_tokens") else "stop",
            model=str(body.get("model") or self.endpoint.model),
            reason=reason,
        )
