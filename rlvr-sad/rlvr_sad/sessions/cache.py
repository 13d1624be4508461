"""Cache of read and tokenised records, by content: an unchanged record is not read again.

The key is a sha256 over the record's bytes, the format that was asked for, the code of the readers
and the tokenizer. The file's name and the record's place are no part of it. What was not used for
longest goes first where the file has grown beyond its limit.

It is no `rlvr.KeyValueCache`, which knows no limit, no order of use and one key at a time, and
which goes on without its file: here a file that cannot be used is an error.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import sqlite3
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import structlog

import rlvr_sad
from rlvr import ConfigError, cache_dir
from rlvr_sad.formats.catalog import formats
from rlvr_sad.sessions.record import Raw

VARIABLE = "RLVR_SAD_CACHE_GB"
DEFAULT_GB = 10.0
_LEFT = 0.9
"""Share of the limit that is left, so that not every opening has something to remove."""
_HOUR_S = 3600
_REMOVE = """
delete from results where key in (
    select key from (
        select key, length(data) as size,
            sum(length(data)) over (order by used, rowid rows unbounded preceding) as sum
        from results
    ) where sum - size < ?
)"""
"""Removes the results unused for longest, until so many bytes are removed."""

log = structlog.get_logger(__name__)


class TrajectoryCache:
    """
    A file of results; several processes may use it at once.

    It is cut to its limit when it is opened and when it is closed, not while it is in use.
    """

    def __init__(self, path: Path | None = None, limit: int | None = None) -> None:
        """
        Open or make the file.

        Args:
            path: The file; None: below `RLVR_CACHE_DIR`, or the user's cache folder.
            limit: Bytes that it may keep, 0: any number; None: as the environment says.

        Raises:
            ConfigError: The file cannot be used, or the environment names no limit.
        """
        if path is None:
            path = cache_dir() / "sad" / "trajectories.sqlite"
        self._limit = limit_of() if limit is None else limit
        self.hits = self.misses = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._store = sqlite3.connect(path, timeout=60)
            self._begin()
        except (OSError, sqlite3.DatabaseError) as error:
            raise ConfigError(
                f"results were to be kept in {path}.",
                f"found: {error}",
                "remove the file, or choose another folder with RLVR_CACHE_DIR",
            ) from error

    def _begin(self) -> None:
        try:
            if not self._number("page_count"):  # a file that is new
                self._store.execute("pragma auto_vacuum=incremental")  # it waits for every writer
            self._store.execute("pragma journal_mode=wal")
            self._store.execute("pragma synchronous=normal")
            self._store.execute(
                "create table if not exists results (key blob primary key, data, used integer)"
            )
            self._prune()
        except sqlite3.DatabaseError:
            self._store.close()
            raise

    def close(self) -> None:
        """Write what is pending, remove what is too much, and close the file."""
        self._store.commit()
        self._prune()
        self._store.close()

    def __del__(self) -> None:  # Python 3.13 warns of a file that is let go while it is open
        with contextlib.suppress(AttributeError, sqlite3.Error):  # never opened; of another thread
            self._store.close()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        marks = ",".join("?" * len(keys))
        rows = self._store.execute(
            f"select key, data, used from results where key in ({marks})", keys
        ).fetchall()
        found = {bytes(key): bytes(data) for key, data, _ in rows}
        hour = now()
        if before := [(hour, bytes(key)) for key, _, used in rows if used < hour]:
            with self._spare():
                self._store.executemany("update results set used = ? where key = ?", before)
                self._store.commit()
        hits = sum(key in found for key in keys)
        self.hits += hits
        self.misses += len(keys) - hits
        return found

    def put(self, results: Mapping[bytes, bytes]) -> None:
        hour = now()
        self._store.executemany(
            "insert or replace into results (key, data, used) values (?, ?, ?)",
            [(key, data, hour) for key, data in results.items()],
        )
        self._store.commit()

    def _prune(self) -> None:
        """Remove results until they fit, those that were not used for longest first."""
        with self._spare():
            pages = self._number("page_count") - self._number("freelist_count")
            kept = pages * self._number("page_size")
            if not self._limit or kept <= self._limit:
                return
            gone = self._store.execute(_REMOVE, [kept - int(_LEFT * self._limit)]).rowcount
            self._store.commit()
            self._store.executescript("pragma incremental_vacuum")  # `execute` frees one page
            log.info("kept_results_removed", results=gone, limit_gb=self._limit / 1e9)

    @contextlib.contextmanager
    def _spare(self) -> Iterator[None]:
        """
        Skip housekeeping while another process holds the file.

        The transaction is rolled back, else later reads would see old data.
        """
        try:
            yield
        except sqlite3.OperationalError:
            self._store.rollback()

    def _number(self, pragma: str) -> int:
        return int(self._store.execute(f"pragma {pragma}").fetchone()[0])


def now() -> int:
    """Hours since 1970: uses are recorded by the hour, so that few of them are written."""
    return int(time.time() // _HOUR_S)


def limit_of(environ: Mapping[str, str] | None = None) -> int:
    """
    Bytes that the cache may keep, as `RLVR_SAD_CACHE_GB` says; 0: any number.

    Raises:
        ConfigError: It is no number of 0 or more.
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "").strip()
    try:
        found = float(text or DEFAULT_GB)
        if not 0 <= found < float("inf"):
            raise ValueError
    except ValueError:
        raise ConfigError(
            f"{VARIABLE}={text} was to bound what is kept of trajectories.",
            "found: that is no number of gigabytes",
            f"set it to 0 or more; 0: no bound, unset: {DEFAULT_GB:g}",
        ) from None
    return int(found * 1e9)


def key_of(raw: Raw, format_name: str, tokenizer: str) -> bytes:
    """The key of a record's result; `tokenizer` is its fingerprint, "" for none."""
    head = json.dumps([code_digest(), raw.kind, format_name, tokenizer]).encode()
    return hashlib.sha256(head + b"\0" + raw.data).digest()


@cache
def code_digest() -> str:
    """sha256 over the source of all readers (other plugins' formats too) and of the layouts."""
    folder = Path(rlvr_sad.__file__).parent
    rooms = ("spans", "formats", "sessions", "replay")
    files = {path for room in rooms for path in (folder / room).glob("*.py")}
    files |= {folder / name for name in ("trajectory_builder.py", "tokens.py")}
    adapters = [type(one.adapter) for one in formats()]
    files |= {Path(inspect.getfile(a)) for a in adapters if a.__module__ in sys.modules}
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()
