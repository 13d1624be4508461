"""The verdict store: every answer is verified once, whichever run asks.

Keys are made by the reward (`Cacheable.verdict_key`): a sha256 over everything that decides the
verdict. Values are the verdicts as JSON. The default keeps them in one SQLite file, safe to share
between processes.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from rlvr.errors import ConfigError, explain
from rlvr.log import get
from rlvr.types import Outcome, Reward, Unscorable

log = get(__name__)


class VerdictStore(Protocol):
    """Where verdicts are kept. Failures to verify are never kept."""

    def get(self, key: str) -> Outcome | None: ...

    def put(self, key: str, outcome: Outcome) -> None: ...

    def close(self) -> None: ...


class NoStore:
    """Keeps nothing (`verify.store=off`)."""

    def get(self, key: str) -> Outcome | None:
        return None

    def put(self, key: str, outcome: Outcome) -> None:
        return None

    def close(self) -> None:
        return None


class SqliteStore:
    """Verdicts in one SQLite file (write-ahead log, so that readers never wait)."""

    def __init__(self, path: Path) -> None:
        """
        Open or create the file.

        Raises:
            ConfigError: The file cannot be written or is not a verdict store.
        """
        self._path, self._has_warned = path, False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS verdicts ("
                "key TEXT PRIMARY KEY, verdict TEXT NOT NULL, "
                "at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID"
            )
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                explain(
                    f"the verdict store {path} cannot be used.",
                    f"found: {error}",
                    "choose another file with verify.store=PATH, or none with verify.store=off",
                )
            ) from error

    def get(self, key: str) -> Outcome | None:
        """The verdict of a key, marked as cached; None when it was never verified."""
        row = self._db.execute("SELECT verdict FROM verdicts WHERE key = ?", (key,)).fetchone()
        return None if row is None else outcome_from_json(json.loads(row[0]), cached=True)

    def put(self, key: str, outcome: Outcome) -> None:
        """
        Keep a verdict; the first one of a key stays.

        A verdict that cannot be kept (a full disk, another process that never lets go) is only
        verified again another time: that is logged once, and no reason to lose it now.
        """
        text = json.dumps(outcome_to_json(outcome), sort_keys=True)
        insert = "INSERT OR IGNORE INTO verdicts (key, verdict) VALUES (?, ?)"
        try:
            self._db.execute(insert, (key, text))
        except sqlite3.OperationalError as error:
            if not self._has_warned:
                log.warning("verdict_not_kept", store=str(self._path), error=str(error))
            self._has_warned = True

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def cache_dir(environ: Mapping[str, str] | None = None) -> Path:
    """Where rlvr keeps what can be made again: `RLVR_CACHE_DIR`, or the user's cache folder."""
    environ = os.environ if environ is None else environ
    if chosen := environ.get("RLVR_CACHE_DIR"):
        return Path(chosen)
    return Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr"


def open_store(where: str) -> VerdictStore:
    """The store of `verify.store`: "" is the user's cache, "off" none, else a file."""
    if where == "off":
        return NoStore()
    return SqliteStore(Path(where) if where else cache_dir() / "verdicts.sqlite")


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """JSON form of any outcome; `outcome_from_json` reads it."""
    if isinstance(outcome, Reward):
        return {
            "kind": "reward",
            "value": outcome.value,
            "score01": outcome.score01,
            "components": dict(outcome.components),
            "tests_passed": outcome.tests_passed,
            "tests_total": outcome.tests_total,
            "evidence": dict(outcome.evidence),
            "cost_s": outcome.cost_s,
            "cached": outcome.cached,
            **({"is_proxy": True} if outcome.is_proxy else {}),
        }
    if isinstance(outcome, Unscorable):
        return {
            "kind": "unscorable",
            "reason": outcome.reason,
            "evidence": dict(outcome.evidence),
        }
    return {"kind": "failed", "reason": outcome.reason}


def outcome_from_json(record: Mapping[str, Any], *, cached: bool) -> Outcome:
    """The outcome of a JSON record; a reward read from a store costs nothing."""
    fields = {name: value for name, value in record.items() if name != "kind"}
    if record["kind"] == "unscorable":
        return Unscorable(**fields)
    fields["cached"] = cached
    if cached:
        fields["cost_s"] = 0.0
    return Reward(**fields)
