from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chess
import pytest
from engine_fixture import positions
from engine_fixture import stockfish as stockfish

from rlvr import ConfigError
from rlvr.testing.tools import shared_data
from rlvr_chess.commands.generate import generate
from rlvr_chess.fen import flip, flip_move
from rlvr_chess.questions.grammar import Profile, parse_environment, parse_policy
from rlvr_chess.questions.transition import transition

PROFILES: tuple[Profile, ...] = ("canonical", "rookworld")


def values_of(fen: str) -> list[list[Any]]:
    """Best first, 30 centipawns from move to move; moves in the order of their names."""
    moves = sorted(move.uci() for move in chess.Board(fen).legal_moves)
    return [[uci, "cp", 300 - 30 * i] for i, uci in enumerate(moves)]


def made(tmp_path: Path, dataset: Path, *options: str) -> list[dict[str, str]]:
    out = tmp_path / "out.jsonl"
    words = ["--dataset", str(dataset), "--out", str(out), "--split", "all", *options]
    assert generate(words) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_label_is_the_best_move_for_both_colours(
    write: Any, tmp_path: Path, profile: Profile
) -> None:
    """
    B is the move of the largest value, for Black as for White.

    The predecessor took the last move for Black, although values are the side to move's.
    """
    fens = positions(40, seed=11)
    fens += [flip(fen) for fen in fens]
    rows = [{"fen": fen, "moves": values_of(fen)} for fen in fens]
    for row in rows[40:]:  # the flipped position has the flipped moves' values
        row["moves"] = [[flip_move(uci), *rest] for uci, *rest in values_of(flip(row["fen"]))]
    found = made(tmp_path, write("v.jsonl", *rows), "--profile", profile)
    assert {row["fen"].split()[1] for row in rows} == {"w", "b"}
    for row, line in zip(rows, found, strict=True):
        answer = parse_policy(line["completion"], min(5, len(row["moves"])), profile)
        assert answer is not None, line
        assert answer.best == row["moves"][0][0]
        assert set(answer.moves) == {move[0] for move in row["moves"][:5]}
        said = dict(zip(answer.moves, map(float, answer.evals), strict=True))
        assert said == {uci: value / 100 for uci, _, value in row["moves"][:5]}


def test_real_tables_name_the_best_move(tmp_path: Path) -> None:
    """Of the 700 real tables no row's B is worse than another move, White's or Black's."""
    path = shared_data("chess", "policy_action_values.jsonl")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    found = made(tmp_path, path)
    sides = {"w": 0, "b": 0}
    for row, line in zip(rows, found, strict=True):
        worth = {
            uci: value if kind == "cp" else (10_000 - value if value > 0 else -10_000 - value)
            for uci, kind, value in row["moves"]
        }
        assert worth[line["completion"].rpartition(" B: ")[2]] >= max(worth.values()) - 30
        sides[row["fen"].split()[1]] += 1
    assert min(sides.values()) > 300


def test_order_of_the_candidates(write: Any, tmp_path: Path) -> None:
    """Canonical lines keep the engine's order; rookworld's are shuffled by the seed."""
    rows = [{"fen": fen, "moves": values_of(fen)} for fen in positions(20, seed=3)]
    path = write("v.jsonl", *rows)

    def lines(*options: str) -> list[str]:
        return [row["completion"] for row in made(tmp_path, path, *options)]

    for row, line in zip(rows, lines(), strict=True):
        assert line.split(" E: ")[0].split() == [move[0] for move in row["moves"][:5]]
    one, again, two = (lines("--profile", "rookworld", "--seed", seed) for seed in ("1", "1", "2"))
    assert one == again != two
    assert [line.rpartition("B: ")[2] for line in one] == [
        line.rpartition("B: ")[2] for line in two
    ]


@pytest.mark.parametrize("profile", PROFILES)
def test_states_are_what_the_rules_say(write: Any, tmp_path: Path, profile: Profile) -> None:
    """Legal and illegal moves: the completion is the true state, in the wording of the profile."""
    path = write("t.jsonl", *[{"fen": chess.STARTING_FEN, "uci": m} for m in ("e2e4", "e2e5")])
    for row, uci in zip(made(tmp_path, path, "--profile", profile), ("e2e4", "e2e5"), strict=True):
        truth = transition(chess.STARTING_FEN, uci)
        answer = parse_environment(row["completion"], profile)
        assert answer is not None
        assert (answer.fen, answer.reward) == (truth.fen, truth.reward)
        assert f"+{uci}+" in row["prompt"]


def test_positions_without_values_are_searched(
    stockfish: Path, write: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mate in one is found by the real engine and becomes the label."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = write("m.fen", "6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1")
    (row,) = made(
        tmp_path, path, "--tasks", "policy", "--nodes", "5000", "--engine", str(stockfish)
    )
    assert row["completion"].endswith(" B: a1a8")
    assert " E: #1 " in row["completion"]


def test_nothing_to_train_on(write: Any, tmp_path: Path) -> None:
    """A suite is for measuring: no row is made of it, and that is said."""
    path = write("s.epd", f'{chess.STARTING_FEN[:-4]} bm e4; id "WAC.1";')
    with pytest.raises(ConfigError, match="no position to train on"):
        made(tmp_path, path)
