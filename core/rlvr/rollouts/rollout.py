"""One rollout: prompt, generate, take, and again, until the episode has ended."""

from __future__ import annotations

import inspect
from typing import Any, cast

from attrs import define, evolve, field

from rlvr.border.calls import Border, label, shown
from rlvr.border.drawn import (
    MisfitError,
    fault_of_completion,
    fault_of_ids,
    fault_of_messages,
    fault_of_result,
    ids_by,
    text_by,
)
from rlvr.border.promises import episode_of
from rlvr.errors import ConfigError, PartError, PrerequisiteError
from rlvr.log import get
from rlvr.parts import Episode, EpisodeResult, Policy, Task
from rlvr.plugins.author_error import log_traceback, passes, said
from rlvr.seeds import seed_of
from rlvr.types import (
    Completion,
    Finish,
    GenerateRequest,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
)
from rlvr.types.trajectory import Author

log = get(__name__)

LEAST_PROMPT = 2
"""Tokens of a prompt below which nothing can be asked: its first and its last."""


async def rollout(
    policy: Policy,
    task: Task,
    problem: Problem,
    params: SamplingParams,
    *,
    index: int = 0,
    turns: int = 0,
) -> Trajectory:
    """
    One trajectory of a problem.

    What its episode raises ends it with finish "error", and so does a completion with that finish.
    A first prompt longer than the model's context loses its middle (`Trajectory.prompt_cut` says
    how many tokens).

    Args:
        policy: Draws the completions; they follow from `params.seed`, the problem and `index`.
        task: Of the problem.
        problem: What is attempted.
        params: How to draw.
        index: Place in the problem's group.
        turns: Most completions; 0: as many as the episode wants.

    Raises:
        ConfigError: The tokenizer's chat template cannot render the prompt.
        PartError: The tokenizer gave something else than ids.
        PrerequisiteError: A tool of the episode is missing.
    """
    seed = seed_of(params.seed, problem.id, index)
    one = _Rollout(problem=problem, episode=episode_of(task, problem), seed=seed, index=index)
    one.learn(policy)
    drawing = Border(policy, "policy", "generate", promised="a Completion", problem=problem.id)
    while not one.is_over and not 0 < turns <= one.turns and await one.prompt(policy, params):
        request = GenerateRequest(
            prompt=one.tokens,
            params=with_stop_texts(params, one.episode),
            seed=seed_of(seed, len(one.tokens)),
        )
        with drawing:
            completion = await policy.generate(request)
        drawing.check(fault_of_completion(completion))
        one.learn(policy)
        await one.take(completion)
    one.close()
    return one.trajectory(policy, params)


@define
class _Rollout:
    """One trajectory being sampled; `digests` are those of the weights that may have drawn it."""

    problem: Problem
    episode: Episode
    seed: int
    index: int
    segments: list[Segment] = field(factory=list)
    tokens: list[int] = field(factory=list)
    turns: int = 0
    finish: Finish = "stop"
    prompt_cut: int = 0
    versions: list[int] = field(factory=list)
    digests: dict[int, str] = field(factory=dict)
    error: str = ""
    result: EpisodeResult = field(factory=EpisodeResult)
    is_over: bool = False

    def learn(self, policy: Policy) -> None:
        """The digest of the policy's version now, unless a live policy changed meanwhile."""
        version, digest = policy.version, policy.digest
        if policy.version == version:
            self.digests[version] = digest

    def fail(self, why: str) -> None:
        log.warning("rollout_failed", problem=self.problem.id, error=why)
        self.finish, self.error, self.is_over = "error", why, True

    def broke(self, error: BaseException) -> None:
        """End this rollout with an error of its episode: class, method, error, place."""
        if isinstance(error, MisfitError):  # a sentence that says it all
            self.fail(str(error))
            return
        log_traceback(error)
        who, trace, method = label(self.episode, "episode"), error.__traceback__, ""
        while trace is not None and not method:
            is_ours = trace.tb_frame.f_globals.get("__name__") == __name__
            method = "" if is_ours else trace.tb_frame.f_code.co_name
            trace = trace.tb_next
        self.fail(f"{who}: {method or 'it'} raised {said(error)}")

    async def prompt(self, policy: Policy, params: SamplingParams) -> bool:
        """Put the next prompt before the policy; False when the rollout is over."""
        try:
            prompt = await self._next(policy)
        except (ConfigError, PrerequisiteError, PartError):  # every rollout's: a template, a tool
            raise
        except BaseException as error:  # the plugin border: one episode must not sink the rest
            if passes(error):
                raise
            self.broke(error)
            return False
        if prompt is None:
            return False
        tokens, text = prompt
        room = policy.context_length - params.max_tokens - len(self.tokens)
        if len(tokens) > room:
            if self.segments:
                self.finish = "length"
                return False
            self.prompt_cut = len(tokens) - room
            tokens = tokens[: room - room // 2] + tokens[len(tokens) - room // 2 :]
        author: Author = "env" if self.segments else "prompt"
        self.segments.append(Segment(author=author, tokens=tokens, text=text))
        self.tokens += tokens
        return True

    async def _next(self, policy: Policy) -> tuple[list[int], str] | None:
        """Token ids and text of the next prompt; None when the episode has ended."""
        episode, tokenizer = self.episode, policy.tokenizer
        is_first = not self.segments
        if is_first:
            episode.start(tokenizer)
        if episode.writes_tokens:
            at = Border(
                episode, "episode", "next_tokens", promised="ids of the policy's vocabulary"
            )
            given = await episode.next_tokens()
            if given is None:
                return None
            if not (fault := fault_of_ids(given, tokenizer.vocab_size)):
                tokens, text = list(given), text_by(tokenizer, given)
        else:
            at = Border(episode, "episode", "prompt", promised="messages of at least one token")
            messages = episode.prompt()
            if messages is None:
                return None
            if not (fault := fault_of_messages(messages)):
                closing = [] if is_first else ids_by(tokenizer, "closing", self.tokens)
                tokens = [*closing, *ids_by(tokenizer, "render", messages, first=is_first)]
                text = "\n".join(m.content for m in messages)
        if fault or (is_first and not tokens):
            raise MisfitError(at.sentence(fault or "none, as the first prompt"))
        return tokens, text

    async def take(self, completion: Completion) -> None:
        """Give the episode its completion; what it raises ends this rollout and no other."""
        if completion.finish == "error":
            self.fail(completion.error)
            return
        drawn = {"tokens": completion.tokens, "logprobs": completion.logprobs}
        self.segments.append(Segment(author="policy", text=completion.text, **drawn))
        self.turns += 1
        self.versions += completion.versions
        self.tokens += completion.tokens.tolist()
        self.finish = completion.finish
        try:
            taken: Any
            if self.episode.writes_tokens:
                method, taken = "take_tokens", self.episode.take_tokens(completion)
            else:
                method, taken = "take", self.episode.take(completion.text)
            if not inspect.isawaitable(taken):
                at = Border(self.episode, "episode", method, promised="a coroutine")
                raise TypeError(at.sentence(f"{shown(taken)}: write async def {method}"))
            await taken
        except PrerequisiteError:  # the machine's fault, and so every rollout's
            raise
        except BaseException as error:  # the plugin border
            if passes(error):
                raise
            self.broke(error)

    def close(self) -> None:
        """Keep what the episode leaves behind besides its text."""
        if self.finish == "error":
            return
        try:
            result: object = self.episode.result()
            at = Border(self.episode, "episode", "result", promised="an EpisodeResult")
            if fault := fault_of_result(result):
                raise MisfitError(at.sentence(fault))
            self.result = cast(EpisodeResult, result)
        except BaseException as error:  # the plugin border
            if passes(error):
                raise
            self.broke(error)

    def trajectory(self, policy: Policy, params: SamplingParams) -> Trajectory:
        versions = tuple(dict.fromkeys(self.versions))
        oldest = min(versions, default=policy.version)
        return Trajectory(
            problem_id=self.problem.id,
            segments=self.segments,
            finish=self.finish,
            seed=self.seed,
            index=self.index,
            temperature=params.temperature,
            policy_version=oldest,
            policy_digest=self.digests.get(oldest, ""),  # "": those weights were gone when asked
            policy_versions=versions if len(versions) > 1 else (),
            prompt_cut=self.prompt_cut,
            error=self.error,
            files=self.result.files,
            notes=self.result.notes,
        )


def with_stop_texts(params: SamplingParams, episode: Episode) -> SamplingParams:
    """The parameters of a turn, with the stop texts of its episode."""
    at = Border(episode, "episode", "stop_texts", promised="texts that end a turn")
    with at:
        told: Any = episode.stop_texts()
        texts = list(told)
    is_fit = not isinstance(told, str) and all(isinstance(t, str) and t for t in texts)
    at.check("" if is_fit else shown(told))
    return evolve(params, stop=(*params.stop, *texts)) if texts else params


def check_room(policy: Policy, params: SamplingParams) -> None:
    """Refuse completions that leave no room for a prompt in the model's context."""
    room = policy.context_length - params.max_tokens
    if room < LEAST_PROMPT:
        raise ConfigError(
            f"completions of {params.max_tokens} tokens were asked for (sampler.max_tokens).",
            f"found: the model's context holds {policy.context_length}, which leaves "
            f"{max(room, 0)} for a prompt",
            f"set sampler.max_tokens to {policy.context_length // 2} or so, or take a model "
            "with a longer context",
        )
