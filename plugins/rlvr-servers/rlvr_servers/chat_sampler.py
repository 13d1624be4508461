"""The sampler `chat`: trajectories of messages and texts, for policies without tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import structlog
from attrs import define, field

from rlvr import (
    BuildContext,
    ConfigError,
    Episode,
    EpisodeResult,
    Finish,
    Message,
    PrerequisiteError,
    Problem,
    Sampler,
    SamplingParams,
    Segment,
    Task,
    Trajectory,
    as_they_end,
    seed_of,
    with_stop_texts,
)
from rlvr_servers.policy import ChatAnswer, ServerPolicy

log = structlog.get_logger(__name__)


@define
class _Chat:
    """One trajectory being sampled."""

    problem: Problem
    episode: Episode
    seed: int
    index: int
    messages: list[Message] = field(factory=list)
    segments: list[Segment] = field(factory=list)
    answers: list[ChatAnswer] = field(factory=list)
    finish: Finish = "stop"
    error: str = ""
    result: EpisodeResult = field(factory=EpisodeResult)

    def ask(self, messages: Sequence[Message]) -> None:
        author: Any = "env" if self.segments else "prompt"
        text = "\n".join(m.content for m in messages)
        self.messages += messages
        self.segments.append(Segment(author=author, tokens=[], text=text))

    def accept(self, answer: ChatAnswer) -> None:
        self.messages.append(Message(role="assistant", content=answer.text))
        self.segments.append(Segment(author="policy", tokens=[], logprobs=[], text=answer.text))
        self.answers.append(answer)
        self.finish = answer.finish


class ChatSampler(Sampler):
    """
    Draws `params.group_size` trajectories a problem, each a chat of its own.

    Every turn sends the whole history. Segments hold texts and no tokens. The model's name and
    its finish reasons stand in `Trajectory.notes["server"]`, the name also in `policy_digest`. A
    rollout whose request or episode fails ends with finish "error"; the others go on.
    """

    draws_from_policy = True

    def __init__(self, config: None, context: BuildContext) -> None:
        del config, context

    async def sample(
        self, policy: Any, task: Task, problem: Problem, params: SamplingParams
    ) -> AsyncGenerator[Trajectory]:
        """
        Each trajectory as its chat ends.

        Raises:
            ConfigError: The policy is no server's.
            PrerequisiteError: What fails for one request fails for all: the key, the sandbox.
        """
        if not isinstance(policy, ServerPolicy):
            raise ConfigError(
                "sampler chat was asked for.",
                f"found: a policy that gives tokens ({type(policy).__name__}), no server",
                "leave --sampler out",
            )
        chats = [
            _Chat(
                problem=problem,
                episode=task.episode(problem),
                seed=seed_of(params.seed, problem.id, index),
                index=index,
            )
            for index in range(params.group_size)
        ]
        async with aclosing(
            as_they_end(_converse(chat, policy, params) for chat in chats)
        ) as ended:
            async for trajectory in ended:
                yield trajectory


async def _converse(chat: _Chat, policy: ServerPolicy, params: SamplingParams) -> Trajectory:
    try:
        while (messages := chat.episode.prompt()) is not None:
            chat.ask(messages)
            seed = seed_of(chat.seed, len(chat.messages))
            asked = with_stop_texts(params, chat.episode)
            chat.accept(await policy.complete(chat.messages, asked, seed))
            await chat.episode.take(chat.answers[-1].text)
        chat.result = chat.episode.result()
    except (ConfigError, PrerequisiteError):  # every rollout's fault
        raise
    except Exception as error:  # the plugin border: one rollout must not sink the rest
        log.warning("rollout_failed", problem=chat.problem.id, error=str(error))
        chat.finish, chat.error = "error", str(error) or repr(error)
    return _trajectory(chat, policy, params)


def _trajectory(chat: _Chat, policy: ServerPolicy, params: SamplingParams) -> Trajectory:
    told = {
        "model": next((a.model for a in chat.answers), policy.digest),
        "finish_reasons": [a.reason for a in chat.answers],
    }
    return Trajectory(
        problem_id=chat.problem.id,
        segments=chat.segments,
        finish=chat.finish,
        seed=chat.seed,
        index=chat.index,
        temperature=params.temperature,
        policy_version=policy.version,
        policy_digest=policy.digest,
        error=chat.error,
        files=chat.result.files,
        notes={**chat.result.notes, "server": told},
    )
