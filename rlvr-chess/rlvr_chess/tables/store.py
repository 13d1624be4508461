"""Where the values of a position come from: tables first, then the cache, the engine last.

Rewards of one run come from one engine. Scores of two builds differ by more than what a policy
learns in an hour, so a miss in the table of one build is not filled in by another.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import structlog
from attrs import define, field

from rlvr import ConfigError, KeyValueCache, PrerequisiteError, cache_dir
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.identity import EngineIdentity, find_engine, identify
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.fen import canonical, read_board
from rlvr_chess.tables.file import Table, read_table, shipped_table
from rlvr_chess.values import ActionValues, Entry

log = structlog.get_logger()


def cache_file() -> Path:
    """`chess-tables.sqlite` in the folder of what rlvr can make again."""
    return cache_dir() / "chess-tables.sqlite"


class TableCache:
    """Entries by engine and position. One is never replaced: a key has one right value."""

    def __init__(self, path: Path) -> None:
        self._file = KeyValueCache(path, "chess_table", _moves_of)

    def get(self, identity: EngineIdentity, fen: str) -> Entry | None:
        """That engine's entry of a canonical FEN; None if it has not been searched."""
        if (found := self._file.get(identity.key(fen))) is None:
            return None
        moves, depth = found
        return Entry(values=ActionValues(fen=fen, moves=moves, engine=identity.text), depth=depth)

    def put(self, identity: EngineIdentity, entry: Entry) -> None:
        """Keep what the engine said."""
        text = json.dumps({"moves": entry.values.moves, "depth": entry.depth})
        self._file.put(identity.key(entry.values.fen), text)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _moves_of(text: str) -> tuple[Any, int]:
    found = json.loads(text)
    return found["moves"], found["depth"]


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
    def of(cls, config: ChessConfig) -> TableStore:
        """
        The store that the options ask for.

        Raises:
            ConfigError: `chess.tables` cannot be read, or was searched with other nodes.
        """
        return cls(
            engine=EngineConfig.of(config),
            layers=_layers(config),
            any_engine=config.any_engine,
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
            self._kept = TableCache(self.cache)
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
