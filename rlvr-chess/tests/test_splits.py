from __future__ import annotations

import random
from collections import defaultdict

import chess
from hypothesis import given, settings
from hypothesis import strategies as st

from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.rows.row import Row, Unsupported
from rlvr_chess.splits import divide, split_of

FENS = ["".join(f) for f in zip(["8/8/8/8/8/4k3/8/R3K3 w Q - 0 "] * 6, "123456", strict=True)]
FENS += ["4k3/8/8/8/8/8/8/R3K3 b - - 0 1", "4k3/8/8/8/8/8/8/R3K3 w - - 0 1", chess.STARTING_FEN]


def row(name: str, fen: str, *, split: str = "", game: str = "") -> Row:
    return Row(id=name, payload=PolicyPosition(fen=fen), split=split, game=game)


def test_the_share_that_is_held_out() -> None:
    """Of 4,000 keys a share of 0.2 is held out, within four standard errors; 0 and 1 are exact."""
    keys = [str(number) for number in range(4000)]
    found = sum(split_of(key, 0.2) == "test" for key in keys)
    assert abs(found - 800) < 4 * (4000 * 0.2 * 0.8) ** 0.5
    assert {split_of(key, 0.0) for key in keys} == {"train"}
    assert {split_of(key, 1.0) for key in keys} == {"test"}


def test_clocks_do_not_make_another_position() -> None:
    """A position and the same one later in a game are in one split, whatever the share."""
    for holdout in (0.1, 0.5, 0.9):
        found = divide([row(str(i), fen) for i, fen in enumerate(FENS[:6])], holdout)
        assert len({item[1] for item in found if not isinstance(item, Unsupported)}) == 1


def test_a_rows_own_split_wins_and_takes_others_along() -> None:
    """The same position of another row, of a game even, follows it."""
    fen = chess.STARTING_FEN
    found = divide([row("a", fen, game="g"), row("b", fen, split="test"), row("c", fen)], 0.0)
    assert [item[1] for item in found if not isinstance(item, Unsupported)] == ["test"] * 3


def test_two_rows_that_disagree() -> None:
    """What one row holds out, no other row may train on: it is unsupported, with the reason."""
    fen = chess.STARTING_FEN
    first, second = divide([row("a", fen, split="train"), row("b", fen, split="test")], 0.2)
    assert isinstance(first, Unsupported)
    assert "held out" in first.reason
    assert second == (row("b", fen, split="test"), "test")


def test_games_that_share_a_position() -> None:
    """The shared position trains; positions of one game alone go with the game."""
    games = {split_of(str(n), 0.5): str(n) for n in range(20)}
    rows = [
        row("shared 1", FENS[0], game=games["train"]),
        row("shared 2", FENS[0], game=games["test"]),
        row("alone", FENS[6], game=games["test"]),
    ]
    found = {item[0].id: item[1] for item in divide(rows, 0.5) if not isinstance(item, Unsupported)}
    assert found == {"shared 1": "train", "shared 2": "train", "alone": "test"}


@settings(deadline=None, max_examples=50)
@given(st.integers(), st.floats(0, 1))
def test_no_position_is_in_both_splits(seed: int, holdout: float) -> None:
    """Brute force over random rows, games and own splits; every row is there or has a reason."""
    rng = random.Random(seed)
    rows = []
    for number in range(30):
        fen, split = rng.choice(FENS), rng.choice(["", "", "", "train", "test"])
        payload = EnvironmentStep(fen=fen, uci="a1a2") if rng.random() < 0.5 else None
        made = row(str(number), fen, split=split, game=rng.choice(["", "g1", "g2", "g3"]))
        rows.append(Row(id=made.id, payload=payload, split=split) if payload else made)
    found = divide(rows, holdout)
    assert len(found) == len(rows)
    splits = defaultdict(set)
    for item in found:
        if not isinstance(item, Unsupported):
            splits[tuple(item[0].payload.fen.split()[:4])].add(item[1])
    assert all(len(both) == 1 for both in splits.values())
