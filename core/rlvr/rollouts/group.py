"""The group sampler: G rollouts a problem, all of them batched turn by turn."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from attrs import define, evolve, field

from rlvr.border.calls import shown
from rlvr.border.promises import episode_of
from rlvr.errors import ConfigError, PrerequisiteError, explain
from rlvr.log import get
from rlvr.parts import BuildContext, Episode, EpisodeResult, Policy, Sampler, Task
from rlvr.seeds import seed_of
from rlvr.types import (
    Completion,
    Finish,
    GenerateRequest,
    Group,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
)

log = get(__name__)
_T = TypeVar("_T")

LEAST_PROMPT = 2
"""Tokens of a prompt below which nothing can be asked: its first and its last."""


@define
class _Rollout:
    """One trajectory being sampled."""

    problem: Problem
    episode: Episode
    seed: int
    segments: list[Segment] = field(factory=list)
    tokens: list[int] = field(factory=list)
    finish: Finish = "stop"
    prompt_cut: int = 0
    versions: list[int] = field(factory=list)
    error: str = ""
    result: EpisodeResult = field(factory=EpisodeResult)
    is_over: bool = False

    def fail(self, error: Exception | str) -> None:
        why = error if isinstance(error, str) else repr(error)
        log.warning("rollout_failed", problem=self.problem.id, error=why)
        self.finish, self.error, self.is_over = "error", why, True

    async def take(self, completion: Completion) -> None:
        """Give the episode its completion; what it raises ends this rollout and no other."""
        try:
            if self.episode.writes_tokens:
                await self.episode.take_tokens(completion)
            else:
                await self.episode.take(completion.text)
        except PrerequisiteError:  # the machine's fault, and so every rollout's
            raise
        except Exception as error:  # the plugin border: one episode must not sink the rest
            self.fail(error)

    def close(self) -> None:
        """Keep what the episode leaves behind besides its text."""
        if self.finish == "error":
            return
        try:
            result: object = self.episode.result()
            if not isinstance(result, EpisodeResult):
                raise TypeError(f"{type(self.episode).__name__}.result gave {shown(result)}")
            self.result = result
        except Exception as error:  # the plugin border
            self.fail(error)

    def accept(self, completion: Completion) -> None:
        self.segments.append(
            Segment(
                author="policy",
                tokens=completion.tokens,
                logprobs=completion.logprobs,
                text=completion.text,
            )
        )
        self.versions += completion.versions
        self.tokens += completion.tokens.tolist()
        self.finish = completion.finish


class GroupSampler(Sampler):
    """
    Draws `params.group_size` trajectories a problem from the policy.

    Rollouts advance together: each turn is one batch, so a group's shared prompt is prefilled
    once; then up to `workers` episodes take their completions at the same time. A rollout whose
    episode raises, or whose completion has finish "error", ends there with finish "error" and is
    counted as a failure; the others go on.
    A first prompt longer than the model's context loses its middle (`Trajectory.prompt_cut` says
    how many tokens).
    """

    draws_from_policy = True

    def __init__(self, workers: int = 0, turns: int = 0) -> None:
        """`workers` 0: as many as the machine has cores; `turns` 0: as the episodes want."""
        self._workers = workers or os.cpu_count() or 1
        self._turns = turns

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """
        G trajectories a problem, in the order of `problems`.

        Raises:
            ConfigError: `params.max_tokens` leave no room for a prompt in the model's context.
        """
        check_room(policy, params)
        rollouts = [
            _Rollout(
                problem=problem,
                episode=episode_of(task, problem),
                seed=seed_of(params.seed, problem.id, index),
            )
            for problem in problems
            for index in range(params.group_size)
        ]
        active, digests = rollouts, _digests(policy, {})
        while active := await self._prompted(active, policy, params):
            requests = [
                GenerateRequest(
                    prompt=r.tokens,
                    params=with_stop_texts(params, r.episode),
                    seed=seed_of(r.seed, len(r.tokens)),
                )
                for r in active
            ]
            completions = await policy.generate(requests)
            digests = _digests(policy, digests)
            await self._take(list(zip(active, completions, strict=True)))
        for rollout in rollouts:
            rollout.close()
        finished = [_trajectory(r, policy, digests, params) for r in rollouts]
        size = params.group_size
        return [
            Group(problem=problem, trajectories=finished[i * size : (i + 1) * size])
            for i, problem in enumerate(problems)
        ]

    async def _take(self, turn: Sequence[tuple[_Rollout, Completion]]) -> None:
        """Give all completions of a turn to their episodes; an invalid one ends its rollout."""
        for rollout, completion in turn:
            if completion.finish == "error":
                rollout.fail(completion.error)
            else:
                rollout.accept(completion)
        await self._at_once([partial(r.take, c) for r, c in turn if not r.is_over])

    async def _prompted(
        self, rollouts: Sequence[_Rollout], policy: Policy, params: SamplingParams
    ) -> list[_Rollout]:
        """Rollouts that are not over, each with its next prompt."""
        going = await self._at_once([partial(self._prompt, r, policy, params) for r in rollouts])
        return [r for r, goes_on in zip(rollouts, going, strict=True) if goes_on]

    async def _at_once(self, work: Sequence[Callable[[], Awaitable[_T]]]) -> list[_T]:
        """Up to `workers` of them at a time; interrupted ones end before it goes on."""
        slots = asyncio.Semaphore(self._workers)

        async def one(each: Callable[[], Awaitable[_T]]) -> _T:
            async with slots:
                return await each()

        tasks = [asyncio.create_task(one(each)) for each in work]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _prompt(self, rollout: _Rollout, policy: Policy, params: SamplingParams) -> bool:
        """Put the next prompt before the policy; False when the rollout is over."""
        taken = sum(segment.author == "policy" for segment in rollout.segments)
        if rollout.is_over or 0 < self._turns <= taken:
            return False
        is_first = not rollout.segments
        try:
            prompt = await _next(rollout, policy)
        except (ConfigError, PrerequisiteError):  # every rollout's: a template, a missing tool
            raise
        except Exception as error:  # the plugin border
            rollout.fail(error)
            return False
        if prompt is None:
            rollout.is_over = True
            return False
        tokens, text = prompt
        room = policy.context_length - params.max_tokens - len(rollout.tokens)
        if len(tokens) > room:
            if not is_first:
                rollout.finish, rollout.is_over = "length", True
                return False
            rollout.prompt_cut = len(tokens) - room
            tokens = tokens[: room - room // 2] + tokens[len(tokens) - room // 2 :]
        rollout.segments.append(
            Segment(
                author="prompt" if is_first else "env",
                tokens=tokens,
                text=text,
            )
        )
        rollout.tokens += tokens
        return True


async def _next(rollout: _Rollout, policy: Policy) -> tuple[list[int], str] | None:
    """Token ids and text of the next prompt; None when the episode has ended."""
    episode, tokenizer = rollout.episode, policy.tokenizer
    is_first = not rollout.segments
    if is_first:
        episode.start(tokenizer)
    if episode.writes_tokens:
        given = await episode.next_tokens()
        return None if given is None else (list(given), tokenizer.decode(given))
    messages = episode.prompt()
    if messages is None:
        return None
    tokens = tokenizer.render(messages, first=is_first)
    if not is_first:
        tokens = [*tokenizer.closing(rollout.tokens), *tokens]
    return tokens, "\n".join(m.content for m in messages)


def _digests(policy: Policy, known: Mapping[int, str]) -> Mapping[int, str]:
    """The digests by version and that of now, unless a live policy changed meanwhile."""
    version, digest = policy.version, policy.digest
    return {**known, version: digest} if policy.version == version else known


def group_sampler(config: None, context: BuildContext) -> GroupSampler:
    """The factory of the spec: the sampler has no options of its own."""
    return GroupSampler(context.workers)


def with_stop_texts(params: SamplingParams, episode: Episode) -> SamplingParams:
    """The parameters of a turn, with the stop texts of its episode."""
    texts = episode.stop_texts()
    return evolve(params, stop=(*params.stop, *texts)) if texts else params


def check_room(policy: Policy, params: SamplingParams) -> None:
    """Refuse completions that leave no room for a prompt in the model's context."""
    room = policy.context_length - params.max_tokens
    if room < LEAST_PROMPT:
        raise ConfigError(
            explain(
                f"completions of {params.max_tokens} tokens were asked for (sampler.max_tokens).",
                f"found: the model's context holds {policy.context_length}, which leaves "
                f"{max(room, 0)} for a prompt",
                f"set sampler.max_tokens to {policy.context_length // 2} or so, or take a model "
                "with a longer context",
            )
        )


def _trajectory(
    rollout: _Rollout, policy: Policy, digests: Mapping[int, str], params: SamplingParams
) -> Trajectory:
    versions = tuple(dict.fromkeys(rollout.versions))
    oldest = min(versions, default=policy.version)
    return Trajectory(
        problem_id=rollout.problem.id,
        segments=rollout.segments,
        finish=rollout.finish,
        seed=rollout.seed,
        temperature=params.temperature,
        policy_version=oldest,
        policy_digest=digests.get(oldest, ""),  # "": those weights were gone when it was asked
        policy_versions=versions if len(versions) > 1 else (),
        prompt_cut=rollout.prompt_cut,
        error=rollout.error,
        files=rollout.result.files,
        notes=rollout.result.notes,
    )
