"""How large a file of kept results may grow; what was not used for longest goes first."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence

import structlog

from rlvr.errors import ConfigError, explain

VARIABLE = "RLVR_SAD_CACHE_GB"
DEFAULT_GB = 10.0
_LEFT = 0.9
"""Share of the limit that is left, so that not every opening has something to remove."""
_HOUR_S = 3600

log = structlog.get_logger(__name__)


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
            explain(
                f"{VARIABLE}={text} was to bound what is kept of trajectories.",
                "found: that is no number of gigabytes",
                f"set it to 0 or more; 0: no bound, unset: {DEFAULT_GB:g}",
            )
        ) from None
    return int(found * 1e9)


def now() -> int:
    """The hour: when a result was used is not known better, so that few uses are written down."""
    return int(time.time() // _HOUR_S)


def touch(store: sqlite3.Connection, keys: Sequence[bytes]) -> None:
    """Note that results were used just now; where others hold the file, another time."""
    hour = now()
    with _spare(store):
        store.executemany(
            "update results set used = ? where key = ?", [(hour, bytes(key)) for key in keys]
        )
        store.commit()


def prune(store: sqlite3.Connection, limit: int) -> int:
    """
    Remove results until they fit, those that were not used for longest first; how many.

    Housekeeping: where others hold the file, it is left for another time.
    """
    with _spare(store):
        kept = _kept(store)
        if not limit or kept <= limit:
            return 0
        oldest = "select key, length(data) from results order by used, rowid"
        surplus, gone = kept - int(_LEFT * limit), []
        for key, size in store.execute(oldest).fetchall():
            if surplus <= 0:
                break
            gone.append((key,))
            surplus -= size
        store.executemany("delete from results where key = ?", gone)
        store.commit()
        store.executescript("pragma incremental_vacuum")  # `execute` frees one page
        log.info("kept_results_removed", results=len(gone), limit_gb=limit / 1e9)
        return len(gone)
    return 0


@contextlib.contextmanager
def _spare(store: sqlite3.Connection) -> Iterator[None]:
    """Work that may be left undone: what it began is taken back, or later reads see the past."""
    try:
        yield
    except sqlite3.OperationalError:
        store.rollback()


def _kept(store: sqlite3.Connection) -> int:
    """Bytes of the pages in use."""
    pages, free, size = (
        store.execute(f"pragma {name}").fetchone()[0]
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)
