"""The suite as a whole: through the task, with and without material, its files, its order."""

from __future__ import annotations

import asyncio
import functools
import json
import math
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import chess
import chess.pgn
import pytest
from attrs import evolve
from engine_fixture import stockfish as stockfish

from rlvr import BuildContext, Metric, Problem
from rlvr.border.declared import overrides
from rlvr.testing.fakes import ScriptedPolicy
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.evaluation.bench import Bench, Questions, sorted_out
from rlvr_chess.evaluation.contamination import STARTER, Seen, mirrors, read_hashes, seen_positions
from rlvr_chess.evaluation.environment import LEAST, Foretold
from rlvr_chess.evaluation.games import ladder, rollout
from rlvr_chess.evaluation.games.rollout import engine_games
from rlvr_chess.evaluation.report import write_report
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.categories import category_of
from rlvr_chess.questions.grammar import (
    environment_text,
    parse_environment,
    policy_text,
    policy_text_of,
)
from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.questions.transition import legal_moves, transition
from rlvr_chess.rows import Material
from rlvr_chess.selfplay.arena import Pairing, play
from rlvr_chess.selfplay.game import Game, Rules
from rlvr_chess.tables.file import shipped_questions
from rlvr_chess.task import ChessTask
from rlvr_chess.values import ActionValues

MATE = "6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - 0 1"
SETUP = "7k/7p/8/8/8/8/R7/1R4K1 b - - 0 1"
PGN = '[Event "x"]\n[Result "*"]\n\n' + "Nf3 Nf6 Ng1 Ng8 " * 9 + "*\n"
COLUMNS = "PuzzleId,FEN,Moves,Rating,RatingDeviation,Popularity,NbPlays,Themes,GameUrl,OpeningTags"


@functools.cache
def table(fen: str) -> ActionValues:
    """Values of our own: a mate first, then moves in order, each ten centipawns worse."""
    board = chess.Board(fen)
    mates = sorted(move.uci() for move in board.legal_moves if mates_by(board, move))
    others = sorted(legal_moves(fen) - set(mates))
    moves = [(uci, "mate", 1) for uci in mates]
    return ActionValues(
        fen=fen, moves=[*moves, *((uci, "cp", 300 - 10 * i) for i, uci in enumerate(others))]
    )


def mates_by(board: chess.Board, move: chess.Move) -> bool:
    if not board.gives_check(move):
        return False
    board.push(move)
    is_mate = board.is_checkmate()
    board.pop()
    return is_mate


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set with a little of everything."""
    data = tmp_path / "data"
    data.mkdir()
    fens = [MATE, chess.STARTING_FEN]
    rows = [{"fen": fen, "moves": [list(m) for m in table(fen).moves]} for fen in fens]
    (data / "values.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = []
    for fen, uci, category in ((MATE, "d1d8", "checkmate"), (MATE, "h2h3", "quiet")):
        truth = transition(fen, uci)
        state = {"new_fen": truth.fen, "reward": float(truth.reward)}
        ends = {"terminated": int(truth.terminated), "truncated": int(truth.truncated)}
        steps.append(
            {"category": category, "fen": fen, "uci": uci, "history": uci, **state, **ends}
        )
    (data / "steps.jsonl").write_text("".join(json.dumps(row) + "\n" for row in steps))
    puzzle = f"fghij,{SETUP},h7h6 a2a7 h8g8 b1b8,1250,80,90,1,mateIn2,,"
    (data / "puzzles.csv").write_text(f"{COLUMNS}\n{puzzle}\n")
    (data / "mates.epd").write_text('6k1/5ppp/8/8/8/8/5PPP/3R2K1 w - - bm Rd8#; id "WAC.001";\n')
    (data / "games.pgn").write_text(PGN)
    (data / "lines.uci").write_text("e2e4 e7e5\nd2d4 d7d5\ng1f3 g8f6\n")
    return data


def knows_everything(prompt: str, _seed: int) -> str:
    """The truth, and the first move of the table, which is a mate where there is one."""
    if prompt.startswith("A: "):
        fen, uci = prompt.removeprefix("A: ").split("+")[:2]
        return environment_text(transition(fen, uci))
    fen = prompt.removeprefix("P: ").removesuffix(" M:")
    return policy_text_of(table(fen))


def moves_at_random(prompt: str, seed: int) -> str:
    fen = prompt.removeprefix("P: ").removesuffix(" M:")
    legal = sorted(legal_moves(fen))
    count = min(5, len(legal))
    return policy_text(legal[:count], ["0.00"] * count, random.Random(f"{fen}{seed}").choice(legal))


def measured(
    data: Path, policy: ScriptedPolicy, config: ChessConfig, split: str = "all"
) -> dict[str, Metric]:
    return measured_task(ChessTask(config, BuildContext(dataset=data)), policy, split)


def measured_task(task: ChessTask, policy: ScriptedPolicy, split: str) -> dict[str, Metric]:
    assert overrides(task, "measure")

    async def collect() -> list[Metric]:
        return [figure async for figure in task.measure(policy, split=split, seed=3)]

    found = asyncio.run(collect())
    named = {figure.name: figure for figure in found}
    assert len(named) == len(found), "every figure has a name of its own"
    return named


def test_every_part_is_measured(folder: Path, stockfish: Path, tmp_path: Path) -> None:
    """A policy that knows everything has 100 % of what can be known, and the report its files."""
    report = tmp_path / "report"
    config = ChessConfig(eval_games=2, report=str(report), engines=1)
    found = measured(folder, ScriptedPolicy(knows_everything), config)
    for name in ("policy/format", "policy/legal", "policy/best", "environment/exact"):
        assert found[name].value == 1.0, name
    assert found["policy/regret"].value == 0.0
    assert found["environment/exact"].n == 2
    assert found["environment/exact_floor"].value == 0.5, "a mate needs rules, a quiet move none"
    assert found["environment/macro"].note == "no category has 30 rows"
    assert found["suites/wac/solved"].value == 1.0
    assert found["rollout/exact_at_32"].value == 1.0
    assert found["puzzles/first/1200-1599"].n == 1
    assert "selfplay/first_illegal" in found
    assert found["selfplay/illegal_share"].value == 0.0
    assert {"elo/loss", "elo/resample"} <= set(found)
    assert found["contamination/seen"].n > 0
    for figure in found.values():
        assert math.isnan(figure.value) == (figure.n == 0), figure
        if figure.n:
            alone = math.isnan(figure.low) and math.isnan(figure.high)
            assert alone or figure.low <= figure.value <= figure.high, figure
        else:
            assert figure.note, "what is left out says why"
    page = (report / "report.md").read_text()
    assert "| policy/regret | 0 |" in page
    with (report / "games-selfplay.pgn").open() as games:
        game = chess.pgn.read_game(games)
    assert game is not None
    assert not game.errors
    assert "games-elo-loss.pgn" in page


def test_what_is_missing_is_said_and_never_a_number(tmp_path: Path) -> None:
    """No puzzles, suites, games, engine: each figure is left out with its reason."""
    data = tmp_path / "one.jsonl"
    values = table(MATE)
    data.write_text(json.dumps({"fen": MATE, "moves": [list(m) for m in values.moves]}) + "\n")
    config = ChessConfig(engine="/nowhere/stockfish", tasks="policy", eval_games=10)
    found = measured(data, ScriptedPolicy(moves_at_random), config)
    reasons = {name: figure.note for name, figure in found.items() if math.isnan(figure.value)}
    assert "no puzzles in the data set" in reasons["puzzles"]
    assert "no test suite" in reasons["suites"]
    assert "no game of 32 plies" in reasons["rollout"]
    assert "/nowhere/stockfish" in reasons["elo"]
    assert "/nowhere/stockfish" in reasons["rollout"]
    assert "no move to foretell" in reasons["environment"]
    assert "never came to it" in reasons["selfplay/first_illegal"]
    assert found["policy/legal"].value == 1.0


def test_positions_nobody_scored_are_counted_as_left_out(tmp_path: Path) -> None:
    """Without an engine a bare position has no regret; it is not in n, and that is said."""
    data = tmp_path / "positions.fen"
    data.write_text(f"{MATE}\n")
    config = ChessConfig(engine="/nowhere/stockfish", tasks="policy", eval_games=0)
    found = measured(data, ScriptedPolicy(moves_at_random), config)
    assert "1 position without values" in found["policy"].note
    assert found["elo"].note == "chess.eval_games=0"


def test_options_bound_everything_that_is_played(
    folder: Path, stockfish: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`eval_games=2`: two games a rung, in the rough look too; `eval_limit=1`: one rollout."""
    met: list[str] = []

    async def counted(
        pairings: Sequence[Pairing], *, seed: int, rules: Rules | None = None
    ) -> list[Game]:
        if rules is not None:  # self-play, which is counted below, goes by the default
            met.extend("-".join(sorted((one.white.name, one.black.name))) for one in pairings)
        return await play(pairings, rules=rules, seed=seed)

    for module in (ladder, rollout):
        monkeypatch.setattr(module, "play", counted)
    (folder / "games.pgn").unlink()
    found = measured(
        folder,
        ScriptedPolicy(knows_everything),
        ChessConfig(eval_games=2, eval_limit=1, engines=1),
    )
    rungs = [name for name in met if "model" in name]
    rounds = 2 * len(ladder.MODES)  # a rough look and a match in each mode
    assert max(Counter(rungs).values()) <= 2 * rounds
    assert len(rungs) == len(ladder.MODES) * 2 * (len(ladder.PROBED) + ladder.NEAREST)
    assert len(met) - len(rungs) == 1, "games of the engine by itself"
    assert found["rollout/exact_at_1"].n == 1
    assert found["policy/best"].n == 1
    assert found["selfplay/illegal_share"].n == 2


@pytest.mark.parametrize("games", [0, 1])
def test_no_game_is_played_where_none_is_wanted(folder: Path, games: int) -> None:
    """No engine is started: what would take games is left out and says which option did it."""
    (folder / "games.pgn").unlink()
    config = ChessConfig(engine="/nowhere/stockfish", eval_games=games, eval_limit=1)
    found = measured(folder, ScriptedPolicy(knows_everything), config)
    assert f"chess.eval_games={games}" in found["elo"].note
    assert (found["rollout"].note.endswith("chess.eval_games=0")) == (games == 0)


@pytest.fixture(scope="module")
def starter() -> ChessTask:
    """The task on what is shipped."""
    return ChessTask(ChessConfig(eval_games=0, eval_limit=1), BuildContext())


@pytest.fixture(scope="module")
def shipped(starter: ChessTask) -> list[Problem]:
    """All its problems."""
    return list(starter.problems("all"))


@pytest.mark.parametrize("split", ["test", "train"])
def test_the_starter_asks_every_kind_of_move_often_enough(
    shipped: list[Problem], split: str
) -> None:
    """Each split has 30 questions or more of each kind, named as the rules name them."""
    problems = [p for p in shipped if p.split == split and isinstance(p.payload, EnvironmentStep)]
    counts = Counter(p.payload.category for p in problems)
    assert len(counts) == 28
    assert min(counts.values()) >= LEAST
    for problem in problems:
        step = problem.payload
        assert step.category == category_of(step.fen, step.uci)


def test_the_starters_rare_questions_were_never_seen(shipped: list[Problem]) -> None:
    """Held-out ones: neither trained on nor read by the starter model; one to a position."""
    trained = seen_positions(p.payload.fen for p in shipped if p.split == "train")
    seen = Seen(trained, read_hashes(STARTER))
    rare = {split: [] for split in ("train", "test")}
    for problem in shipped:
        if problem.id.startswith("starter-rare-"):
            rare[problem.split].append(four_fields(problem.payload.fen))
    assert not [position for position in rare["test"] if position in seen]
    every = rare["train"] + rare["test"]
    assert len(set(every)) == len(every)
    held_out = {four_fields(p.payload.fen) for p in shipped if p.split == "test"}
    assert not held_out & {mirror for position in rare["train"] for mirror in mirrors(position)}


def test_the_contamination_note_counts_each_position_once(
    starter: ChessTask, shipped: list[Problem]
) -> None:
    """On the starter, split "train" holds each shipped position twice: 3,428 of them are named."""
    found = measured_task(starter, ScriptedPolicy(random_world), "test")
    positions = {four_fields(p.payload.fen) for p in shipped if p.split == "train"}
    note = found["contamination/seen"].note
    assert f"{len(positions)} shipped training positions" in note
    assert "of split 'train'" not in note


def test_what_the_starter_trains_on_is_seen_in_any_data_set(tmp_path: Path) -> None:
    """Shipped positions and shipped questions of split "train" count; held-out ones do not."""
    rows = {
        split: [step for step, own in shipped_questions() if own == split]
        for split in ("train", "test")
    }
    for split, steps in rows.items():
        data = tmp_path / f"{split}.jsonl"
        lines = [{"fen": step.fen, "uci": step.uci, "split": "test"} for step in steps[::40]]
        data.write_text("".join(json.dumps(line) + "\n" for line in lines))
        found = measured(data, ScriptedPolicy(random_world), ChessConfig(eval_games=0), "test")
        assert found["contamination/seen"].value == float(split == "train")
        assert found["contamination/seen"].n == len(lines) > 10


def test_games_of_the_engine_stand_in(stockfish: Path) -> None:
    """Where a data set has no games: the same each time, from the book, no longer than asked."""

    async def played() -> list[Game]:
        async with EnginePool(EngineConfig(processes=1)) as pool:
            return await engine_games(pool, 8, count=2)

    one, other = asyncio.run(played()), asyncio.run(played())
    assert one == other
    assert len({game.moves for game in one}) == 2
    for game in one:
        assert game.book > 0
        assert 0 < game.plies - game.book <= 8


@pytest.mark.thorough
def test_equal_seeds_give_equal_figures(folder: Path, stockfish: Path) -> None:
    """Everything drawn comes from the seed: two evaluations agree in every digit."""
    config = ChessConfig(eval_games=2, engines=1)
    one = measured(folder, ScriptedPolicy(random_world), config)
    other = measured(folder, ScriptedPolicy(random_world), config)
    assert str(one) == str(other)


def random_world(prompt: str, seed: int) -> str:
    return "nonsense" if prompt.startswith("A: ") else moves_at_random(prompt, seed)


def test_a_mistake_has_its_board_in_the_report(folder: Path, tmp_path: Path) -> None:
    """A bad move, a wrong state and a failed puzzle are drawn and named."""

    def script(prompt: str, seed: int) -> str:
        if prompt.startswith("A: "):
            return f"{MATE}+0.001+0+0"
        fen = prompt.removeprefix("P: ").removesuffix(" M:")
        worst = table(fen).moves[-1][0]
        count = min(5, len(legal_moves(fen)))
        return policy_text([worst] * count, ["0.00"] * count, worst)

    report = tmp_path / "report"
    config = ChessConfig(eval_games=0, report=str(report))
    measured(folder, ScriptedPolicy(script), config)
    page = (report / "report.md").read_text()
    for kind in ("policy-1", "environment-1", "puzzle-1"):
        assert f"![{kind}]({kind}.svg)" in page
        assert (report / f"{kind}.svg").read_text().startswith("<svg")
    assert "fghij, rated 1250: g1h2 instead of a2a7" in page


def test_a_board_that_cannot_be_drawn_costs_nothing_else(tmp_path: Path) -> None:
    """Its reason and caption stand in the report; the other boards and the figures are there."""
    late = transition("4k3/8/8/8/8/8/8/4K2R b - - 0 9", "e8d8")
    beyond = evolve(late, fen=late.fen.replace(" 10", " 10000"))
    wrong = parse_environment(f"{MATE}+0.001+0+0", "canonical")
    bench = Bench(
        policy=ScriptedPolicy(knows_everything),
        config=ChessConfig(),
        questions=Questions(),
        material=Material(),
        split="all",
        seed=1,
    )
    bench.found.environment["a"] = Foretold(truth=beyond, answer=wrong)
    bench.found.environment["b"] = Foretold(truth=late, answer=wrong)
    alone = Metric(name="policy/kendall_tau", value=0.5, low=math.nan, high=math.nan, n=1)

    write_report(tmp_path, bench, [alone])

    page = (tmp_path / "report.md").read_text()
    assert sorted(p.suffix for p in tmp_path.iterdir()) == [".md", ".svg"]
    assert page.count("no board, it cannot be drawn: ") == 1
    assert page.count(".svg)") == 1
    assert "Move a (" in page
    assert "Move b (" in page
    assert "| policy/kendall_tau | 0.5 | - | 1 |" in page


def test_a_limit_keeps_some_of_every_category() -> None:
    """Of 60 problems in three categories, 50 in one of them, a limit of 6 keeps two of each."""
    problems = [
        Problem(
            id=f"{name}-{number}",
            prompt=[],
            payload=EnvironmentStep(fen=MATE, uci="h2h3", category=name),
        )
        for name, count in (("quiet", 50), ("checkmate", 5), ("capture", 5))
        for number in range(count)
    ]
    kept = sorted_out(problems, 6).environment
    counts = [sum(p.payload.category == name for p in kept) for name in ("quiet", "capture")]
    assert (len(kept), counts) == (6, [2, 2])
    assert kept == sorted_out(list(reversed(problems)), 6).environment[::-1]
    assert sorted_out(problems, 0).environment == tuple(problems)
