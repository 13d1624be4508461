"""`rlvr chess build-table`: score every legal move of the positions of a data set, once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from attrs import evolve

from rlvr import ConfigError, PrerequisiteError, VerifierError, counted
from rlvr_chess.commands.arguments import (
    add_engine_options,
    check_writable,
    engine_of,
    for_each,
    parser_of,
)
from rlvr_chess.engine.identity import EngineIdentity, find_engine, identify
from rlvr_chess.engine.pool import EngineConfig
from rlvr_chess.fen import read_board
from rlvr_chess.rows import read_rows
from rlvr_chess.rows.row import Row
from rlvr_chess.tables.file import Table, read_table, write_table
from rlvr_chess.tables.store import TableStore
from rlvr_chess.values import Entry

_MOST_FAILURES = 5


def build_table(argv: list[str]) -> int:
    """Write the table; what the file or the cache holds already is not searched again."""
    parser = parser_of(
        "build-table",
        "Score every legal move of the positions of a data set with Stockfish and "
        "write the table. What the file or the cache holds is not searched again, so a build that "
        "was broken off goes on.",
        "build-table --dataset positions.fen --out table.jsonl.gz",
        "build-table --dataset games.pgn --out table.jsonl --nodes 20000",
        "build-table --dataset positions.fen --out table.jsonl.gz --engines 2",
    )
    parser.add_argument("--dataset", type=Path, required=True, help="any chess data set")
    parser.add_argument("--out", type=Path, required=True, help="table: .jsonl or .jsonl.gz")
    add_engine_options(parser, "nodes of each search")
    options = parser.parse_args(argv)
    engine = engine_of(options, options.nodes)
    identity = identify(find_engine(options.engine), options.nodes)
    splits = _positions(options.dataset)
    known = _known(options.out, identity)
    check_writable(options.out, makes_folder=True)
    entries = asyncio.run(_scored(engine, known, list(splits)))
    rows = {
        fen: evolve(entries[fen], split=split) for fen, split in splits.items() if fen in entries
    }
    rows.update((fen, entry) for fen, entry in known.entries.items() if fen not in rows)
    write_table(options.out, Table(identity=identity, entries=rows))
    new = len(rows) - len(known.entries)
    print(f"{options.out}: {counted(len(rows), 'position')}, {new} of them new")
    if len(entries) < len(splits):
        raise VerifierError(
            f"{len(splits) - len(entries)} of {len(splits)} positions could not be scored.",
            f"found: the failures above; {options.out} holds the others",
            f"try again, or with more --nodes (now {options.nodes})",
        )
    return 0


def _positions(dataset: Path) -> Mapping[str, str]:
    """Canonical FEN of every position that a move can be chosen in, to the row's own split."""
    found: dict[str, str] = {}
    left_out = 0
    for row in read_rows(dataset):
        if isinstance(row, Row):
            found.setdefault(read_board(row.payload.fen).fen(), row.split)
        else:
            left_out += 1
            print(f"left out: {row.id}: {row.reason}", file=sys.stderr)
    if not found:
        raise ConfigError(
            f"a table of {dataset} was asked for.",
            f"found: no position in it ({counted(left_out, 'unusable row')})",
            "name a file of FENs, an EPD, a PGN, puzzles or our JSON Lines",
        )
    return found


def _known(path: Path, identity: EngineIdentity) -> Table:
    """
    What the file holds already; empty where it is not there.

    Raises:
        ConfigError: It is no table, or was searched with other nodes.
        PrerequisiteError: Another build of the engine made it.
    """
    if not path.exists():
        return Table(identity=identity)
    table = read_table(path)
    if table.identity != identity:
        is_same_build = evolve(table.identity, nodes=identity.nodes) == identity
        raise (ConfigError if is_same_build else PrerequisiteError)(
            f"{path} is there, and its positions were scored otherwise.",
            f"found: {table.identity.text}; asked for: {identity.text}; "
            f"different: {table.identity.difference(identity)}",
            "choose another --out, or remove the file",
        )
    return table


async def _scored(engine: EngineConfig, known: Table, fens: list[str]) -> dict[str, Entry]:
    """The entry of every position, at the same time as many as there are engines."""
    entries: dict[str, Entry] = {}
    failures: list[str] = []
    async with TableStore(engine=engine, layers=[known]) as store:

        async def score(fen: str) -> bool:
            try:
                entries[fen] = await store.entry(fen)
            except VerifierError as error:
                print(f"not scored: {error}", file=sys.stderr)
                failures.append(fen)
                if len(failures) > max(_MOST_FAILURES, len(entries)):
                    raise VerifierError(
                        "the table was not built: the engine fails at position after position.",
                        f"found: {len(failures)} failures, the last at {failures[-1]}",
                        "try: rlvr doctor --plugin chess; what was scored is in the cache",
                    ) from error
                return False
            return True

        await for_each(fens, score, engine)
    return entries
