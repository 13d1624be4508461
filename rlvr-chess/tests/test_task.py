from __future__ import annotations

import asyncio
import functools
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import chess
import pytest
from engine_fixture import positions

from rlvr import BuildContext, PluginError, Problem, Reward, Trajectory
from rlvr.testing import PluginContract, TaskContract
from rlvr_chess import task as task_module
from rlvr_chess.config import ChessConfig
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.questions.transition import legal_moves
from rlvr_chess.rewards.reward import ChessReward
from rlvr_chess.task import ChessTask
from rlvr_chess.values import ActionValues

START = chess.STARTING_FEN
FORCED = "k7/8/2K5/8/8/8/8/1R6 b - - 0 60"
"""Black has one legal move, a8a7."""
ROOK = "4k3/8/8/8/8/8/8/R3K3 b Q - 0 40"
VALUES = [["e8f7", "cp", -480], ["e8e7", "cp", -490], ["e8d7", "cp", -490]]
VALUES += [["e8f8", "cp", -500], ["e8d8", "mate", -20]]
E4 = {"fen": START, "uci": "e2e4", "history": "e2e4", "category": "double_push_no_ep"}
EPD = f'{START[:-4]} bm d4; id "WAC.1";'


def values_of(fen: str) -> list[list[Any]]:
    """Values of every legal move: the first one best, 50 centipawns from move to move."""
    moves = [move.uci() for move in chess.Board(fen).legal_moves]
    return [[uci, "cp", 200 - 50 * i] for i, uci in enumerate(moves)]


@functools.cache
def rows() -> list[Any]:
    fens = positions(30, seed=5)
    made: list[Any] = [{"fen": fen, "moves": values_of(fen)} for fen in fens[:15]]
    return made + [{"fen": fen, "uci": values_of(fen)[0][0]} for fen in fens[15:]]


def judged(problem: Problem, text: str, **options: Any) -> Reward:
    async def judge() -> Reward:
        async with ChessReward(ChessConfig(**options), BuildContext()) as reward:
            return await reward(problem, Trajectory.from_text(problem.id, text))

    return asyncio.run(judge())


class TestPlugin(PluginContract):
    """The light module."""

    module = "rlvr_chess.plugin"


class TestTask(TaskContract):
    """The promises of a task, for action values and transitions in one file."""

    options: ClassVar[dict[str, Any]] = {"holdout": 0.4}
    path: ClassVar[Path]

    @pytest.fixture(autouse=True)
    def _data(self, write: Any) -> None:
        type(self).path = write("rows.jsonl", *rows())

    def make_task(self) -> ChessTask:
        return ChessTask(ChessConfig(**self.options), BuildContext(dataset=self.path))

    def make_reward(self) -> ChessReward:
        return ChessReward(ChessConfig(**self.options), BuildContext(dataset=self.path))


class TestRookworldTask(TestTask):
    """The same in the predecessor's wording."""

    options: ClassVar[dict[str, Any]] = {"holdout": 0.4, "profile": "rookworld", "history": 10}


def shipped(count: int) -> list[tuple[ActionValues, str]]:
    return [
        (ActionValues(fen=fen, moves=values_of(fen)), "test" if i % 3 == 0 else "train")
        for i, fen in enumerate(positions(count, seed=7))
    ]


def test_the_embedded_positions_are_asked_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one is a policy problem and an environment problem, both of the split it ships with."""
    monkeypatch.setattr(task_module, "shipped_positions", lambda: iter(shipped(12)))
    monkeypatch.setattr(task_module, "shipped_questions", lambda: iter(()))
    task = ChessTask(ChessConfig(), BuildContext())
    assert all(len(values.moves) > 1 for values, _ in shipped(12))
    for split, count in (("train", 8), ("test", 4), ("all", 12)):
        found = Counter(problem.labels["task"] for problem in task.problems(split))
        assert found == {"policy": count, "environment": count}
    first, second = list(task.problems("all"))[:2]
    assert (first.id, second.id) == ("starter-0001", "starter-0001/env")
    assert first.payload.fen == second.payload.fen


def test_without_the_embedded_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken installation says what is missing, and that a data set would do."""
    monkeypatch.setattr(task_module, "shipped_positions", lambda: iter(()))
    with pytest.raises(PluginError, match="--dataset"):
        list(ChessTask(ChessConfig(), BuildContext()).problems("all"))


@pytest.mark.parametrize(
    ("tasks", "ids"),
    [
        ("both", ["1", "1/env", "2", "3"]),
        ("policy", ["1", "2"]),
        ("environment", ["1/env", "3"]),
    ],
)
def test_which_tasks_are_asked(write: Any, make_task: Any, tasks: str, ids: list[str]) -> None:
    """A bare position stands for both; what is not asked is said before a run."""
    task = make_task(
        write("d.jsonl", {"fen": START}, {"fen": ROOK, "moves": VALUES}, E4), tasks=tasks
    )
    assert [problem.id for problem in task.problems("all")] == ids
    said = " ".join(task.warnings("all"))
    assert (" not asked (chess.tasks" in said) == (tasks != "both")


def test_single_moves_do_not_train(write: Any, make_task: Any) -> None:
    """Where one move is legal every answer earns the same: only the environment problem stays."""
    task = make_task(write("d.fen", FORCED), holdout=0.0)
    assert len(legal_moves(FORCED)) == 1
    assert [problem.id for problem in task.problems("train")] == ["1/env"]
    assert [problem.id for problem in task.problems("all")] == ["1", "1/env"]
    assert "1 position with a single legal move" in " ".join(task.warnings("train"))


def test_labels_tell_problems_apart(write: Any, make_task: Any) -> None:
    """Task, colour, phase, ply; category of a move, suite and rating of a solution."""
    path = write("d.jsonl", {"fen": ROOK, "moves": VALUES, "source": "game"}, E4)
    policy, step = make_task(path).problems("all")
    assert dict(policy.labels) == {
        "task": "policy", "colour": "black", "phase": "endgame", "ply": "61-80", "source": "game",
        "family": four_fields(ROOK),
    }  # fmt: skip
    assert dict(step.labels) == {
        "task": "environment", "category": "double_push_no_ep", "colour": "white",
        "phase": "opening", "ply": "1-20", "family": four_fields(chess.STARTING_FEN),
    }  # fmt: skip
    (suite,) = make_task(write("s.epd", EPD)).problems("all")
    assert (suite.labels["task"], suite.labels["suite"], suite.split) == ("solve", "wac", "test")


def test_no_two_problems_share_an_id(write: Any, make_task: Any) -> None:
    """The second question about a position gives way to a row that has its name."""
    step = {"fen": START, "uci": "d2d4", "id": "a/env"}
    refused = {"fen": ROOK, "uci": 5, "id": "a/env~2"}
    task = make_task(write("d.jsonl", step, {"fen": ROOK, "id": "a"}, refused))
    assert [problem.id for problem in task.problems("all")] == ["a/env", "a", "a/env~3"]
    assert list(task.unsupported()) == ["a/env~2"]


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_references_at_the_limits_of_the_grammar_earn_everything(
    write: Any, make_task: Any, profile: str
) -> None:
    """What is read can be answered: the last clock, the largest values."""
    late = ROOK.replace(" 40", " 9999")
    values = [["e8f7", "mate", 9999], ["e8e7", "cp", 999_999], ["e8d7", "cp", -999_999]]
    values += [["e8f8", "mate", -9999], ["e8d8", "mate", -1]]
    last = {"fen": f"{START[:-1]}9999", "uci": "e2e4"}
    path = write("d.jsonl", {"fen": late, "moves": values}, last, {"fen": late, "uci": "e8e1"})
    task = make_task(path, profile=profile)
    assert len(task.problems("all")) == 3
    for problem in task.problems("all"):
        found = judged(problem, task.reference(problem).completion, profile=profile)
        assert found.score01 == 1.0, problem.id


def test_history_is_shown_where_it_is_asked_for(write: Any, make_task: Any) -> None:
    """`chess.history` last moves, the current one last."""
    path = write("l.uci", "e2e4 e7e5 g1f3")
    for shown, moves in ((0, ""), (2, "e7e5 g1f3+"), (10, "e2e4 e7e5 g1f3+")):
        last = list(make_task(path, history=shown).problems("all"))[-1]
        assert last.prompt[0].content.endswith(f"+g1f3+{moves}")


def test_what_decides_a_verdict_is_in_the_digest(write: Any, make_task: Any) -> None:
    """Other values, another move, another profile: another digest. The same rows: the same."""
    path = write("a.jsonl", {"fen": ROOK, "moves": VALUES}, E4)
    changed = [*VALUES[:-1], ["e8d8", "mate", -19]]
    other = write("b.jsonl", {"fen": ROOK, "moves": changed}, {**E4, "uci": "d2d4"})
    digests = [
        [p.digest for p in make_task(at, profile=profile).problems("all")]
        for at, profile in ((path, "canonical"), (other, "canonical"), (path, "rookworld"))
    ]
    assert len({digest for found in digests for digest in found}) == 6
    assert digests[0] == [p.digest for p in make_task(path).problems("all")]


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_references_earn_everything(write: Any, make_task: Any, profile: str) -> None:
    """The perfect line, the true state, the solution: each is right and earns 1."""
    path = write("d.jsonl", {"fen": ROOK, "moves": VALUES}, E4, {"fen": START, "uci": "e2e5"})
    task = make_task(path, profile=profile)
    problems = [*task.problems("all"), *make_task(write("s.epd", EPD)).problems("all")]
    for problem in problems:
        reference = task.reference(problem)
        assert reference is not None
        found = judged(problem, reference.completion, profile=profile)
        assert (found.score01, found.value) == (1.0, pytest.approx(1.0))


def test_no_reference_without_values(write: Any, make_task: Any) -> None:
    """A position that no table holds has none, and no engine is started to find one."""
    task = make_task(write("p.fen", START), engine="/nowhere/stockfish")
    policy, step = task.problems("all")
    assert task.reference(policy) is None
    assert task.reference(step) is not None
    assert "1 of 2 problems come without action values" in " ".join(task.warnings("all"))


@pytest.mark.parametrize("profile", ["canonical", "rookworld"])
def test_probes_get_the_verdict_they_name(write: Any, make_task: Any, profile: str) -> None:
    """The reward rejects every wrong answer of an audit and accepts the right one."""
    path = write("d.jsonl", *rows(), {"fen": START, "uci": "e2e5"})
    task = make_task(path, profile=profile)
    kinds = set()
    solutions = list(make_task(write("s.epd", EPD)).problems("all"))
    for problem in [*list(task.problems("all"))[::4], *solutions]:
        probes = list(task.probes(problem, count=6, seed=1))
        assert [p.kind for p in probes if p.is_mutant]
        for probe in probes:
            found = judged(problem, probe.trajectory.completion, profile=profile)
            assert (found.score01 == 1.0) == probe.is_right, (problem.id, probe)
            kinds.add(probe.kind)
    assert {"initial", "copied input", "illegal move", "bad move", "bad move, repeated"} <= kinds


def test_more_probes_begin_with_the_same(write: Any, make_task: Any) -> None:
    """A larger count gives the same ones and more."""
    task = make_task(write("d.jsonl", E4))
    (problem,) = task.problems("all")
    few, many = (list(task.probes(problem, count=n, seed=4)) for n in (3, 9))
    assert many[: len(few)] == few
    assert len(many) > len(few)


def test_games_have_the_split_of_their_positions(write: Any, make_task: Any) -> None:
    """A game is held out as its own positions are, so that a rollout of it is unseen."""
    games = [f"1. {move} e6 *\n" for move in ("e4", "d4", "c4", "f4", "b4", "a4", "g3", "b3")]
    path = write("g.pgn", *[f'[Event "{i}"]\n\n{game}' for i, game in enumerate(games)])
    task = make_task(path, holdout=0.5, tasks="environment")
    split = {game.id: game.split for game in task.material.games}
    assert set(split.values()) == {"train", "test"}
    for problem in task.problems("all"):
        if problem.id.endswith(".2/env"):
            assert problem.split == split[problem.id.split(".")[0]]


def test_only_an_uneven_mix_is_an_opinion(write: Any, make_task: Any) -> None:
    """The default leaves room for a curriculum; a share that somebody asked for does not."""
    path = write("d.jsonl", E4)
    assert make_task(path).curriculum_option == ""
    assert make_task(path, mix=0.25).curriculum_option == "chess.mix=0.25"
    assert make_task(path, mix=0.25, tasks="policy").curriculum_option == ""


def test_what_self_play_found_is_a_problem(write: Any, make_task: Any) -> None:
    """Without self-play the memory stays as it is and holds nothing."""
    task = make_task(write("d.jsonl", E4))
    memory: dict[str, Any] = {}
    assert asyncio.run(task.discover(None, memory, seed=1, step=0)) == {}
    assert task.discovered(memory) == []
    assert isinstance(task.problems("all")[0].payload, EnvironmentStep)
