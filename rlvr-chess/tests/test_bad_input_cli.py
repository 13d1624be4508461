"""Bad input as a person meets it: through the command line, what is said and the exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import pytest
from engine_fixture import QUICK, script
from engine_fixture import stockfish as stockfish
from rlvr_fixture import Call, Done
from rlvr_fixture import rlvr as rlvr

pytestmark = pytest.mark.integration

START = chess.STARTING_FEN
MATED = "rnb1kbnr/pppp1ppp/8/4p3/6Pq/5P2/PPPPP2P/RNBQKBNR w KQkq - 1 3"
E4 = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq - 0 1"
PUZZLE = "6k1/p1p2ppp/1pqp2r1/3Q4/8/1P6/P1P2PPP/4RK2 b - - 8 22,c6d5 e1"
HUGE = "x" * 2_000_000
SCORE = ("score", "--plugin", "chess", "--golden", "--dataset")


def refused(done: Done, exit_code: int, *texts: str) -> None:
    """The exit code, all texts on standard error, no verdict, no traceback."""
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    for text in texts:
        assert text in done.stderr, done.stderr[:2000]


def verdicts(done: Done) -> dict[str, Any]:
    """Rewards by id of a command that scored what could be scored."""
    assert done.returncode == 0, done.stderr[:2000]
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["id"]: line["reward"] for line in lines}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (f"{START}\n".encode("utf-16"), "UTF-16 text; try: iconv -f UTF-16 -t UTF-8"),
        (bytes(range(256)) * 1000, "no text: it holds zero bytes"),
    ],
)
def test_a_file_that_is_no_data(rlvr: Call, tmp_path: Path, content: bytes, said: str) -> None:
    """Refused as a whole (exit 2) with what it is, and what can be read instead."""
    (tmp_path / "data.jsonl").write_bytes(content)
    refused(rlvr(*SCORE, "data.jsonl"), 2, "data.jsonl", said, "JSON Lines of transitions")


@pytest.mark.parametrize(
    ("name", "lines", "good", "said"),
    [
        ("p.fen", [START, START + HUGE, E4], ["1/env", "3/env"], "line 2: no position"),
        ("s.epd", [START[:-4] + " bm e4;"] * 2 + [HUGE], ["1", "2"], "line 3: no position"),
        (
            "s.epd",
            [START[:-4] + " bm e4;", f'{START[:-4]} bm e4; id "{HUGE}";'],
            ["1"],
            "its id has 2000000 characters",
        ),
        ("l.uci", ["e2e4 e7e5", f"e2e4 {HUGE}"], ["1.1/env", "1.2/env"], "line 2: move 2"),
        (
            "p.csv",
            ["PuzzleId,FEN,Moves,Rating", f"{HUGE},{PUZZLE}e8,400", f"good,{PUZZLE}e8,400"],
            ["good"],
            "line 2: not CSV",
        ),
        (
            "d.jsonl",
            [
                json.dumps({"fen": START, "uci": "e2e4"}),
                HUGE,
                json.dumps({"fen": START, "uci": HUGE}),
                json.dumps({"fen": HUGE, "uci": "e2e4"}),
                json.dumps({"fen": START, "uci": "d2d4", "id": HUGE}),
            ],
            ["1"],
            'line 3: "uci" has 2000000 characters',
        ),
    ],
    ids=["fen", "epd", "epd id", "openings", "puzzles", "json"],
)
def test_a_line_of_two_million_characters(
    rlvr: Call, write: Any, name: str, lines: list[str], good: list[str], said: str
) -> None:
    """Its number is said, in a text that a terminal can show; the other lines are scored."""
    done = rlvr(*SCORE, str(write(name, *lines)))
    found = verdicts(done)
    assert [key for key, reward in found.items() if reward == 1.0] == good
    assert said in done.stderr
    assert len(done.stderr) < 4000


def test_positions_that_are_none_or_are_over(rlvr: Call, write: Any) -> None:
    """Lines 2 and 3 are named with the reason; `chess.strict` refuses the file (exit 2)."""
    path = str(write("p.fen", START, START.replace("8/8/8/8", "8/8/8/9"), MATED))
    done = rlvr(*SCORE, path, "chess.tasks=environment")
    assert verdicts(done) == {"1/env": 1.0}
    assert "line 2: no position" in done.stderr
    assert "line 3: the game is over: checkmate" in done.stderr
    refused(rlvr(*SCORE, path, "chess.strict=true"), 2, "2 that are not: line 2")


def test_a_puzzle_with_broken_moves(rlvr: Call, write: Any) -> None:
    """Named with its line and the move; the others are scored."""
    path = write("p.csv", "PuzzleId,FEN,Moves,Rating", f"y,{PUZZLE}e1,400", f"z,{PUZZLE}e8,400")
    done = rlvr(*SCORE, str(path))
    assert verdicts(done) == {"z": 1.0}
    assert "y: unsupported: line 2: move 2 of its line, 'e1e1', is not legal" in done.stderr


def test_a_game_with_illegal_moves(rlvr: Call, write: Any) -> None:
    """The game is left out with its line and the move; the next one is scored."""
    path = write("g.pgn", '[Event "a"]', "", "1. e4 e5 2. Ke3 *", "", '[Event "b"]', "", "1. d4 *")
    done = rlvr(*SCORE, str(path), "chess.tasks=environment")
    assert verdicts(done) == {"2.1/env": 1.0}
    assert "line 1: game 1: illegal san: 'Ke3'" in done.stderr


@pytest.fixture
def answered(tmp_path: Path, write: Any) -> list[str]:
    """Words that score an answer to a position which no table holds."""
    text = " e7e5 c7c5 e7e6 c7c6 d7d5 E: -0.30 -0.30 -0.40 -0.50 -0.60 B: e7e5"
    path = write("one.fen", E4)
    answers = write("a.jsonl", {"id": "1", "completion": text})
    score = ["score", "--plugin", "chess", "--dataset", str(path), "--completions", str(answers)]
    return [*score, f"chess.nodes={QUICK}"]


def test_no_engine(rlvr: Call, answered: list[str]) -> None:
    """Exit 4 and the package to install: never a verdict."""
    done = rlvr(*answered, "chess.engine=/no/such", forks=True)
    refused(done, 4, "chess.engine=/no/such", "apt-get install stockfish")


def test_another_build_than_the_tables(
    rlvr: Call, stockfish: Path, answered: list[str], write: Any, tmp_path: Path
) -> None:
    """Exit 4, both builds named: values of two engines are mixed only on purpose."""
    words = ["--dataset", str(write("t.fen", START)), "--out", "t.jsonl", "--nodes", str(QUICK)]
    assert rlvr("chess", "build-table", *words).returncode == 0
    other = script(tmp_path, f"exec {stockfish}\n")
    mixed = [*answered, "chess.tables=t.jsonl", f"chess.engine={other}"]
    refused(rlvr(*mixed), 4, "this machine's engine is not the tables' engine", "different: binary")
    assert verdicts(rlvr(*mixed, "chess.any_engine=true")).keys() == {"1"}
