"""The cache folder of rlvr, and a key-value file that processes share."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Generic, TypeVar

from rlvr.log import get

__all__ = ["KeyValueCache", "cache_dir"]

T = TypeVar("T")
log = get(__name__)


class KeyValueCache(Generic[T]):
    """
    Texts by key in one SQLite file (write-ahead log, so that readers never wait).

    Nothing that is wrong with the file ends a run. A value that cannot be read counts as unknown
    and is written again. A file that SQLite calls damaged, or that has other columns, is renamed
    beside its place and a fresh one begun. A file that cannot be opened, or is held by another
    process, is left alone: the value is then found again. Each is logged once.
    """

    _db: sqlite3.Connection | None = None

    def __init__(self, path: Path, name: str, read: Callable[[str], T]) -> None:
        """
        Open or make the file.

        Args:
            path: The file. Only its owner may read it.
            name: One value in a word, "verdict": names table, column and log events.
            read: The value of a text; its ValueError, TypeError, LookupError and the like mean that
                the text cannot be read.

        Raises:
            ValueError: The name is no identifier, or one that SQLite or the table has already.
        """
        word = name.lower()
        if not name.isidentifier() or word in ("key", "at") or word.startswith("sqlite_"):
            raise ValueError(
                f"a table is to be named after {name!r}: give one word, like 'verdict'"
            )
        self._path, self._name, self._read = path, name, read
        self._opened: os.stat_result | None = None
        self._said: set[str] = set()
        self._resting_until = 0.0
        self._unreadable: set[str] = set()
        short = f"CASE WHEN length([{name}]) > {_LONGEST} THEN '' ELSE [{name}] END"
        self._select = f"SELECT {short} FROM [{name}s] WHERE key = ?"
        self._attempt(lambda: None)

    def get(self, key: str) -> T | None:
        """The value of a key; None where it is not known or cannot be read."""
        row = self._attempt(lambda: self._execute(self._select, key))
        if row is None:
            return None
        try:
            return self._read(row[0])
        except _UNREADABLE as error:
            self._unreadable.add(key)
            self.say(f"{self._name}_unreadable", key=key, error=repr(error)[:200])
            return None

    def put(self, key: str, text: str) -> None:
        """
        Keep a value; the first one of a key stays, unless it could not be read.

        One that cannot be kept (full disk, another process keeps the lock) is logged once.

        Raises:
            TypeError: Key or value is no text.
        """
        if not (isinstance(key, str) and isinstance(text, str)):
            raise TypeError(f"key and value are texts, not {key!r:.99} and {text!r:.99}")
        insert = f"INTO [{self._name}s] (key, [{self._name}]) VALUES (?, ?)"
        if key in self._unreadable:
            statement = f"INSERT OR REPLACE {insert}"
        else:
            statement = f"INSERT {insert} ON CONFLICT (key) DO NOTHING"
        self._unreadable.discard(key)
        self._attempt(lambda: self._execute(statement, key, text))

    def close(self) -> None:
        """Close the file: it is used no more."""
        if self._db is not None:
            with suppress(sqlite3.Error):
                self._db.close()
        self._db = None

    def __del__(self) -> None:
        """Python 3.13 warns of a database that is let go while it is open."""
        self.close()

    def say(self, event: str, **values: Any) -> None:
        """Log a warning about the file, the first time that this event happens."""
        if event not in self._said:
            log.warning(event, store=str(self._path), **values)
        self._said.add(event)

    def _execute(self, statement: str, *values: str) -> Any:
        return None if self._db is None else self._db.execute(statement, values).fetchone()

    def _attempt(self, work: Callable[[], Any]) -> Any:
        """The result of the work; None if the file does not allow it."""
        if time.monotonic() < self._resting_until:
            return None
        try:
            if self._db is None:
                self._open()
            return work()
        except sqlite3.Error as error:
            code = _code_of(error)
            if code in _DAMAGE or (code in _REFUSED and self._is_foreign()):
                self._set_aside(error)
            else:
                self._unusable(error, rests=self._db is None or code in _HELD)
        except UnicodeEncodeError as error:  # half of a surrogate pair: the next text may be whole
            self.say(f"{self._name}_not_kept", error=str(error))
        except (OSError, ValueError) as error:
            self._unusable(error)
        return None

    def _unusable(self, why: object, *, rests: bool = True) -> None:
        if rests:
            self._resting_until = time.monotonic() + _REST_S
        self.say(
            f"{self._name}_store_unusable", error=str(why), so=f"{self._name}s are found again"
        )

    def _open(self) -> None:
        self._make_private()
        self._opened = self._path.stat()
        is_bound = sqlite3.threadsafety < 3  # else SQLite itself lets one thread in at a time
        db = sqlite3.connect(
            self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=is_bound
        )
        table = (
            f"CREATE TABLE IF NOT EXISTS [{self._name}s] (key TEXT PRIMARY KEY, "
            f"[{self._name}] TEXT NOT NULL, "
            "at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP) WITHOUT ROWID"
        )
        try:
            db.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            try:
                for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=NORMAL", table):
                    db.execute(statement)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
                    raise
            db.execute(self._select, ("",)).fetchone()  # also where it may only be read
        except BaseException:
            db.close()
            raise
        self._db = db

    def _is_foreign(self) -> bool:
        """Whether the table has other columns than those that `_open` gives it."""
        try:
            with closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as db:
                rows = db.execute(f"PRAGMA table_info([{self._name}s])").fetchall()
        except sqlite3.Error as error:  # not even that can be read, or another process holds it
            return _code_of(error) not in _HELD
        return [(row[1], row[5]) for row in rows] != [("key", 1), (self._name, 0), ("at", 0)]

    def _make_private(self) -> None:
        """Make the file and its folder where they are missing; only the owner may read them."""
        path = self._path
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o700)
        elif path.parent == cache_dir():
            with suppress(OSError):
                path.parent.chmod(0o700)
        if path.exists() and not path.is_file():
            raise OSError(errno.EINVAL, "no regular file")
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        for suffix in ("", "-wal", "-shm"):
            part = Path(f"{path}{suffix}")
            if suffix and os.path.lexists(part) and not part.is_file():
                aside = _free_name(part)
                part.rename(aside)
                self.say(f"{self._name}_store_set_aside", part=str(part), renamed_to=str(aside))
            with suppress(OSError):
                if part.stat().st_mode & 0o077:
                    part.chmod(0o600)

    def _set_aside(self, error: sqlite3.Error) -> None:
        """Rename the file and begin another one, unless another process has done so."""
        self.close()
        if not _is_ours(self._path):
            self._unusable(f"{error}; the file is left as it is")
            return
        try:
            if self._opened is None or os.path.samestat(self._path.stat(), self._opened):
                aside = _free_name(self._path)
                for suffix in ("", "-wal", "-shm"):
                    part = Path(f"{self._path}{suffix}")
                    if part.exists():
                        part.rename(f"{aside}{suffix}")
                self.say(f"{self._name}_store_set_aside", error=str(error), renamed_to=str(aside))
            self._open()
        except (OSError, sqlite3.Error) as second:
            self._unusable(second)


_LONGEST = 64 << 20
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
"""SQLite's codes of a file that stays unusable."""
_REFUSED = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT)
"""SQLite's codes of a statement that the file's table does not allow."""
_HELD = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_WAIT_S, _REST_S = 5.0, 60.0
"""Longest wait for a lock; time without a try after another process kept the lock."""
_HEADER = b"SQLite format 3\0"


def _code_of(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", sqlite3.SQLITE_MISUSE)) & 0xFF


def _is_ours(path: Path) -> bool:
    """Whether a file may be renamed: `verify.store` may name a person's text by mistake."""
    if path.suffix in (".sqlite", ".sqlite3", ".db"):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False


def _free_name(path: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    names = (path.with_name(f"{path.name}.damaged-{stamp}{n}") for n in ("", *map(str, range(99))))
    return next(name for name in names if not name.exists())


def cache_dir() -> Path:
    """The cache folder of rlvr: `RLVR_CACHE_DIR`, or the user's cache folder."""
    if chosen := os.environ.get("RLVR_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rlvr"
