"""Problems of rlvr as environments of the cookbook, alone and in groups.

An answer without a verdict never has reward 0 (`rlvr.types.Unscorable`, `Failed`). The cookbook
cannot say that, but its advantage is the reward minus the group's mean: an answer that gets the
mean of the others changes neither that mean nor the gradient, as if it were left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from statistics import fmean
from typing import Any

import structlog
import tinker
from attrs import define, field, frozen
from tinker_cookbook.completers import StopCondition
from tinker_cookbook.rl import types

from rlvr import (
    ConfigError,
    Episode,
    EpisodeResult,
    Failed,
    Finish,
    Message,
    Outcome,
    PrerequisiteError,
    Problem,
    Reward,
    Segment,
    Trajectory,
    Unscorable,
)
from rlvr_tinker_cookbook.judge import AnswerVerifier, Wanted, judge_of
from rlvr_tinker_cookbook.speech import (
    RendererSpeech,
    Speech,
    TemplateSpeech,
    renderer_of,
    tokenizer_of,
)

log = structlog.get_logger(__name__)

SHOWN = 2000
"""Characters of an answer that the cookbook's log keeps."""


@define(eq=False)
class TaskEnv(types.Env):
    """
    One rollout of one problem: as many turns as its episode has, then the verdict.

    An episode that raises ends its own rollout and no other. Tokens of the prompt and of all
    turns never exceed `room`; 0: whatever the service takes.
    """

    judge: AnswerVerifier
    problem: Problem
    speech: Speech
    model_name: str
    room: int = 0
    outcome: Outcome | None = None
    _episode: Episode | None = None
    _tokens: list[int] = field(factory=list)
    _segments: list[Segment] = field(factory=list)
    _prompt_cut: int = 0
    _error: str = ""

    async def initial_observation(
        self,
    ) -> tuple[tinker.ModelInput, StopCondition] | types.InitialObservationOverflow:
        """The first prompt; one that is longer than `room` loses its middle."""
        try:
            messages = await self.judge.here(self._begin)
        except (ConfigError, PrerequisiteError):
            raise
        except Exception as error:  # the plugin border: the cookbook's word for "no rollout"
            log.warning("rollout_failed", problem=self.problem.id, error=repr(error))
            self.outcome = Failed(reason=repr(error))
            return types.InitialObservationOverflow(
                reward=step_reward(self.outcome), metrics=step_metrics(self.outcome)
            )
        tokens = self.speech.opening(messages)
        if self.room and len(tokens) > self.room:
            half = self.room // 2
            self._prompt_cut = len(tokens) - self.room
            tokens = tokens[: self.room - half] + tokens[len(tokens) - half :]
        self._tokens = tokens
        self._see("prompt", tokens, messages)
        return tinker.ModelInput.from_ints(tokens), self.speech.stop

    async def step(
        self, action: list[int], *, extra: types.ActionExtra | None = None
    ) -> types.StepResult:
        """The policy's turn: the next prompt, or the end of the episode and its verdict."""
        finish: Finish = "length" if (extra or {}).get("stop_reason") == "length" else "stop"
        text = self.speech.text(action)
        ids = [int(index) for index in action]
        self._segments.append(
            Segment(author="policy", tokens=ids, logprobs=[0.0] * len(ids), text=text)
        )
        self._tokens += ids
        messages = await self.judge.here(partial(self._turn, text))
        if messages is None:
            return await self._end("error" if self._error else finish)
        tokens = self.speech.following(self._tokens, messages)
        if self.room and len(tokens) > self.room:
            return await self._end("length")
        self._see("env", tokens[len(self._tokens) :], messages)
        self._tokens = tokens
        return types.StepResult(
            reward=0.0,
            episode_done=False,
            next_observation=tinker.ModelInput.from_ints(tokens),
            next_stop_condition=self.speech.stop,
        )

    async def _begin(self) -> Sequence[Message]:
        self._episode = self.judge.verifying.task.episode(self.problem)
        self._episode.start(tokenizer_of(self.model_name))
        return self._episode.prompt() or ()

    async def _turn(self, text: str) -> Sequence[Message] | None:
        assert self._episode is not None
        try:
            await self._episode.take(text)
            return self._episode.prompt()
        except PrerequisiteError:  # the machine's fault, and so every rollout's
            raise
        except Exception as error:  # the plugin border: one episode must not sink the rest
            log.warning("rollout_failed", problem=self.problem.id, error=repr(error))
            self._error = repr(error)
            return None

    def _see(self, author: Any, tokens: Sequence[int], messages: Sequence[Message]) -> None:
        text = "\n".join(m.content for m in messages)
        self._segments.append(Segment(author=author, tokens=tokens, text=text))

    async def _end(self, finish: Finish) -> types.StepResult:
        trajectory = await self.judge.here(partial(self._leave, finish))
        self.outcome = await self.judge.verify(self.problem, trajectory)
        reason = types.StopReason.MAX_TOKENS if finish == "length" else types.StopReason.COMPLETED
        return types.StepResult(
            reward=step_reward(self.outcome),
            episode_done=True,
            next_observation=tinker.ModelInput.empty(),
            next_stop_condition=self.speech.stop,
            metrics={**step_metrics(self.outcome), f"{types.STOP_METRIC_PREFIX}{reason}": 1.0},
            logs={"problem": self.problem.id, "answer": trajectory.completion[:SHOWN]},
        )

    async def _leave(self, finish: Finish) -> Trajectory:
        result = EpisodeResult()
        try:
            if finish != "error" and self._episode is not None:
                result = self._episode.result()
        except Exception as error:  # the plugin border
            finish, self._error = "error", repr(error)
        return Trajectory(
            problem_id=self.problem.id,
            segments=self._segments,
            finish=finish,
            prompt_cut=self._prompt_cut,
            error=self._error,
            files=result.files,
            notes=result.notes,
        )


@frozen(kw_only=True)
class TaskGroupBuilder(types.EnvGroupBuilder):
    """
    The environments of one problem. Pickles: another process opens a judge of its own.

    Attributes:
        wanted: The task.
        problem: Of that task.
        group_size: Rollouts of the problem.
        model_name: Whose tokenizer and template are used.
        renderer_name: A renderer of the cookbook in place of the template; "": none.
        room: Tokens of a prompt at most; 0: any number.
    """

    wanted: Wanted
    problem: Problem
    group_size: int
    model_name: str
    renderer_name: str = ""
    room: int = 0

    async def make_envs(self) -> Sequence[types.Env]:
        """Fresh environments."""
        judge, name = judge_of(self.wanted), self.model_name
        return [
            TaskEnv(judge, self.problem, self._speech(judge), name, self.room)
            for _ in range(self.group_size)
        ]

    async def compute_group_rewards(
        self, trajectory_group: list[types.Trajectory], env_group: Sequence[types.Env]
    ) -> list[tuple[float, types.Metrics]]:
        """The mean of the others for an answer without a verdict; nothing for all others."""
        outcomes = [env.outcome if isinstance(env, TaskEnv) else None for env in env_group]
        return [(reward, {}) for reward in missing_rewards(outcomes)]

    def logging_tags(self) -> list[str]:
        """The plugin, and the problem's family where it names one."""
        family = self.problem.labels.get("family", "")
        return [self.wanted.plugin, *([f"{self.wanted.plugin}/{family}"] if family else [])]

    def _speech(self, judge: AnswerVerifier) -> Speech:
        if self.renderer_name:
            return RendererSpeech(renderer_of(self.renderer_name, self.model_name))
        return TemplateSpeech(tokenizer_of(self.model_name), judge.verifying.stop)


def step_reward(outcome: Outcome) -> float:
    """What the last step of an episode earns; 0 where there is no verdict (`missing_rewards`)."""
    return outcome.value if isinstance(outcome, Reward) else 0.0


def step_metrics(outcome: Outcome) -> types.Metrics:
    """Named numbers of a verdict, averaged by the cookbook's log."""
    metrics: types.Metrics = {
        "unscorable": float(isinstance(outcome, Unscorable)),
        "failed": float(isinstance(outcome, Failed)),
    }
    if isinstance(outcome, Reward):
        metrics["solved"] = outcome.score01
        metrics.update({f"component/{k}": float(v) for k, v in outcome.components.items()})
    return metrics


def missing_rewards(outcomes: Sequence[Outcome | None]) -> list[float]:
    """What to add to each reward of a group: a missing verdict gets the mean of the others."""
    values = [o.value for o in outcomes if isinstance(o, Reward)]
    if not values:
        return [0.0] * len(outcomes)
    mean = values[0] if len(set(values)) == 1 else fmean(values)
    return [0.0 if isinstance(o, Reward) else mean for o in outcomes]
