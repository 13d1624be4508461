"""A data set: one file, or a folder of files of any of the kinds."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from attrs import evolve, frozen

from rlvr import ConfigError
from rlvr_chess.questions.records import PolicyPosition
from rlvr_chess.rows import games, jsonl, positions, puzzles
from rlvr_chess.rows.row import (
    KINDS,
    LONGEST_ID,
    FileError,
    GameLine,
    Item,
    Lines,
    Row,
    Unsupported,
    free_id,
    kind_of,
    read_lines,
)

_READERS: Mapping[str, Callable[[Lines, str], Iterator[Item]]] = {
    "jsonl": jsonl.read,
    "positions": positions.read,
    "puzzles": puzzles.read,
    "pgn": games.read_pgn,
    "openings": games.read_openings,
}
_NO_DATA = ("README", "LICENSE", "LICENCE", "COPYING", "NOTICE", "CHANGELOG", "SHA256SUMS", ".")
"""Beginnings of names that are no data in a folder."""


@frozen(kw_only=True)
class Material:
    """Content of a data set besides questions: positions, games and openings to play from."""

    positions: tuple[str, ...] = ()
    games: tuple[GameLine, ...] = ()
    openings: tuple[GameLine, ...] = ()


@frozen(kw_only=True)
class DataSet:
    """Rows in the order of the files, each a question or a reason; and the material for games."""

    rows: tuple[Row | Unsupported, ...] = ()
    material: Material = Material()


def read_rows(path: Path) -> list[Row | Unsupported]:
    """The questions of a file or a folder, and what is none with the reason."""
    return list(read_data(path).rows)


def read_data(path: Path) -> DataSet:
    """
    All of a file, or of a folder with its folders.

    In a folder FEN lists, games and opening lines are material and no questions; ids are
    "file:id" there. A file that cannot be read is one unsupported row.

    Raises:
        ConfigError: There is no such file, or a single file cannot be read or is of no known kind.
    """
    if path.is_dir():
        return _read_folder(path)
    try:
        items = _read_file(path)
    except FileError as error:
        raise _unreadable(path, f"it {error}") from None
    met: set[str] = set()
    rows = itertools.chain.from_iterable(
        games.rows_of(item, met) if isinstance(item, GameLine) else [item] for item in items
    )
    return DataSet(rows=tuple(_unique(rows)), material=_material(items))


def _read_folder(folder: Path) -> DataSet:
    rows: list[Row | Unsupported] = []
    everything: list[Item] = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if path.name.startswith(_NO_DATA):
            continue
        try:
            items = _read_file(path)
        except FileError as error:
            rows.append(Unsupported(id=name, reason=f"the file {error}"))
            continue
        everything += items
        rows += (
            evolve(item, id=f"{name}:{item.id}")
            for item in items
            if isinstance(item, Unsupported) or (isinstance(item, Row) and not item.is_bare)
        )
    if not rows and not everything:
        raise _unreadable(f"the folder {folder}", "no file in it")
    return DataSet(rows=tuple(_unique(rows)), material=_material(everything))


def _unreadable(source: object, found: str) -> ConfigError:
    do = "it takes: " + "; ".join(KINDS.values())
    return ConfigError(f"a data set of chess was to be read from {source}.", f"found: {found}", do)


def _read_file(path: Path) -> list[Item]:
    lines = read_lines(path)
    kind = kind_of(path, lines.first)
    if not kind:
        raise FileError("is of no kind that is known, by its first line and its name")
    stem = path.name.split(".")[0]
    items = list(_READERS[kind](lines, stem))
    return items if kind == "pgn" else [*items, *lines.broken]


def _unique(rows: Iterable[Row | Unsupported]) -> Iterator[Row | Unsupported]:
    """
    The first row that gave an id keeps it; what repeats it, or is too long, is unsupported.

    Ids that were made of numbers of lines give way to ids that were given, wherever these stand.
    """
    rows = list(rows)
    given = {row.id for row in rows if row.is_named}
    met: set[str] = set()  # given ids that were met
    taken = set(given)
    for count, row in enumerate(rows, 1):
        place = f"line {row.line}" if row.line else f"row {count}"
        if len(row.id) > LONGEST_ID:
            reason = f"its id has {len(row.id)} characters, more than {LONGEST_ID}"
            row = Unsupported(id=f"{place} ({row.id[:40]}...)", reason=reason)
        elif row.id in met:
            reason = row.reason if isinstance(row, Unsupported) else f"the id {row.id} came before"
            row = Unsupported(id=f"{place} ({row.id})", reason=reason)
        if row.is_named:
            met.add(row.id)
        else:
            row = evolve(row, id=free_id(row.id, taken))
            taken.add(row.id)
        yield row


def _material(items: Iterable[Item]) -> Material:
    items = list(items)
    played = [item for item in items if isinstance(item, GameLine)]
    bare = [item.payload for item in items if isinstance(item, Row) and item.is_bare]
    return Material(
        positions=tuple(one.fen for one in bare if isinstance(one, PolicyPosition)),
        games=tuple(game for game in played if not game.is_opening),
        openings=tuple(game for game in played if game.is_opening),
    )
