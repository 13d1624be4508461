"""The sampler `chat`: trajectories of messages and texts, for policies without tokens."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import structlog

from rlvr import (
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


class ChatSampler(Sampler):
    """
    Draws `params.group_size` trajectories a problem, each a chat of its own.

    Every turn sends the whole history. Segments hold texts and no tokens. The model's name and
    its finish reasons stand in `Trajectory.notes["server"]`, the name also in `policy_digest`. A
    rollout whose request or episode fails ends with finish "error"; the others go on.
    """

    draws_from_policy = True

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
        episodes = [task.episode(problem) for _ in range(params.group_size)]
        chats = (_chat(e, i, policy, problem, params) for i, e in enumerate(episodes))
        async with aclosing(as_they_end(chats)) as ended:
            async for trajectory in ended:
                yield trajectory


async def _chat(
    episode: Episode, index: int, policy: ServerPolicy, problem: Problem, params: SamplingParams
) -> Trajectory:
    """One trajectory, sampled to its end."""
    seed = seed_of(params.seed, problem.id, index)
    finish: Finish = "stop"
    failure = ""
    messages: list[Message] = []
    segments: list[Segment] = []
    answers: list[ChatAnswer] = []
    result = EpisodeResult()
    try:
        while (asked := episode.prompt()) is not None:
            author: Any = "env" if segments else "prompt"
            text = "\n".join(message.content for message in asked)
            messages += asked
            segments.append(Segment(author=author, tokens=[], text=text))
            own_params = with_stop_texts(params, episode)
            answer = await policy.complete(messages, own_params, seed_of(seed, len(messages)))
            messages.append(Message(role="assistant", content=answer.text))
            segments.append(Segment(author="policy", tokens=[], logprobs=[], text=answer.text))
            answers.append(answer)
            finish = answer.finish
            await episode.take(answer.text)
        result = episode.result()
    except (ConfigError, PrerequisiteError):  # it concerns every rollout
        raise
    except Exception as error:  # the plugin border: one rollout must not sink the rest
        log.warning("rollout_failed", problem=problem.id, error=str(error))
        finish, failure = "error", str(error) or repr(error)
    told = {
        "model": answers[0].model if answers else policy.digest,
        "finish_reasons": [answer.reason for answer in answers],
    }
    return Trajectory(
        problem_id=problem.id,
        segments=segments,
        finish=finish,
        seed=seed,
        index=index,
        temperature=params.temperature,
        policy_version=policy.version,
        policy_digest=policy.digest,
        error=failure,
        files=result.files,
        notes={**result.notes, "server": told},
    )
