"""A policy that gives texts for messages: no tokens, no logprobs, no weights."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import structlog
from attrs import field, frozen

from rlvr import (
    BackendError,
    ConfigError,
    Episode,
    EpisodeResult,
    Finish,
    GenerateRequest,
    Message,
    Policy,
    PrerequisiteError,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
    parse_variables,
    seed_of,
    with_stop_texts,
)
from rlvr_servers.client.endpoint import (
    BrokenError,
    Endpoint,
    MissingError,
    RefusedError,
    RequestError,
)
from rlvr_servers.config import ServerConfig

log = structlog.get_logger(__name__)

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

    makes_rollouts = True

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

    async def rollout(
        self, problem: Problem, episode: Callable[[], Episode], params: SamplingParams, index: int
    ) -> Trajectory:
        """
        One chat: every turn sends the whole history, and segments hold texts and no tokens.

        The model's name and its finish reasons stand in `Trajectory.notes["server"]`, the name
        also in `policy_digest`. A request or an episode that fails ends it with finish "error".

        Raises:
            PrerequisiteError: What fails for one request fails for all: the key, the sandbox.
        """
        chat = episode()
        seed = seed_of(params.seed, problem.id, index)
        finish: Finish = "stop"
        failure = ""
        messages: list[Message] = []
        segments: list[Segment] = []
        answers: list[ChatAnswer] = []
        result = EpisodeResult()
        try:
            while (asked := chat.prompt()) is not None:
                author: Any = "env" if segments else "prompt"
                text = "\n".join(message.content for message in asked)
                messages += asked
                segments.append(Segment(author=author, tokens=[], text=text))
                own_params = with_stop_texts(params, chat)
                answer = await self.complete(messages, own_params, seed_of(seed, len(messages)))
                messages.append(Message(role="assistant", content=answer.text))
                segments.append(Segment(author="policy", tokens=[], logprobs=[], text=answer.text))
                answers.append(answer)
                finish = answer.finish
                await chat.take(answer.text)
            result = chat.result()
        except (ConfigError, PrerequisiteError):  # it concerns every rollout
            raise
        except Exception as error:  # the plugin border: one rollout must not sink the rest
            log.warning("rollout_failed", problem=problem.id, error=str(error))
            finish, failure = "error", str(error) or repr(error)
        told = {
            "model": answers[0].model if answers else self.digest,
            "finish_reasons": [answer.reason for answer in answers],
        }
        return Trajectory(
            problem_id=problem.id,
            segments=segments,
            finish=finish,
            seed=seed,
            index=index,
            temperature=params.temperature,
            policy_version=self.version,
            policy_digest=self.digest,
            error=failure,
            files=result.files,
            notes={**result.notes, "server": told},
        )

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
