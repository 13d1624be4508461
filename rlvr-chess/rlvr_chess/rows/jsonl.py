"""JSON Lines: transitions, action values, bare positions; each row by the keys it has."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rlvr_chess.fen import read_board
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.questions.transition import UCI, State, check_moves, transition
from rlvr_chess.rows.row import Item, Lines, Row, RowError, check_clock, check_values, each
from rlvr_chess.values import ActionValues, strength

HEADER = "rlvr_chess_table"
"""Key of the first line of a table file (`rlvr chess build-table`), whose rows are read too."""
_LONGEST_MOVE = 40
"""Broken moves are questions too; this is none."""
_SEPARATOR = "+"
_LONGEST_FOUND = 100
"""Characters of a label that are shown; a FEN has fewer."""


def read(lines: Lines, _name: str) -> Iterator[Item]:
    """The rows of a file, in order."""
    return each(lines.good, _line)


def _line(text: str, number: int) -> Row | None:
    try:
        row = json.loads(text)
    except json.JSONDecodeError as error:
        raise RowError(f"not JSON: {error.msg} (column {error.colno})") from None
    except (ValueError, RecursionError) as error:
        raise RowError(f"not readable as JSON: {error}") from None
    if not isinstance(row, dict):
        raise RowError("not a row: wanted a JSON object")
    return None if HEADER in row else _row(row, number)


def _row(row: Mapping[str, Any], number: int) -> Row:
    name, is_named = _name_of(row, number), row.get("id") is not None
    try:
        fen, split = row.get("fen"), row.get("split") or ""
        if not isinstance(fen, str):
            raise RowError('not a row: it has no "fen" as text')
        if split not in ("", "train", "test"):
            raise RowError(f"split {split!r} is neither train nor test")
        payload = _payload(row, read_board(fen).fen())
    except ValueError as error:
        raise RowError(str(error), name, is_named=is_named) from None
    is_bare = isinstance(payload, PolicyPosition) and payload.values is None
    return Row(
        id=name, payload=payload, split=split, is_bare=is_bare, line=number, is_named=is_named
    )


def _name_of(row: Mapping[str, Any], number: int) -> str:
    name = number if row.get("id") is None else row["id"]
    if not isinstance(name, str | int) or isinstance(name, bool):
        raise RowError(f"its id is neither text nor a number: {name!r}")
    if not str(name).strip() or not str(name).isprintable():
        raise RowError("its id is no plain text")
    return str(name)


def _payload(row: Mapping[str, Any], fen: str) -> PolicyPosition | EnvironmentStep:
    if "uci" in row:
        return _step(row, fen)
    source = str(row.get("source") or "")
    if "moves" not in row:
        check_clock(fen)
        return PolicyPosition(fen=fen, source=source)
    return PolicyPosition(fen=fen, values=_values(row["moves"], fen), source=source)


def _step(row: Mapping[str, Any], fen: str) -> EnvironmentStep:
    uci, history = row["uci"], row.get("history") or ()
    moves = history.split() if isinstance(history, str) else history
    if not isinstance(uci, str) or not uci.isprintable():
        raise RowError(f'"uci" is no plain text: {uci!r}')
    if len(uci) > _LONGEST_MOVE:
        raise RowError(f'"uci" has {len(uci)} characters, a move has four or five')
    if not isinstance(moves, list | tuple) or not all(isinstance(move, str) for move in moves):
        raise RowError('"history" holds something that is no move')
    if _SEPARATOR in uci:
        raise RowError(f'"uci" is {uci!r}: "{_SEPARATOR}" ends a field of the question')
    wrong = [move for move in moves if move not in (uci, "0000") and not UCI.fullmatch(move)]
    if wrong:  # the last may be the broken move that is asked about
        raise RowError(f'"history" holds {wrong[0]!r}, which is no move in UCI')
    category = row.get("category") or ""
    if not isinstance(category, str):
        raise RowError(f'"category" is no text: {category!r}')
    truth = transition(fen, uci)
    _compare(row, truth)
    if truth.is_legal:
        check_clock(fen)
    return EnvironmentStep(fen=fen, uci=uci, history=tuple(moves[-10:]), category=category)


def _compare(row: Mapping[str, Any], truth: State) -> None:
    """Labels of the row, where it has some, are what the rules say."""
    rules: dict[str, str | float] = {"new_fen": truth.fen}
    rules |= zip(("reward", "terminated", "truncated"), map(float, truth.outcome), strict=True)
    for key, right in rules.items():
        given = row.get(key)
        if given is not None and (given if key == "new_fen" else _number(given)) != right:
            shown = f"{right:g}" if isinstance(right, float) else repr(right)
            found = repr(row[key])
            if len(found) > _LONGEST_FOUND:
                found = f"{found[:_LONGEST_FOUND]}... ({len(found)} characters)"
            raise RowError(f'its "{key}" is {found}, by the rules it is {shown}')


def _number(given: Any) -> Any:
    """A number, also written as text; anything else stays as it is and differs from the truth."""
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        return repr(given)


def _values(moves: Any, fen: str) -> ActionValues:
    if not isinstance(moves, list) or not all(_is_value(move) for move in moves):
        raise RowError('"moves" wants [uci, "cp" or "mate", whole number] for each move')
    check_moves([move[0] for move in moves], fen)
    ordered: list[Any] = sorted(moves, key=strength, reverse=True)
    values = ActionValues(fen=fen, moves=ordered)
    check_values(values)
    return values


def _is_value(move: Any) -> bool:
    if not isinstance(move, list) or len(move) != 3:
        return False
    uci, kind, value = move
    if not isinstance(uci, str) or not isinstance(value, int) or isinstance(value, bool):
        return False
    return kind == "cp" or (kind == "mate" and value != 0)
