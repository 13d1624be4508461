"""Test suites in EPD: best moves (`bm`), moves to avoid (`am`), points (`c8` for moves `c9`)."""

from __future__ import annotations

import re
from typing import Any

import chess

from rlvr_chess.fen import read_board
from rlvr_chess.records import PolicyPosition, Solution
from rlvr_chess.rows.row import Row, RowError
from rlvr_chess.transition import legal_move

_SUITES = (
    (re.compile(r"WAC\."), "wac"),
    (re.compile(r"ECM\."), "ecm"),
    (re.compile(r"BK\."), "bk"),
    (re.compile(r"STS\b"), "sts"),
)
_ID = re.compile(r'\bid\s+"([^"]*)"')
_FULL = 100


def row(line: str, number: int, name: str) -> Row:
    """
    The task of an EPD line. Suites are for measuring: their split is always "test".

    Args:
        line: Four fields and operations.
        number: Of the line, its id where it has no operation `id`.
        name: Stem of the file; names the suite where the ids do not.

    Raises:
        ValueError: What is wrong with it.
    """
    given = _ID.search(line)
    known = given[1].strip() if given else ""
    try:
        fields = line.rstrip(";").split(maxsplit=4)
        if len(fields) < 4:
            raise RowError(f"no position: {line[:_FULL]!r}")
        read_board(" ".join(fields[:4]) + " 0 1")  # says what is wrong better than from_epd
        board, operations = chess.Board.from_epd(line)
        fen = read_board(board.fen()).fen()
        if not {"bm", "am", "c8"} & set(operations):
            return Row(id=known or str(number), payload=PolicyPosition(fen=fen), is_bare=True)
        solution = _solution(board, fen, operations, _suite(known, name))
    except ValueError as error:
        raise RowError(str(error), known) from None
    return Row(id=known or str(number), payload=solution, split="test")


def _solution(board: chess.Board, fen: str, operations: dict[str, Any], suite: str) -> Solution:
    best, avoid = (_moves(board, operations.get(key), key) for key in ("bm", "am"))
    points = dict.fromkeys(best, 1.0)
    if "c8" in operations and "c9" in operations:
        points = _points(board, str(operations["c8"]), str(operations["c9"]))
    if not points and not avoid:
        raise RowError("neither bm nor am names a move")
    wrong = sorted(set(points) & set(avoid))
    if wrong:
        raise RowError(f"both to play and to avoid: {' '.join(wrong)}")
    return Solution(fen=fen, points=points, avoid=avoid, suite=suite)


def _moves(board: chess.Board, given: Any, key: str) -> tuple[str, ...]:
    moves = given if isinstance(given, list) else []
    if given and not all(isinstance(move, chess.Move) and board.is_legal(move) for move in moves):
        raise RowError(f"{key} names no legal move")
    return tuple(move.uci() for move in moves)


def _points(board: chess.Board, points: str, moves: str) -> dict[str, float]:
    numbers, names = points.split(), moves.split()
    if len(numbers) != len(names):
        raise RowError(f"{len(numbers)} points (c8) for {len(names)} moves (c9)")
    found: dict[str, float] = {}
    for uci, text in zip(names, numbers, strict=True):
        if legal_move(board, uci) is None:
            raise RowError(f"c9 names {uci!r}, which is not legal here")
        if not text.isdecimal() or int(text) > _FULL:
            raise RowError(f"c8 gives {uci} {text!r}; wanted 0 to {_FULL}")
        found[uci] = int(text) / _FULL
    return found


def _suite(known: str, name: str) -> str:
    for pattern, suite in _SUITES:
        if pattern.match(known):
            return suite
    letters = re.match(r"[a-z]+", name.lower())
    return letters[0] if letters else "epd"
