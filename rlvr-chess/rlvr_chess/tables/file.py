"""
Tables as files: JSON Lines, gzipped where the name ends in `.gz`.

The first line says which engine scored them, every other line holds one position:

    {"rlvr_chess_table": 1, "engine": {"name": ..., "net": ..., "binary": ..., ...}}
    {"key": "<sha256>", "fen": ..., "moves": [["e2e4", "cp", 31], ...], "depth": 8}

A key is the sha256 over engine and position, so a line of another table shows. The moves are not in
it: they are held against the rules when a table is read (each legal move once, best first), and
`rlvr chess verify-table` searches their scores again.
"""

from __future__ import annotations

import functools
import gzip
import itertools
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr import ConfigError
from rlvr_chess.engine.identity import EngineIdentity
from rlvr_chess.questions.records import EnvironmentStep
from rlvr_chess.questions.transition import check_moves
from rlvr_chess.starter import QUESTIONS
from rlvr_chess.values import ActionValues, Entry, strength

FORMAT = 1
_HEADER = "rlvr_chess_table"
_DO = "name a file that rlvr chess build-table wrote"


@frozen(kw_only=True)
class Table:
    """Positions scored by one engine, by six-field FEN, in the order of the file."""

    identity: EngineIdentity
    entries: Mapping[str, Entry] = field(factory=dict, repr=False)


def read_table(path: Path, *, is_trusted: bool = False) -> Table:
    """
    The table of a file.

    `is_trusted`: the moves are not held against the rules, which costs twice the reading.

    Raises:
        ConfigError: It cannot be read, or a line is not what its key says, or its moves are not
            the legal ones in order; the line is named.
    """
    try:
        with _opened(path) as file:
            lines = file.read().decode("utf-8").splitlines()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise _unusable(path, f"{error}", _DO) from error
    identity = _header(path, lines[0] if lines else "")
    entries: dict[str, Entry] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            entry = _entry(json.loads(line), identity)
            if not is_trusted:
                _check(entry.values)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            found = f"line {number}: {error or type(error).__name__}"
            do = (
                "remove the line, or the file, and make it again: rlvr chess build-table "
                f"--dataset FILE --out {path} --nodes {identity.nodes}"
            )
            raise _unusable(path, found, do) from error
        entries[entry.values.fen] = entry
    return Table(identity=identity, entries=entries)


def is_table(path: Path) -> bool:
    """Whether the first line of a file is the header of a table."""
    try:
        with _opened(path) as file:
            return _HEADER.encode() in file.read(200)
    except (OSError, EOFError, zlib.error):
        return False


def write_table(path: Path, table: Table) -> None:
    """Write the file in one piece, or not at all; equal tables give equal bytes."""
    text = "".join(f"{line}\n" for line in _texts(table)).encode()
    if path.suffix == ".gz":
        text = gzip.compress(text, compresslevel=9, mtime=0)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _texts(table: Table) -> Iterator[str]:
    compact = (",", ":")
    header = {_HEADER: FORMAT, "engine": table.identity.to_json()}
    yield json.dumps(header, separators=compact)
    for fen, entry in table.entries.items():
        record = {"key": table.identity.key(fen), "fen": fen, "moves": entry.values.moves}
        split = {"split": entry.split} if entry.split else {}
        yield json.dumps({**record, "depth": entry.depth, **split}, separators=compact)


def _opened(path: Path) -> Any:
    return (gzip.open if path.suffix == ".gz" else open)(path, "rb")


def _header(path: Path, line: str) -> EngineIdentity:
    try:
        record = json.loads(line)
        version = record[_HEADER]
        if version != FORMAT:
            raise ValueError(f"format {version}, this rlvr-chess reads {FORMAT}")
        return EngineIdentity.of_json(record["engine"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        found = f"line 1 is not the header of a table: {error or 'empty file'}"
        raise _unusable(path, found, _DO) from error


def _entry(record: Mapping[str, Any], identity: EngineIdentity) -> Entry:
    fen, moves = record["fen"], record["moves"]
    if record["key"] != identity.key(fen):
        raise ValueError("the key is not that of this engine and position")
    if not moves:
        raise ValueError("no moves")
    for _uci, kind, value in moves:
        if kind not in ("cp", "mate") or type(value) is not int or (kind, value) == ("mate", 0):
            raise ValueError(f"{kind} {value!r} is not a score")
    values = ActionValues(fen=fen, moves=moves, engine=identity.text)
    return Entry(values=values, depth=record.get("depth", 0), split=record.get("split", ""))


def _check(values: ActionValues) -> None:
    """Hold an entry against the rules; ValueError where a move is missing, illegal or misplaced."""
    check_moves([uci for uci, _, _ in values.moves], values.fen)
    for before, after in itertools.pairwise(values.moves):
        if strength(before) < strength(after):
            raise ValueError(f"not best first: {after[0]} is better than {before[0]} before it")


def _unusable(path: Path, found: str, do: str) -> ConfigError:
    return ConfigError(f"the chess table {path} cannot be used.", f"found: {found}", do)


SHIPPED = Path(__file__).parent.parent / "starter" / "positions.jsonl.gz"
"""The file, as package data."""


@functools.cache
def shipped_table() -> Table | None:
    """
    The shipped table, read once; None where the distribution was built without it.

    A test holds its moves against the rules, so not every start pays for that.
    """
    return read_table(SHIPPED, is_trusted=True) if SHIPPED.is_file() else None


def shipped_positions() -> Iterator[tuple[ActionValues, str]]:
    """The shipped positions with the split each belongs to ("" where the hash decides)."""
    table = shipped_table()
    if table is not None:
        for entry in table.entries.values():
            yield entry.values, entry.split


def shipped_questions() -> Iterator[tuple[EnvironmentStep, str]]:
    """Shipped questions of the kinds of moves that the positions hardly ask, and their split."""
    for line in QUESTIONS.read_text("utf-8").splitlines():
        row = json.loads(line)
        split = row.pop("split")
        yield EnvironmentStep(**row), split
