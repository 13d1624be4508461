"""The task `sad`: recorded trajectories to learn from, each with what every token of it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rlvr import (
    BuildContext,
    ConfigError,
    Problem,
    Reward,
    RewardFn,
    SingleTurn,
    Task,
    Trajectory,
    UnknownNameError,
    counted,
)
from rlvr_sad.config import SadConfig
from rlvr_sad.corpus.corpus import NOTHING, Corpus, read_corpus
from rlvr_sad.formats.catalog import format_named
from rlvr_sad.replay.layout import before, opening
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.sessions.prepare import files_of
from rlvr_sad.sessions.ref import TrajectoryRef
from rlvr_sad.trajectory import AgentTrajectory

_SHOWN = 3
UNANSWERABLE = "nothing stands before the agent's first word"
SPAN = "span"
"""Annotation (T,): 0 nothing, 1 reasoning, 2 action."""


class SadTask(Task):
    """
    One problem a trajectory; nothing of their texts is held.

    Trajectories without reasoning and action, and records that cannot be read, are `unsupported`.
    """

    is_offline = True

    def __init__(self, config: SadConfig, context: BuildContext) -> None:
        self._config = config
        self._paths = _files(config, context.datasets)
        if config.format:
            format_named(config.format)
        self.cache = TrajectoryCache()

    async def __aenter__(self) -> SadTask:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cache.close()

    def problems(self, split: str) -> Sequence[Problem]:
        return [p for p in self.corpus.problems if split in ("all", p.split)]

    def episode(self, problem: Problem) -> SingleTurn:
        """One answer to the messages before the model's first turn."""
        trajectory = self.trajectory(problem)
        return SingleTurn(
            opening(trajectory, "turns") or before(trajectory) or list(problem.prompt)
        )

    def why_unanswerable(self, problem: Problem) -> str:
        """Why a policy cannot answer it: the log begins with the agent's words."""
        return "" if problem.payload.has_prompt else UNANSWERABLE

    def unsupported(self) -> Mapping[str, str]:
        """Records that were refused, and trajectories that nothing can be learnt from."""
        return self.corpus.unsupported

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        """The kind of each token of a replayed trajectory; of a sampled one nothing is known."""
        kinds = trajectory.notes.get("spans")
        if not isinstance(kinds, list | tuple) or len(kinds) != len(trajectory.segments):
            return {}
        lengths = [len(segment.tokens) for segment in trajectory.segments]
        return {SPAN: np.repeat(np.asarray(kinds, np.float32), lengths)}

    def warnings(self, split: str) -> Iterable[str]:
        """Notes: records that were left out, how the corpus was split, labels of the records."""
        corpus = self.corpus
        train = sum(p.split == "train" for p in corpus.problems)
        tasks = {p.labels["family"] for p in corpus.problems}
        outside = {p.labels["family"] for p in corpus.problems if p.split == "test"}
        formats = ", ".join(f"{name} ({n})" for name, n in corpus.formats.most_common())
        yield (
            f"{counted(len(corpus.problems), 'trajectory')} of {counted(len(tasks), 'task')}: "
            f"{train} to train on, "
            f"{len(corpus.problems) - train} held out ({len(outside)} tasks); formats: {formats}"
        )
        silent = [name for name, why in corpus.unsupported.items() if why == NOTHING]
        if silent:
            yield f"{counted(len(silent), 'trajectory')} with nothing to learn: {_some(silent)}"
        refused = [f"{n}: {why}" for n, why in corpus.unsupported.items() if why != NOTHING]
        if refused:
            yield f"{counted(len(refused), 'record')} left out: {_some(refused)}"
        for note, count in corpus.notes.most_common():
            yield f"{counted(count, 'trajectory')}: {note}"

    def trajectory(self, problem: Problem) -> AgentTrajectory:
        """
        What was recorded, read from where it is kept.

        Raises:
            TaskError: Its file was changed since the run began.
        """
        ref: TrajectoryRef = problem.payload
        return ref.read(self.cache)

    @cached_property
    def corpus(self) -> Corpus:
        """The files, read when they are first asked for."""
        return read_corpus(self._paths, self._config, self.cache)


def _files(config: SadConfig, datasets: Sequence[Path]) -> list[Path]:
    given = [*datasets, *map(Path, config.files)]
    if not given:
        raise ConfigError(
            "trajectories were to be learnt from.",
            "found: no file was named",
            "add --dataset FILE_OR_FOLDER,MORE",
        )
    found = files_of(given)
    first: dict[Path, int] = {}
    again = [p for n, p in enumerate(found) if first.setdefault(p.resolve(), n) != n]
    if again:
        raise UnknownNameError(
            f"{again[0]} was named twice.", do="name each file once, or its folder alone"
        )
    return found


def _some(names: list[str]) -> str:
    more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more


class RecordedReward(RewardFn):
    """1 for every trajectory, marked as a proxy: it never says that an answer is right."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        return Reward(value=1.0, score01=0.0, is_proxy=True)
