"""Figures of the environment task and of the rollout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import chess
import pytest

from rlvr import Metric
from rlvr.testing.fakes import ScriptedPolicy
from rlvr.testing.tools import shared_data
from rlvr_chess.asking import Player
from rlvr_chess.evaluation.environment import Foretold, figures, without_rules
from rlvr_chess.evaluation.games import rollout
from rlvr_chess.questions.grammar import environment_text, parse_environment
from rlvr_chess.questions.transition import transition

START = chess.STARTING_FEN


def told(fen: str, uci: str, text: str, category: str = "") -> Foretold:
    return Foretold(truth=transition(fen, uci), answer=parse_environment(text), category=category)


def by_name(found: list[Metric]) -> dict[str, Metric]:
    named = {figure.name: figure for figure in found}
    assert len(named) == len(found), "every figure has a name of its own"
    return named


def golden() -> list[tuple[str, str, str]]:
    path = shared_data("chess/env_transitions.jsonl")
    rows = [json.loads(row) for row in path.read_text().splitlines()]
    return [(row["fen"], row["uci"], row["category"]) for row in rows]


def test_the_right_answer_is_right_everywhere() -> None:
    """On the golden file the truth has 100 % in all 29 categories and every field."""
    rows = golden()
    found = by_name(
        figures([told(f, u, environment_text(transition(f, u)), c) for f, u, c in rows])
    )
    assert {figure.value for figure in found.values()} == {1.0}
    assert sum(name.startswith("environment/category/") for name in found) == 29
    assert found["environment/exact"].n == len(rows)


def test_a_copy_is_never_right() -> None:
    """Who repeats the position and says "legal" has 0 %, and a third of the reward's classes."""
    rows = golden()
    found = by_name(figures([told(f, u, f"{f}+0.001+0+0", c) for f, u, c in rows]))
    assert found["environment/exact"].value == 0.0
    assert found["environment/macro"].value == 0.0
    assert found["environment/format"].value == 1.0
    assert found["environment/field/reward"].value == pytest.approx(1 / 4)  # 1, .5, .001, -1
    assert found["environment/field/truncated"].value == pytest.approx(1 / 2)
    assert found["environment/field/terminated"].value == pytest.approx(1 / 2)
    assert 0.0 < found["environment/field/castling"].value < 1.0


def test_fields_are_told_apart() -> None:
    """One wrong field costs that field and exactness, and nothing else; malformed costs all."""
    right = environment_text(transition(START, "e2e4"))
    wrong = right.replace(" 0 1+", " 1 1+")
    assert wrong != right
    found = by_name(figures([told(START, "e2e4", wrong, "double push")]))
    for name in ("placement", "turn", "castling", "en_passant", "fullmove", "reward"):
        assert found[f"environment/field/{name}"].value == 1.0, name
    assert found["environment/field/halfmove"].value == 0.0
    assert found["environment/exact"].value == 0.0
    broken = by_name(figures([told(START, "e2e4", f"{right} ")]))
    assert broken["environment/format"].value == 0.0
    assert broken["environment/field/placement"].value == 0.0
    assert broken["environment/field/reward"].value == 0.0


def test_the_headline_is_the_mean_of_categories() -> None:
    """270 quiet moves right, 30 mates wrong, 29 of a third kind: macro a half, over two kinds."""
    right = environment_text(transition(START, "e2e4"))
    answers = [told(START, "e2e4", right, "quiet") for _ in range(270)]
    answers += [told(START, "e2e4", "nonsense", "mate") for _ in range(30)]
    few = [told(START, "e2e4", right, "castle_k") for _ in range(29)]
    found = by_name(figures(answers + few))
    assert found["environment/macro"].value == 0.5
    assert found["environment/macro"].n == 300
    assert "left out: castle_k" in found["environment/macro"].note
    assert by_name(figures(answers))["environment/exact"].value == 0.9
    assert by_name(figures(few))["environment/macro"].n == 0


@pytest.mark.parametrize(
    ("fen", "uci"),
    [
        (START, "e2e4"),
        (START, "g1f3"),
        ("4k3/8/8/3p4/4P3/8/8/4K3 w - - 3 9", "e4d5"),
        ("4k3/8/8/3p4/4P3/8/8/4K3 b - - 3 9", "d5e4"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "a1a2"),
        ("r3k2r/8/8/8/8/8/8/R3K2R b KQkq - 7 9", "e8e7"),
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "a1a8"),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8q"),
        ("8/4k3/8/8/8/8/p6P/4K3 b - - 0 1", "a2a1n"),
        (START, "e4e5"),
        (START, "e7e5"),
        (START, "0000"),
        (START, "e2-e4"),
    ],
)
def test_a_player_without_rules_is_often_right(fen: str, uci: str) -> None:
    """Moves, captures, promotions, rights that a touched square loses, squares without own men."""
    assert transition(fen, uci) == without_rules(fen, uci)


@pytest.mark.parametrize(
    ("fen", "uci"),
    [
        ("r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1", "e1g1"),
        ("4k3/8/8/8/3pP3/8/8/4K3 b - e3 0 1", "d4e3"),
        ("4k3/8/8/8/3p4/8/4P3/4K3 w - - 0 1", "e2e4"),
        ("6k1/5ppp/8/8/8/8/8/R3K3 w - - 0 1", "a1a8"),
        ("7k/5K2/8/6Q1/8/8/8/8 w - - 0 1", "g5g6"),
        ("4k3/8/8/8/8/8/3p4/4K3 w - - 0 1", "e1d2"),
        ("4k3/8/8/8/8/8/8/R3K3 w - - 149 90", "a1a2"),
        (START, "a1a5"),
        ("4k3/4r3/8/8/8/8/4R3/4K3 w - - 0 1", "e2a2"),
        ("8/P3k3/8/8/8/8/8/4K3 w - - 0 1", "a7a8"),
    ],
)
def test_a_player_without_rules_fails_where_rules_count(fen: str, uci: str) -> None:
    """Castling, en passant, the ends of games, moves that a piece cannot make."""
    assert transition(fen, uci) != without_rules(fen, uci)


def test_the_floor_is_measured_on_the_same_questions() -> None:
    """30 quiet moves and 30 castlings: without rules half of them, whatever the model says."""
    castle = "r3k2r/8/8/8/8/8/8/R3K2R w KQkq - 0 1"
    answers = [
        Foretold(
            truth=transition(fen, uci), answer=None, floor=without_rules(fen, uci), category=kind
        )
        for fen, uci, kind in ((START, "g1f3", "quiet"), (castle, "e1g1", "castle_k"))
        for _ in range(30)
    ]
    found = by_name(figures(answers))
    assert found["environment/macro"].value == 0.0
    assert found["environment/macro_floor"].value == 0.5
    assert found["environment/exact_floor"].value == 0.5


def knights(count: int) -> tuple[str, ...]:
    """Legal moves: each side's knight goes out and home again."""
    return ("g1f3", "g8f6", "f3g1", "f6g8") * (count // 4)


def model_of_the_world(is_wrong_at: Callable[[chess.Board], bool]) -> ScriptedPolicy:
    """Answers by the rules from the FEN it is given, and with a slip where it is told to."""

    def script(prompt: str, _seed: int) -> str:
        fen, uci = prompt.removeprefix("A: ").split("+")[:2]
        text = environment_text(transition(fen, uci))
        return f"{text}0" if is_wrong_at(chess.Board(fen)) else text

    return ScriptedPolicy(script)


def test_the_rollout_feeds_back_its_own_state() -> None:
    """A perfect model is exact over all 32 plies; one that slips at move 6 had 10 right."""
    walk = rollout.walk_of(START, knights(32), "game")
    assert walk is not None
    perfect = model_of_the_world(lambda board: False)
    assert asyncio.run(rollout.exact_plies(Player(perfect), [walk])) == [32]
    slips = model_of_the_world(lambda board: board.fullmove_number == 6)
    exact = asyncio.run(rollout.exact_plies(Player(slips), [walk, walk]))
    assert exact == [10, 10]
    found = by_name(rollout.figures(exact))
    survives = {n: found[f"rollout/exact_at_{n}"].value for n in rollout.HORIZONS}
    assert survives == {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 0.0, 32: 0.0}
    assert found["rollout/plies"].value == 10.0


def test_a_copier_falls_at_the_first_ply() -> None:
    """Repeating the own state is no world model."""
    copier = ScriptedPolicy(lambda p, _: f"{p.removeprefix('A: ').split('+')[0]}+0.001+0+0")
    walk = rollout.walk_of(START, knights(40), "game")
    assert walk is not None
    assert asyncio.run(rollout.exact_plies(Player(copier), [walk])) == [0]


def test_walks_begin_anywhere_in_a_game() -> None:
    """32 plies of the game, chosen by its key alone; a game that is shorter has none."""
    moves = knights(200)
    assert rollout.walk_of(START, moves[:31], "a") is None
    walks = [rollout.walk_of(START, moves, str(key)) for key in range(30)]
    assert len({walk.fen for walk in walks if walk}) > 15
    assert walks[3] == rollout.walk_of(START, moves, "3")
    for walk in walks:
        assert walk is not None
        board = chess.Board(walk.fen)
        for uci in walk.moves:
            assert chess.Move.from_uci(uci) in board.legal_moves
            board.push_uci(uci)
        assert len(walk.moves) == 32


def test_history_ends_with_the_move() -> None:
    """With chess.history=3 the prompt shows up to three moves of the walk, the current one last."""
    walk = rollout.walk_of(START, knights(32), "game")
    assert walk is not None
    policy = model_of_the_world(lambda board: False)
    asyncio.run(rollout.exact_plies(Player(policy), [walk], history=3))
    prompts = [policy.tokenizer.decode(r.prompt.tolist()) for r in policy.requests]
    assert prompts[0].split("+")[2] == "g1f3"
    assert prompts[3].split("+")[2] == "g8f6 f3g1 f6g8"
