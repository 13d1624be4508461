"""The starter's lessons: shares of the kinds, right answers, games in their order, mirrors."""

from __future__ import annotations

import itertools
import json
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import chess
import pytest

from rlvr_chess.questions.categories import category_of
from rlvr_chess.questions.grammar import environment_text
from rlvr_chess.questions.transition import transition

FENS = [
    chess.STARTING_FEN,
    "r3k2r/pppq1ppp/2npbn2/2b1p3/2B1P3/2NPBN2/PPPQ1PPP/R3K2R w KQkq - 0 9",  # castles both ways
    "r3k2r/ppp2ppp/2np1n2/2b1p3/2B1P1b1/2NP1N2/PPP2PPP/R1BQ1RK1 b kq - 0 9",
    "rnbqkbnr/ppp1pppp/8/8/3p4/7N/PPPPPPPP/RNBQKB1R w KQkq - 0 3",  # c2c4, e2e4 may be captured
    "rnbqkbnr/ppp1p1pp/8/3pPp2/8/8/PPPP1PPP/RNBQKBNR w KQkq f6 0 3",  # en passant
    "1n5k/P7/8/8/8/8/6p1/K6N w - - 0 50",  # promotions, with and without a capture
    "6k1/5ppp/8/8/8/8/5PPP/R5K1 w - - 0 30",  # a mate
    "7k/8/5K2/8/6Q1/8/8/8 w - - 0 60",  # Qg6 is stalemate
    "r3k3/8/8/8/8/8/6B1/4K2R w Kq - 0 40",  # takes a rook and its right
    "4k3/8/8/8/1b6/8/3N4/4K3 w - - 0 40",  # a knight that is pinned
]
CLOCKED = {"fifty_move_not_terminal", "seventyfive_move_draw"}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules that make the starter's lessons, which ship with the source only."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "starter_model"))
    names = ("games", "kinds", "lessons", "mirrors", "mistakes")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield {name: __import__(name) for name in names}
    for name in names:
        sys.modules.pop(name, None)


def positions() -> list[tuple[str, list[tuple[str, str, int]]]]:
    """The positions; a move that mates is worth a mate, any other nothing."""
    found = []
    for fen in FENS:
        moves = [move.uci() for move in chess.Board(fen).legal_moves]
        mates = [transition(fen, uci).reward == "1.0" for uci in moves]
        scored = [
            (uci, "mate", 1) if is_mate else (uci, "cp", 0)
            for uci, is_mate in zip(moves, mates, strict=True)
        ]
        found.append((fen, scored))
    return found


def test_questions_hold_the_share_of_each_kind(made: Any) -> None:
    """Four decks of 200: exactly the promised illegal moves, at least the promised legal ones."""
    kinds, rng = made["kinds"], random.Random(0)
    finder = kinds.Finder(positions())
    asked = list(itertools.islice(kinds.decks(rng), 800))
    found = Counter(category_of(*finder.question(kind, rng)) for kind in asked)
    assert sum(kinds.DECK.values()) == 200
    for kind, count in kinds.DECK.items():
        if kind.startswith("illegal"):
            assert found[kind] == 4 * count
        elif kind not in (kinds.ANY, kinds.CLOCKS):
            assert found[kind] >= 4 * count
    assert sum(found[kind] for kind in CLOCKED) == 4 * kinds.DECK[kinds.CLOCKS]
    illegal = sum(count for kind, count in found.items() if kind.startswith("illegal"))
    assert 0.15 <= illegal / 800 <= 0.25


def test_a_question_is_of_its_kind_in_every_mirror(made: Any) -> None:
    """Twenty questions of each kind: the move found is of the kind that was asked for."""
    kinds, rng = made["kinds"], random.Random(1)
    finder = kinds.Finder(positions())
    for kind in kinds.DECK:
        found = {category_of(*finder.question(kind, rng)) for _ in range(20)}
        if kind == kinds.CLOCKS:
            assert found <= CLOCKED
        elif kind != kinds.ANY:
            assert found == {kind}


def test_the_index_misses_no_rare_move(made: Any) -> None:
    """What a look at strings lets through is every move of an indexed kind, by brute force."""
    kinds = made["kinds"]
    for fen, moves in positions():
        slowly = {(category_of(fen, uci), uci) for uci, _, _ in moves}
        assert set(kinds.rare(fen, moves)) == {q for q in slowly if q[0] in kinds.INDEXED}


def test_lessons_come_again_and_are_right(made: Any) -> None:
    """The same seed gives the same lessons; environment answers are the true state."""
    lessons = made["lessons"].lessons
    first, again, other = (
        list(itertools.islice(lessons(positions(), seed, 0.6), 200)) for seed in (3, 3, 4)
    )
    assert first == again != other
    policy = sum(prompt.startswith("P: ") for prompt, _ in first)
    assert 0.5 < policy / 200 < 0.7
    for prompt, answer in first:
        if prompt.startswith("A: "):
            fen, uci = prompt.removeprefix("A: ").removesuffix("+").split("+")
            assert answer == environment_text(transition(fen, uci))


def test_plain_questions_leave_the_others_their_proportions(made: Any) -> None:
    """With all questions plain no move is illegal; with none a fifth is, as the decks say."""
    lessons, illegal = made["lessons"].lessons, []
    for plain in (0.0, 1.0):
        drawn = itertools.islice(lessons(positions(), 5, 0.2, plain), 500)
        answers = [answer for prompt, answer in drawn if prompt.startswith("A: ")]
        illegal.append(sum(answer.endswith("+-1.0+0+1") for answer in answers) / len(answers))
    assert illegal[0] == pytest.approx(0.21, abs=0.01)
    assert illegal[1] == 0


def test_a_kind_that_no_position_offers_is_said(made: Any, monkeypatch: Any) -> None:
    """Without a position that offers it, a kind ends the making in words and not in a loop."""
    kinds = made["kinds"]
    monkeypatch.setattr(kinds, "TRIES", 200)
    finder = kinds.Finder(positions()[:1])
    for kind in ("stalemate", "illegal_promo_missing", "check"):
        with pytest.raises(SystemExit, match=f"no position offers .* of kind {kind}|promo_q"):
            finder.question(kind, random.Random(0))


def test_parts_are_merged_in_the_order_of_games(made: Any, tmp_path: Path) -> None:
    """Games of two processes come out by number, each with its plies in order."""
    parts = [tmp_path / "0", tmp_path / "1"]
    for number, part in enumerate(parts):
        rows = [{"game": game, "ply": ply} for game in (number, number + 2) for ply in (5, 6, 9)]
        part.write_text("".join(json.dumps(row) + "\n" for row in rows))
    made["games"].merge(parts, tmp_path / "out")
    merged = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert merged == [{"game": game, "ply": ply} for game in range(4) for ply in (5, 6, 9)]
