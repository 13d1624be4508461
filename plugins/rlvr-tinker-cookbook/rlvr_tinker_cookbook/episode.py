"""An environment of the cookbook as an episode: token for token, turn by turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import tinker
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl import types

from rlvr import BackendError, Completion, ConfigError, Episode, EpisodeResult, Message, Tokenizer
from rlvr_tinker_cookbook.config import NOTE


class EnvPool:
    """
    Makes a group's environments when one is asked for, and another group when they are spent.

    The builder cleans up when none of its environments is being played.
    """

    def __init__(self, builder: types.EnvGroupBuilder) -> None:
        self.builder = builder
        self._spare: list[types.Env] = []
        self._playing = 0
        self._making = asyncio.Lock()

    async def take(self) -> types.Env:
        """An environment that nobody has played."""
        async with self._making:
            if not self._spare:
                self._spare = list(await self.builder.make_envs())[::-1]
            self._playing += 1
            return self._spare.pop()

    async def done(self) -> None:
        """One that was taken has ended."""
        self._playing -= 1
        if self._playing <= 0:
            await self.close()

    async def close(self) -> None:
        """Let the builder clean up; environments that nobody took are dropped."""
        self._spare, self._playing = [], 0
        await self.builder.cleanup()


class EnvEpisode(Episode):
    """
    Plays one environment and keeps what it says about the answer (`result`).

    The environment renders its own prompts, so its tokenizer has to be the policy's; its
    observations have to go on from what was said (a renderer with the extension property).

    Args:
        pool: Where the environment comes from.
        has_group_reward: Whether the group builder is asked for a reward too, for a group of one.
    """

    writes_tokens = True

    def __init__(self, pool: EnvPool, *, has_group_reward: bool = False) -> None:
        self._pool, self._has_group_reward = pool, has_group_reward
        self._env: types.Env | None = None
        self._tokenizer: Tokenizer | None = None
        self._stop: Sequence[Any] = ()
        self._said: list[int] = []  # all tokens until now
        self._shown: list[int] = []  # the last observation
        self._observation: list[int] | None = None  # the next one; None when it is over
        self._transitions: list[types.Transition] = []
        self._final: Mapping[str, Any] | None = None

    def start(self, tokenizer: Tokenizer) -> None:
        """Remember the policy's tokenizer: the environment's own is compared with it."""
        self._tokenizer = tokenizer

    def prompt(self) -> Sequence[Message] | None:
        """Refused: environments speak tokens."""
        raise ConfigError(
            "a cookbook environment was to be asked for messages.",
            "found: it gives and takes token ids",
            "use a sampler that hands over tokens: --sampler group",
        )

    async def take(self, completion: str) -> None:
        """Refused, as `prompt`."""
        self.prompt()

    async def next_tokens(self) -> Sequence[int] | None:
        """The first observation, later what follows on what was said; None at the end."""
        if self._env is None:
            await self._begin()
        if self._observation is None:
            return None
        before = len(self._said)
        if self._observation[:before] != self._said:
            await self._pool.done()
            raise ConfigError(
                "an episode of several turns is trained on as one sequence of tokens.",
                "found: the environment's next observation does not begin with what was said "
                "(its renderer rewrites earlier turns)",
                "take a renderer whose has_extension_property is true (one that keeps or "
                "disables thinking)",
            )
        self._shown = self._observation
        self._said = list(self._observation)
        return self._observation[before:]

    async def take_tokens(self, completion: Completion) -> None:
        """The policy's turn, as it was drawn; at the end the builder is asked for its reward."""
        assert self._env is not None
        action = [int(index) for index in completion.tokens]
        self._said += action
        reason: Any = "length" if completion.finish == "length" else "stop"
        step = await self._env.step(action, extra=types.ActionExtra(stop_reason=reason))
        self._stop = step.next_stop_condition
        self._transitions.append(
            types.Transition(
                ob=tinker.ModelInput.from_ints(self._shown),
                ac=TokensWithLogprobs(
                    tokens=action, maybe_logprobs=completion.logprobs.tolist(), stop_reason=reason
                ),
                reward=step.reward,
                episode_done=step.episode_done,
                metrics=step.metrics,
                logs=step.logs,
            )
        )
        if not step.episode_done:
            self._observation = _ids(step.next_observation)
            return
        self._observation = None
        await self._end(step.next_observation)

    def stop_texts(self) -> Sequence[str]:
        """The environment's stop condition, without what ends the policy's turn anyway."""
        stops = [self._stop] if isinstance(self._stop, str) else list(self._stop)
        assert self._tokenizer is not None
        spelled = {self._tokenizer.decode([index]) for index in self._tokenizer.ends}
        texts = [s if isinstance(s, str) else self._tokenizer.decode([s]) for s in stops]
        return [text for text in texts if text not in spelled]

    def result(self) -> EpisodeResult:
        """Note `NOTE` is what the environment said; none where it was not played to its end."""
        return EpisodeResult(notes={} if self._final is None else {NOTE: self._final})

    async def _begin(self) -> None:
        self._env = await self._pool.take()
        first = await self._env.initial_observation()
        if isinstance(first, types.InitialObservationOverflow):
            self._final = {"reward": float(first.reward), "metrics": _numbers(first.metrics)}
            await self._pool.done()
            return
        observation, self._stop = first
        self._observation = _ids(observation)
        self._check_tokenizer()

    async def _end(self, last: tinker.ModelInput) -> None:
        assert self._env is not None
        reward = sum(step.reward for step in self._transitions)
        metrics = dict(self._transitions[-1].metrics)
        try:
            if self._has_group_reward:
                whole = types.Trajectory(transitions=self._transitions, final_ob=last)
                given = await self._pool.builder.compute_group_rewards([whole], [self._env])
                reward += given[0][0]
                metrics |= given[0][1]
        finally:
            await self._pool.done()
        self._final = {"reward": float(reward), "metrics": _numbers(metrics)}

    def _check_tokenizer(self) -> None:
        """Refuse an environment that writes other ids than the policy reads."""
        renderer = getattr(self._env, "renderer", None)
        if renderer is None or self._tokenizer is None or self._observation is None:
            return
        meant = renderer.tokenizer.decode(self._observation)
        read = self._tokenizer.decode(self._observation)
        if meant != read:
            raise ConfigError(
                "the environment's prompt was to be put before the policy.",
                f"found: it means {meant[:80]!r}, and the policy reads {read[:80]!r}",
                "give the environment the policy's own model as its tokenizer (cookbook.args)",
            )


def _ids(observation: tinker.ModelInput) -> list[int]:
    try:
        return observation.to_ints()
    except ValueError as error:
        raise BackendError(f"the observation holds more than text: {error}") from None


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items()}
