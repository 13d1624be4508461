"""The task `sad`: recorded trajectories to learn from, each with what every token of it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from attrs.validators import ge, lt

from rlvr import option
from rlvr.episode import SingleTurn
from rlvr.errors import ConfigError, UnknownNameError, explain
from rlvr.parts import BuildContext
from rlvr.types import Problem, Trajectory
from rlvr_sad.corpus.corpus import NOTHING, Corpus, Wanted, read_corpus
from rlvr_sad.corpus.shelf import Shelf
from rlvr_sad.formats.catalog import format_named
from rlvr_sad.reading.cache import TrajectoryCache
from rlvr_sad.reading.stream import files_of
from rlvr_sad.replay.layout import before, opening
from rlvr_sad.trajectory import AgentTrajectory

_SHOWN = 3
UNPOSED = "nothing stands before the agent's first word"
SPAN = "span"
"""Annotation (T,): 0 nothing, 1 reasoning, 2 action."""


@frozen(kw_only=True)
class SadConfig:
    """Options of the task sad."""

    files: tuple[str, ...] = option((), "Further files or folders, besides --dataset")
    format: str = option("", "Read as this format only; empty: found by content")
    held_out: float = option(
        0.1, "Share of the tasks that are kept for evaluation", validator=[ge(0), lt(1)]
    )
    split_by: str = option("", "Label that names a record's task; empty: task_id and the like")
    min_reward: float | None = option(None, "Learn only from records of this reward or more")
    workers: int = option(0, "Processes that read files; 0: none besides this", validator=ge(0))


class SadTask:
    """
    One problem a trajectory; nothing of their texts is held.

    Trajectories without reasoning and action, and records that cannot be read, are `unsupported`.
    """

    is_recorded = True

    def __init__(self, config: SadConfig, context: BuildContext) -> None:
        self._config = config
        self._paths = _files(config, context.dataset)
        if config.format:
            format_named(config.format)
        self._cache = TrajectoryCache()
        self._shelf = Shelf(self._cache, config.format)

    async def __aenter__(self) -> SadTask:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._cache.close()

    def problems(self, split: str) -> Sequence[Problem]:
        """Those of a split, in the order of the files."""
        return [p for p in self.corpus.problems if split in ("all", p.split)]

    def episode(self, problem: Problem) -> SingleTurn:
        """What stood before the model's first turn, as messages (see `unposed`), and one answer."""
        trajectory = self.trajectory(problem)
        return SingleTurn(
            opening(trajectory, "turns") or before(trajectory) or list(problem.prompt)
        )

    def unposed(self, problem: Problem) -> str:
        """Why a policy cannot answer it: the log begins with the agent's words."""
        return "" if problem.payload.has_prompt else UNPOSED

    def reference(self, problem: Problem) -> None:
        """None: a trajectory is more than one answer; the sampler replay gives the whole."""
        return

    def unsupported(self) -> Mapping[str, str]:
        """Records that were refused, and trajectories that nothing can be learnt from."""
        return self.corpus.unsupported

    def annotations(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        """The kind of each token of a replayed trajectory; of a sampled one nothing is known."""
        kinds = trajectory.notes.get("spans")
        if not isinstance(kinds, list | tuple) or len(kinds) != len(trajectory.segments):
            return {}
        lengths = [len(segment.tokens) for segment in trajectory.segments]
        return {SPAN: np.repeat(np.asarray(kinds, np.float32), lengths)}

    def notices(self, split: str) -> Iterable[str]:
        """What was left out, how the corpus was split, and what its records say of themselves."""
        corpus = self.corpus
        train = sum(p.split == "train" for p in corpus.problems)
        tasks = {p.labels["family"] for p in corpus.problems}
        outside = {p.labels["family"] for p in corpus.problems if p.split == "test"}
        formats = ", ".join(f"{name} ({n})" for name, n in corpus.formats.most_common())
        yield (
            f"{len(corpus.problems)} trajectories of {len(tasks)} tasks: {train} to train on, "
            f"{len(corpus.problems) - train} held out ({len(outside)} tasks); formats: {formats}"
        )
        silent = [name for name, why in corpus.unsupported.items() if why == NOTHING]
        if silent:
            yield f"{len(silent)} trajectories hold nothing to learn: {_some(silent)}"
        refused = [f"{n}: {why}" for n, why in corpus.unsupported.items() if why != NOTHING]
        if refused:
            yield f"{len(refused)} records were left out: {_some(refused)}"
        for note, count in corpus.notes.most_common():
            yield f"{count} trajectories: {note}"

    def trajectory(self, problem: Problem) -> AgentTrajectory:
        """
        What was recorded, read from where it is kept.

        Raises:
            TaskError: Its file was changed since the run began.
        """
        return self._shelf.trajectory(problem.payload)

    @property
    def cache(self) -> TrajectoryCache:
        """Where results of reading and tokenising are kept by content."""
        return self._cache

    @cached_property
    def corpus(self) -> Corpus:
        """The files, read when they are first asked for."""
        return read_corpus(
            Wanted(
                paths=tuple(self._paths),
                format_name=self._config.format,
                held_out=self._config.held_out,
                split_by=self._config.split_by,
                min_reward=self._config.min_reward,
                workers=self._config.workers,
            ),
            self._cache,
        )


def _files(config: SadConfig, dataset: Path | None) -> list[Path]:
    given = list(map(Path, config.files))
    if dataset is not None:
        parts = [dataset] if dataset.exists() else [Path(p) for p in str(dataset).split(",") if p]
        given = [*parts, *given]
    if not given:
        raise ConfigError(
            explain(
                "trajectories were to be learnt from.",
                "found: no file was named",
                "add --dataset FILE_OR_FOLDER,MORE",
            )
        )
    found = files_of(given)
    twice = _twice(found)
    if twice is not None:
        raise UnknownNameError(
            explain(f"{twice} was named twice.", do="name each file once, or its folder alone")
        )
    return found


def _twice(paths: list[Path]) -> Path | None:
    """The first file that stands there again, under whatever name."""
    seen: set[Path] = set()
    for path in paths:
        real = path.resolve()
        if real in seen:
            return path
        seen.add(real)
    return None


def _some(names: list[str]) -> str:
    more = f"; and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return "; ".join(names[:_SHOWN]) + more
