"""Where the values of a position come from: tables first, then the cache, the engine last.

Rewards of one run come from one engine. Scores of two builds differ by more than what a policy
learns in an hour, so a miss in the table of one build is not filled in by another.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import structlog
from attrs import define, field

from rlvr import ConfigError, PrerequisiteError
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.identity import EngineIdentity, find_engine, identify
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.fen import canonical, read_board
from rlvr_chess.tables.file import Table, read_table, shipped_table
from rlvr_chess.values import ActionValues, Entry

log = structlog.get_logger()


def cache_file() -> Path:
    """`chess-tables.sqlite` in `$RLVR_CACHE_DIR`, by default in the user's cache folder."""
    if chosen := os.environ.get("RLVR_CACHE_DIR"):
        return Path(chosen) / "chess-tables.sqlite"
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rlvr" / "chess-tables.sqlite"


class TableCache:
    """
    Values by key. Entries are never replaced: a key has one right value.

    A value that cannot be kept (a full disk, a file that another process holds) is only searched
    again another time; that is logged once.
    """

    def __init__(self, path: Path) -> None:
        """
        Open or create the file.

        Raises:
            ConfigError: The file cannot be written or is no such cache.
        """
        self._path, self._has_warned = path, False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS positions (key TEXT PRIMARY KEY, fen TEXT NOT NULL, "
                "moves TEXT NOT NULL, depth INTEGER NOT NULL) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"the cache of chess tables {path} cannot be used.",
                f"found: {error}",
                "remove the file, or choose another folder with RLVR_CACHE_DIR",
            ) from error

    def get(self, identity: EngineIdentity, fen: str) -> Entry | None:
        """That engine's entry of a canonical FEN; None if it has not been searched."""
        query = "SELECT moves, depth FROM positions WHERE key = ?"
        row = self._db.execute(query, (identity.key(fen),)).fetchone()
        if row is None:
            return None
        values = ActionValues(fen=fen, moves=json.loads(row[0]), engine=identity.text)
        return Entry(values=values, depth=row[1])

    def put(self, identity: EngineIdentity, entry: Entry) -> None:
        """Keep what the engine said."""
        fen = entry.values.fen
        row = (identity.key(fen), fen, json.dumps(entry.values.moves), entry.depth)
        try:
            self._db.execute("INSERT OR IGNORE INTO positions VALUES (?, ?, ?, ?)", row)
        except sqlite3.OperationalError as error:
            if not self._has_warned:
                log.warning("table_not_kept", cache=str(self._path), error=str(error))
            self._has_warned = True

    def close(self) -> None:
        """Close the file."""
        self._db.close()


@define
class TableStore:
    """
    The value of every legal move of any position (`async with` opens and closes it).

    Attributes:
        engine: What is asked where no table holds a position; started at the first miss.
        layers: Tables that are only read, the first one that holds a position wins.
        any_engine: Take what the layers and this machine's engine say, whatever their builds.
        cache: File of the cache; None: none.
    """

    engine: EngineConfig = field(factory=EngineConfig)
    layers: Sequence[Table] = ()
    any_engine: bool = False
    cache: Path | None = field(factory=cache_file)
    _kept: TableCache | None = field(init=False, default=None)
    _pool: EnginePool | None = field(init=False, default=None)
    _opening: asyncio.Lock = field(init=False, factory=asyncio.Lock)
    _known: dict[str, Entry] = field(init=False, factory=dict)
    _identities: list[EngineIdentity] | None = field(init=False, default=None)

    @classmethod
    def of(cls, config: ChessConfig, *, cache: Path | None = None) -> TableStore:
        """
        The store that the options ask for.

        Raises:
            ConfigError: `chess.tables` cannot be read, or was searched with other nodes.
        """
        return cls(
            engine=EngineConfig.of(config),
            layers=_layers(config),
            any_engine=config.any_engine,
            cache=cache or cache_file(),
        )

    async def __aenter__(self) -> Self:
        """Open nothing yet: tables are in memory, cache and engine are opened when asked."""
        self._opening = asyncio.Lock()
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close cache and engine."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.__aexit__(*error)
        self.close()

    def close(self) -> None:
        """Close the cache; enough where only `peek` was called."""
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def peek(self, fen: str) -> ActionValues | None:
        """
        The values where they are known; no search.

        Raises:
            FenError: The position is invalid.
        """
        entry = self._find(fen) or self._find(canonical(fen))
        return None if entry is None else entry.values

    async def values(self, fen: str) -> ActionValues:
        """The values, from the engine where they are not known; raises as `entry`."""
        return (await self.entry(fen)).values

    async def entry(self, fen: str) -> Entry:
        """
        The values with the iteration that they are from.

        A position known by its canonical spelling costs a look into a dict.

        Raises:
            FenError: The position is invalid or over.
            PrerequisiteError: The engine is needed, and is not installed or is another build than
                that of the tables.
            VerifierError: The engine failed twice.
        """
        if found := self._find(fen) or self._find(fen := read_board(fen).fen()):
            return found
        pool = await self._opened()
        entry = await pool.analyse(fen)
        self._known[fen] = entry
        if (kept := self._cache()) is not None:
            kept.put(pool.identity, entry)
        return entry

    def _find(self, fen: str) -> Entry | None:
        for known in (self._known, *(layer.entries for layer in self.layers)):
            if (entry := known.get(fen)) is not None:
                return entry
        if (kept := self._cache()) is not None:
            for identity in self._usable():
                if (entry := kept.get(identity, fen)) is not None:
                    self._known[fen] = entry
                    return entry
        return None

    def _usable(self) -> list[EngineIdentity]:
        """Whose entries in the cache may be taken: the tables' engine, or else this machine's."""
        if self._identities is None:
            self._identities = [layer.identity for layer in self.layers]
            if not self._identities or self.any_engine:
                try:
                    here = identify(find_engine(self.engine.path), self.engine.nodes)
                except PrerequisiteError:
                    return self._identities  # a miss will say so
                self._identities.append(here)
        return self._identities

    def _cache(self) -> TableCache | None:
        if self._kept is None and self.cache is not None:
            try:
                self._kept = TableCache(self.cache)
            except ConfigError as error:  # what it would hold can be searched again
                log.warning("no_table_cache", reason=str(error))
                self.cache = None
        return self._kept

    async def _opened(self) -> EnginePool:
        async with self._opening:
            if self._pool is None:
                pool = await EnginePool(self.engine).__aenter__()
                here = pool.identity
                theirs = self.layers[0].identity if self.layers else here
                if theirs != here and not self.any_engine:
                    await pool.__aexit__()
                    raise _another_engine(theirs, here)
                self._pool = pool
            return self._pool


def _another_engine(theirs: EngineIdentity, here: EngineIdentity) -> PrerequisiteError:
    return PrerequisiteError(
        "a position is in no table, and this machine's engine is not the tables' engine.",
        f"found: tables by {theirs.text}; here {here.text}; different: {theirs.difference(here)}",
        "score all positions with one engine (rlvr chess build-table --dataset FILE --out "
        "T.jsonl.gz, then chess.tables=T.jsonl.gz), or mix them: chess.any_engine=true",
    )


def _layers(config: ChessConfig) -> list[Table]:
    """The table of `chess.tables`, then the shipped one where the same engine made it."""
    layers = []
    if config.tables:
        table = read_table(Path(config.tables))
        if table.identity.nodes != config.nodes and not config.any_engine:
            raise ConfigError(
                f"chess.tables={config.tables} does not fit chess.nodes={config.nodes}.",
                f"found: a table searched with {table.identity.nodes} nodes",
                f"try: chess.nodes={table.identity.nodes}, or chess.any_engine=true",
            )
        layers.append(table)
    shipped = shipped_table()
    if shipped is None:
        return layers
    fits = (
        shipped.identity == layers[0].identity if layers else shipped.identity.nodes == config.nodes
    )
    if fits or config.any_engine:
        return [*layers, shipped]
    log.info("shipped_table_left_out", shipped=shipped.identity.text, nodes=config.nodes)
    return layers


log = structlog.get_logger()
