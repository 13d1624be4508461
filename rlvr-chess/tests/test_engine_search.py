from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_chess.engine.process import EngineFailure, best_of, last_complete

LEGAL = ["e2e4", "d2d4", "g1f3"]


def line(depth: int, slot: int, move: str, score: str = "cp 10") -> bytes:
    return (
        f"info depth {depth} seldepth 9 multipv {slot} score {score} nodes 100 nps 1 "
        f"hashfull 0 tbhits 0 time 1 pv {move} e7e5"
    ).encode()


def block(depth: int, *moves: str) -> list[bytes]:
    return [line(depth, slot, move, f"cp {-slot}") for slot, move in enumerate(moves, start=1)]


def test_last_complete_iteration_in_engine_order() -> None:
    """The deepest iteration that has all moves is read, in the engine's order, not sorted by us."""
    lines = [*block(1, "e2e4", "d2d4", "g1f3"), *block(2, "g1f3", "e2e4", "d2d4")]
    found = last_complete([*lines, b"bestmove g1f3"], LEGAL)
    assert found.depth == 2
    assert found.moves == (("g1f3", "cp", -1), ("e2e4", "cp", -2), ("d2d4", "cp", -3))


def test_a_block_of_two_iterations_is_left_out() -> None:
    """The last block of a search that was cut off mixes depths: the one before it counts."""
    mixed = [line(3, 1, "d2d4", "cp 99"), line(2, 2, "g1f3"), line(2, 3, "e2e4")]
    found = last_complete([*block(2, "g1f3", "e2e4", "d2d4"), *mixed, b"bestmove d2d4"], LEGAL)
    assert found.depth == 2
    assert found.moves[0] == ("g1f3", "cp", -1)


def test_mates_and_other_lines() -> None:
    """Mates keep their sign; lines without a slot, between others, say nothing."""
    lines = [
        b"info string NNUE evaluation using nn-1.nnue enabled",
        line(4, 1, "e2e4", "mate 3"),
        b"info depth 4 currmove d2d4 currmovenumber 2",
        line(4, 2, "d2d4", "cp 0"),
        line(4, 3, "g1f3", "mate -2"),
        b"bestmove e2e4 ponder e7e5",
    ]
    moves = (("e2e4", "mate", 3), ("d2d4", "cp", 0), ("g1f3", "mate", -2))
    assert last_complete(lines, LEGAL).moves == moves


def test_a_bound_is_no_score() -> None:
    """A line that only bounds its score makes the block incomplete."""
    bound = [*block(5, "e2e4", "d2d4"), line(5, 3, "g1f3", "cp 3 lowerbound")]
    found = last_complete([*block(4, "d2d4", "e2e4", "g1f3"), *bound], LEGAL)
    assert found.depth == 4


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"bestmove e2e4"],
        block(1, "e2e4", "d2d4"),
        [line(1, 1, "e2e4"), line(1, 3, "g1f3")],
        block(1, "e2e4", "e2e4", "g1f3"),
        block(1, "e2e4", "d2d4", "a2a3"),
        [line(1, 1, "e2e4"), line(1, 2, "d2d4", "wdl 3"), line(1, 3, "g1f3")],
        [line(1, 1, "e2e4"), line(1, 2, "d2d4", "cp x"), line(1, 3, "g1f3")],
        [*block(1, "e2e4", "d2d4"), b"info depth 1 multipv 3 score cp 4"],
    ],
)
def test_incomplete_output_is_a_failure(lines: list[bytes]) -> None:
    """A missing, doubled, foreign or unreadable line is never made up for."""
    with pytest.raises(EngineFailure):
        last_complete(lines, LEGAL)


@given(st.lists(st.binary(max_size=60), max_size=20))
def test_garbage_fails_cleanly(lines: list[bytes]) -> None:
    """Whatever an engine prints, reading it either works or is an engine's failure."""
    with pytest.raises(EngineFailure):
        last_complete([*lines, b"info depth 1 multipv"], LEGAL)


@pytest.mark.parametrize(
    ("last", "move"), [(b"bestmove e2e4", "e2e4"), (b"bestmove e7e8q ponder a1a2", "e7e8q")]
)
def test_best_move(last: bytes, move: str) -> None:
    """The word after `bestmove` is the move."""
    assert best_of([b"info depth 1", last]) == move


@pytest.mark.parametrize("lines", [[], [b"bestmove"], [b"bestmove (none)"], [b"best e2e4"]])
def test_no_best_move(lines: list[bytes]) -> None:
    """An engine that has no move has failed: it was asked about positions that have one."""
    with pytest.raises(EngineFailure):
        best_of(lines)
