"""
Files with a position a line: a FEN, or EPD where operations follow it.

A bare position is asked for a move, and for what a move does. In EPD stand best moves (`bm`), moves
to avoid (`am`) and points: numbers `c8` (of 100) for moves `c9` (UCI) or `c7` (SAN), or in `c0` as
older files of the Strategic Test Suite have them ("f5=10, Bf2=3"; the largest is full points).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import chess

from rlvr_chess.fen import read_board
from rlvr_chess.questions.records import Payload, PolicyPosition, Solution
from rlvr_chess.questions.transition import legal_move
from rlvr_chess.rows.row import Item, Lines, Row, RowError, check_clock, each

_SIX = re.compile(r"(\S+\s+){4}(?![A-Za-z])\S+\s+\S+")  # a word in the fifth place is an operation
_SUITES = re.compile(r"(?:WAC|ECM|BK)\.|STS\b")
_ID = re.compile(r'\bid\s+"([^"]*)"')
_FULL = 100
_CLOCKS = re.compile(r"((?:\S+\s+){3}\S+)\s+(\d+)\s+(\d+)\s+(?=[A-Za-z])(.*)")
_NUMBER = re.compile(r"(?:invalid literal for int\(\)|could not convert string).*: ('.*')")
"""Python's message about an operand that is no number."""
_POINT = r"([^\s,=]+(?:=[QRBN][+#]?)?)\s*=\s*(\d+)"
_POINTS = re.compile(rf"\s*{_POINT}(?:\s*,\s*{_POINT})*\s*")


def read(lines: Lines, name: str) -> Iterator[Item]:
    """The rows of a file, in order; `#` begins a comment line, and a comment behind a FEN."""
    return each(lines.good, partial(_line, name=name))


def _line(text: str, number: int, name: str) -> Row | None:
    line = text.strip()
    if line.startswith("#"):
        return None
    bare = re.sub(r"\s+#.*", "", line)
    if not _SIX.fullmatch(bare) or ";" in bare:
        return _epd(line, number, name)
    fen = read_board(" ".join(bare.split())).fen()
    check_clock(fen)
    return _row("", number, PolicyPosition(fen=fen), is_bare=True)


def _epd(line: str, number: int, name: str) -> Row:
    """
    The task of four fields and operations. Suites are for measuring: their split is always "test".

    Where there is no operation `id`, the line's number is the id; `name`, the file's stem, names
    the suite where the ids do not.
    """
    given = _ID.search(line)
    known = given[1].strip() if given else ""
    try:
        clocks = _CLOCKS.fullmatch(line)
        if clocks is not None:  # six fields of a FEN, then operations
            line = f"{clocks[1]} hmvc {clocks[2]}; fmvn {clocks[3]}; {clocks[4]}"
        fields = line.rstrip(";").split(maxsplit=4)
        if len(fields) < 4:
            raise RowError(f"no position: {line[:_FULL]!r}")
        read_board(" ".join(fields[:4]) + " 0 1")  # says what is wrong better than from_epd
        board, operations = _operations(line)
        fen = read_board(board.fen()).fen()
        if not {"bm", "am", "c8"} & set(operations):
            check_clock(fen)
            return _row(known, number, PolicyPosition(fen=fen), is_bare=True)
        suite = _SUITES.match(known) or re.match(r"[a-z]+", name.lower())
        name = suite[0].rstrip(".").lower() if suite else "epd"
        solution = _solution(board, fen, operations, name)
    except ValueError as error:
        raise RowError(str(error), known) from None
    return _row(known, number, solution, split="test")


def _row(known: str, number: int, payload: Payload, **facts: Any) -> Row:
    name = known or str(number)
    return Row(id=name, payload=payload, line=number, is_named=bool(known), **facts)


def _operations(line: str) -> tuple[chess.Board, dict[str, Any]]:
    try:
        return chess.Board.from_epd(line)
    except ValueError as error:
        said = str(error)
        if found := _NUMBER.search(said):
            said = f"{found[1]} begins as a number and is none; castling is O-O, with the letter O"
        raise RowError(f"its operations cannot be read: {said}") from None


def _solution(board: chess.Board, fen: str, operations: dict[str, Any], suite: str) -> Solution:
    best, avoid = (_moves(board, operations.get(key), key) for key in ("bm", "am"))
    points = dict.fromkeys(best, 1.0)
    if "c8" in operations and {"c7", "c9"} & set(operations):
        moves = _text(operations, "c9") or _in_uci(board, _text(operations, "c7"))
        points = _points(board, _text(operations, "c8"), moves)
    elif _POINTS.fullmatch(comment := str(operations.get("c0", ""))):
        given = re.findall(_POINT, comment)
        full = max(int(number) for _, number in given)
        scaled = " ".join(str(round(_FULL * int(number) / full)) for _, number in given if full)
        points = _points(board, scaled, _in_uci(board, " ".join(san for san, _ in given)))
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


def _text(operations: dict[str, Any], key: str) -> str:
    """An operand as text, "" where the operation is missing or has none."""
    given = operations.get(key)
    return "" if given is None else str(given).strip()


def _in_uci(board: chess.Board, moves: str) -> str:
    """Moves in SAN as UCI; what cannot be read stays as it is, and is then named as illegal."""
    found = []
    for san in moves.split():
        try:
            found.append(board.parse_san(san).uci())
        except ValueError:
            found.append(san)
    return " ".join(found)


def _points(board: chess.Board, points: str, moves: str) -> dict[str, float]:
    numbers, names = points.split(), moves.split()
    if len(numbers) != len(names):
        raise RowError(f"{len(numbers)} points (c8) for {len(names)} moves (c9)")
    found: dict[str, float] = {}
    for uci, text in zip(names, numbers, strict=True):
        if legal_move(board, uci) is None:
            raise RowError(f"points are given to {uci!r}, which is not legal here")
        if not text.isdecimal() or int(text) > _FULL:
            raise RowError(f"c8 gives {uci} {text!r}; wanted 0 to {_FULL}")
        found[uci] = int(text) / _FULL
    return found
