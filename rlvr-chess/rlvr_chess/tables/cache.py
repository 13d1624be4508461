"""What this user's engine has scored so far: one SQLite file, shared by all runs."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import structlog

from rlvr import ConfigError
from rlvr_chess.engine.identity import EngineIdentity
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
        """What that engine said of a canonical FEN; None where it was never asked."""
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
