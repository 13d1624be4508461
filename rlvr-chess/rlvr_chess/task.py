"""The task: problems of a data set of chess, or of the embedded positions."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from attrs import evolve

from rlvr import (
    BuildContext,
    ConfigError,
    Metric,
    PluginError,
    Policy,
    Probe,
    Problem,
    SamplingParams,
    SingleTurn,
    Task,
    Trajectory,
    counted,
    pip_install,
)
from rlvr_chess.config import ChessConfig
from rlvr_chess.fen import four_fields
from rlvr_chess.problem import problem_of, right_answer
from rlvr_chess.questions.environment import hash_of, steps_of
from rlvr_chess.questions.mix import MixedTasks
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.questions.transition import legal_moves
from rlvr_chess.rows.games import game_key
from rlvr_chess.rows.read import DataSet, Material, read_data
from rlvr_chess.rows.row import Row, Unsupported, free_id
from rlvr_chess.splits import divide, split_of
from rlvr_chess.tables.file import shipped_positions, shipped_questions

if TYPE_CHECKING:
    from rlvr_chess.selfplay.grow import SelfPlay
    from rlvr_chess.tables.store import TableStore

_NAMED = 3
EVEN = 0.5
"""The default of `chess.mix`."""


class ChessTask(Task):
    """
    Two kinds of problems: choose a move and say what moves are worth; say what a move does.

    `config` and `material` (games, opening lines and positions of the data set) are for the
    evaluation and for self-play.
    """

    def __init__(self, config: ChessConfig, context: BuildContext) -> None:
        self.config = config
        self.discovers_problems = config.selfplay_games > 0
        is_mixed = config.tasks == "both" and config.mix != EVEN
        self.curriculum_option = f"chess.mix={config.mix:g}" if is_mixed else ""
        self._context = context
        self._profile = config.wording

    def problems(self, split: str) -> Sequence[Problem]:
        """
        Problems of "train", "test" or "all", in the order of the data set.

        Positions with a single legal move are left out of "train": every answer would earn the
        same there.
        """
        if split == "all":
            return list(self._problems)
        found = [problem for problem in self._problems if problem.split == split]
        return [p for p in found if not _is_forced(p)] if split == "train" else found

    def episode(self, problem: Problem) -> SingleTurn:
        """A single turn."""
        return SingleTurn(problem.prompt)

    def reference(self, problem: Problem) -> Trajectory | None:
        """
        The perfect line, the true state, or a solution's move.

        None for a position that no table holds: no engine is asked here.
        """
        payload, values = problem.payload, None
        if not isinstance(payload, EnvironmentStep) and not _has_values(problem):
            values = self._store.peek(payload.fen)
        text = right_answer(payload, self._profile, values, hash_of("reference", payload.fen))
        return None if text is None else Trajectory.from_text(problem.id, text)

    def unsupported(self) -> Mapping[str, str]:
        """Rows that yield no problem: id, or `line N`, to the reason."""
        return {row.id: row.reason for row in self._divided if isinstance(row, Unsupported)}

    def curriculum(self) -> MixedTasks:
        """A share `chess.mix` of policy problems; half by default."""
        return MixedTasks(self.config.mix)

    def probes(self, problem: Problem, *, count: int, seed: int) -> Iterable[Probe]:
        """Answers that the reward has to reject, for `rlvr audit`."""
        from rlvr_chess.probes import probes

        values = None
        if isinstance(problem.payload, PolicyPosition):
            values = problem.payload.values or self._store.peek(problem.payload.fen)
        return probes(problem, values, self._profile, count=count, seed=seed)

    def warnings(self, split: str) -> Iterable[str]:
        """Rows that are not asked, and positions that need an engine."""
        yield from self._left_out()
        problems = self.problems(split)
        forced = sum(p.split == "train" and _is_forced(p) for p in self._problems)
        if split == "train" and forced:
            yield f"{counted(forced, 'position')} with a single legal move left out of training."
        bare = sum(isinstance(p.payload, PolicyPosition) and not _has_values(p) for p in problems)
        if bare:
            yield (
                f"{bare} of {len(problems)} problems come without action values: what no table "
                f"holds is searched by Stockfish ({self.config.nodes} nodes each) when it is "
                "first judged. rlvr chess build-table does it beforehand."
            )

    async def discover(
        self, policy: Policy, memory: Mapping[str, Any], *, seed: int, step: int
    ) -> Mapping[str, Any]:
        """Positions of the policy's own games, where `chess.selfplay_games` asks for some."""
        return await self._self_play.discover(policy, memory, seed=seed, step=step)

    def discovered(self, memory: Mapping[str, Any]) -> Sequence[Problem]:
        """The problems that self-play has found."""
        return [self._problem(row, "train") for row in self._self_play.discovered(memory)]

    def measure(self, policy: Policy, *, split: str, seed: int) -> AsyncIterator[Metric]:
        """The numbers of docs/chess/evaluation.md."""
        from rlvr_chess.evaluation.suite import measure

        return measure(self, policy, split=split, seed=seed)

    async def __aexit__(self, *error: object) -> None:
        """Close the cache of tables."""
        if "_store" in self.__dict__:
            self._store.close()

    # --- from rows to problems ------------------------------------------------------------------

    @cached_property
    def material(self) -> Material:
        """Games, opening lines and bare positions; a game has the split of its positions."""
        found = self._data.material
        holdout = self.config.holdout
        games = tuple(evolve(g, split=split_of(game_key(g), holdout)) for g in found.games)
        return evolve(found, games=games)

    @cached_property
    def _data(self) -> DataSet:
        if self._context.dataset is None:
            return DataSet(rows=_starter_rows())
        data = read_data(self._context.dataset)
        refused = [row for row in data.rows if isinstance(row, Unsupported)]
        if self.config.strict and refused:
            first = "; ".join(f"{row.id}: {row.reason}" for row in refused[:_NAMED])
            more = f"; and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
            raise ConfigError(
                f"every row of {self._context.dataset} was to be usable (chess.strict).",
                f"found: {len(refused)} that are not: {first}{more}",
                "mend them, or leave chess.strict out: the others are then problems",
            )
        return data

    @cached_property
    def _divided(self) -> list[tuple[Row, str] | Unsupported]:
        return divide(self._data.rows, self.config.holdout)

    @cached_property
    def _rows(self) -> list[tuple[Row, str]]:
        return [row for row in self._divided if not isinstance(row, Unsupported)]

    @cached_property
    def _problems(self) -> list[Problem]:
        return [self._problem(row, split) for row, split in self._asked()]

    def _asked(self) -> Iterator[tuple[Row, str]]:
        """The rows of the tasks that are asked; a bare position stands for both."""
        tasks, steps = self.config.tasks, {}
        for wanted in ("train", "test") if tasks != "policy" else ():
            bare = [row for row, split in self._rows if row.is_bare and split == wanted]
            made = steps_of([row.payload.fen for row in bare])
            steps.update({row.id: step for row, step in zip(bare, made, strict=True)})
        taken = {row.id if isinstance(row, Unsupported) else row[0].id for row in self._divided}
        for row, split in self._rows:
            is_step = isinstance(row.payload, EnvironmentStep)
            if tasks == "both" or is_step == (tasks == "environment"):
                yield row, split
            if row.id in steps:
                name = free_id(f"{row.id}/env", taken)
                taken.add(name)
                yield Row(id=name, payload=steps[row.id]), split

    def _problem(self, row: Row, split: str) -> Problem:
        return problem_of(row, split, profile=self._profile, history=self.config.history)

    def _left_out(self) -> Iterator[str]:
        kinds = Counter(
            "environment" if isinstance(row.payload, EnvironmentStep) else "policy"
            for row, _ in self._rows
            if not row.is_bare
        )
        other = {"policy": "environment", "environment": "policy"}.get(self.config.tasks, "")
        if kinds[other]:
            rows = counted(kinds[other], f"{other} row")
            yield f"{rows} not asked (chess.tasks={self.config.tasks})."
        path = self._context.dataset
        found = self._data.material
        if path is not None and path.is_dir() and found != Material():
            yield (
                f"of the folder, {len(found.positions)} bare positions, {len(found.games)} games "
                f"and {len(found.openings)} opening lines are for games and rollouts of the "
                "evaluation; give such a file by itself to be asked about it."
            )

    # --- tables and games -----------------------------------------------------------------------

    @cached_property
    def _store(self) -> TableStore:
        from rlvr_chess.tables.store import TableStore

        store = TableStore.of(self.config)
        weakref.finalize(self, store.close)
        return store

    @cached_property
    def _self_play(self) -> SelfPlay:
        from rlvr_chess.selfplay.grow import SelfPlay

        taken = {four_fields(problem.payload.fen) for problem in self._problems}

        def is_allowed(fen: str) -> bool:
            """New, and of no split "test", of another data set too."""
            position = four_fields(fen)
            return position not in taken and split_of(position, self.config.holdout) == "train"

        params = self._context.sampling or SamplingParams()
        return SelfPlay(self.config, params, is_allowed)


def _starter_rows() -> tuple[Row, ...]:
    rows = tuple(
        Row(
            id=f"starter-{number:04d}",
            payload=PolicyPosition(fen=values.fen, values=values, source="starter"),
            split=split,
            is_bare=True,
        )
        for number, (values, split) in enumerate(shipped_positions(), 1)
    )
    if not rows:
        raise PluginError(
            "the starter positions of rlvr-chess are not installed.",
            "found: no rlvr_chess/starter/positions.jsonl.gz",
            f"try: {pip_install('rlvr-chess', reinstall=True)}, or give --dataset",
        )
    questions = (
        Row(id=f"starter-rare-{number:04d}", payload=step, split=split)
        for number, (step, split) in enumerate(shipped_questions(), 1)
    )
    return (*rows, *questions)


def _has_values(problem: Problem) -> bool:
    return isinstance(problem.payload, PolicyPosition) and problem.payload.values is not None


def _is_forced(problem: Problem) -> bool:
    payload = problem.payload
    return not isinstance(payload, EnvironmentStep) and len(legal_moves(payload.fen)) == 1
