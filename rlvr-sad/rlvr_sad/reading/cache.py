"""What was read and tokenised before, by content: a record that did not change costs nothing.

The key is a sha256 over the record's bytes, the format that was asked for, the code of the readers
and the tokenizer. The file's name and the record's place are no part of it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import sqlite3
import sys
import zlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

import rlvr_sad
from rlvr.errors import ConfigError, explain
from rlvr_sad.formats.catalog import formats
from rlvr_sad.reading.limit import limit_of, now, prune, touch
from rlvr_sad.reading.raw import Raw, Rejected
from rlvr_sad.reading.read import Outcome
from rlvr_sad.tokens import Tokens
from rlvr_sad.trajectory import AgentTrajectory, Media, Segment

Prepared = tuple[Outcome, tuple[Tokens, ...]]
"""What became of a record, and the tokens of each trajectory (none without a tokenizer)."""


class TrajectoryCache:
    """
    A file of results; several processes may use it at once.

    It is cut to its limit when it is opened and when it is closed, not while it is in use.
    """

    def __init__(self, path: Path | None = None, limit: int | None = None) -> None:
        """
        Open or make the file.

        Args:
            path: The file; None: in rlvr's cache folder.
            limit: Bytes that it may keep, 0: any number; None: as the environment says.
        """
        path = path or default_path()
        self._limit = limit_of() if limit is None else limit
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._store = sqlite3.connect(path, timeout=60)
        except (OSError, sqlite3.OperationalError) as error:
            raise _unusable(path, error) from error
        try:
            if not self._store.execute("pragma page_count").fetchone()[0]:  # a file that is new
                self._store.execute("pragma auto_vacuum=incremental")  # it waits for every writer
            self._store.execute("pragma journal_mode=wal")
            self._store.execute("pragma synchronous=normal")
            self._store.execute(
                "create table if not exists results (key blob primary key, data, used integer)"
            )
            columns = {row[1] for row in self._store.execute("pragma table_info(results)")}
            if "used" not in columns:  # of an earlier version
                self._store.execute("alter table results add column used integer default 0")
            prune(self._store, self._limit)
        except sqlite3.DatabaseError as error:
            self._store.close()
            raise _unusable(path, error) from error
        self.hits = 0
        self.misses = 0

    def close(self) -> None:
        """Write what is pending, remove what is too much, and close the file."""
        self._store.commit()
        prune(self._store, self._limit)
        self._store.close()

    def get(self, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The results that are there."""
        marks = ",".join("?" * len(keys))
        rows = self._store.execute(
            f"select key, data, used from results where key in ({marks})", keys
        ).fetchall()
        found = {bytes(key): bytes(data) for key, data, _ in rows}
        if before := [key for key, _, used in rows if used < now()]:
            touch(self._store, before)
        hits = sum(key in found for key in keys)
        self.hits += hits
        self.misses += len(keys) - hits
        return found

    def put(self, results: Mapping[bytes, bytes]) -> None:
        """Keep more results."""
        hour = now()
        self._store.executemany(
            "insert or replace into results (key, data, used) values (?, ?, ?)",
            [(key, data, hour) for key, data in results.items()],
        )
        self._store.commit()


def _unusable(path: Path, error: Exception) -> ConfigError:
    return ConfigError(
        explain(
            f"results were to be kept in {path}.",
            f"found: {error}",
            "remove the file, or choose another folder with RLVR_CACHE_DIR",
        )
    )


def default_path() -> Path:
    """Where results are kept: below `RLVR_CACHE_DIR`, or the user's cache folder."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    folder = os.environ.get("RLVR_CACHE_DIR") or str(Path(home) / "rlvr")
    return Path(folder) / "sad" / "trajectories.sqlite"


def key_of(raw: Raw, format_name: str, tokenizer: str) -> bytes:
    """The key of a record's result; `tokenizer` is its fingerprint, "" for none."""
    head = json.dumps([code_digest(), raw.kind, format_name, tokenizer]).encode()
    return hashlib.sha256(head + b"\0" + raw.data).digest()


@cache
def code_digest() -> str:
    """What the readers' source is, ours and those of the formats of others; and the layouts'."""
    folder = Path(rlvr_sad.__file__).parent
    files = [
        p for part in ("text", "formats", "reading", "replay") for p in (folder / part).glob("*.py")
    ]
    files += [folder / name for name in ("draft.py", "tokens.py", "vision.py")]
    for one in formats():
        name = (
            inspect.getfile(type(one.adapter))
            if type(one.adapter).__module__ in sys.modules
            else ""
        )
        files += [Path(name)] if name else []
    digest = hashlib.sha256()
    for file in sorted(set(files)):
        digest.update(file.name.encode() + file.read_bytes())
    return digest.hexdigest()


def packed(prepared: Prepared) -> bytes:
    """A result as bytes, without the file and the place it comes from."""
    outcome, tokens = prepared
    head = {
        "own_id": outcome.own_id,
        "rejected": outcome.rejected.reason if outcome.rejected else None,
        "trajectories": [attrs.asdict(t) for t in outcome.trajectories],
        "suffixes": [t.id[len(outcome.name) :] for t in outcome.trajectories],
        "lengths": [len(t.ids) for t in tokens],
    }
    text = zlib.compress(json.dumps(head, ensure_ascii=False).encode("utf-8"), 1)
    arrays = b"".join(t.ids.tobytes() + t.types.tobytes() + t.mask.tobytes() for t in tokens)
    return len(text).to_bytes(8, "little") + text + arrays


def unpacked(data: bytes, raw: Raw, source: str) -> Prepared:
    """The same result, of a record at this place."""
    size = int.from_bytes(data[:8], "little")
    head = json.loads(zlib.decompress(data[8 : 8 + size]))
    if head["rejected"] is not None:
        refused = Rejected(source=source, line=raw.line, id=raw.id, reason=head["rejected"])
        return Outcome(rejected=refused, name=raw.id), ()
    name = head["own_id"] or raw.id
    trajectories = tuple(
        _trajectory(fields, name + suffix, source, raw.line)
        for fields, suffix in zip(head["trajectories"], head["suffixes"], strict=True)
    )
    tokens, at = [], 8 + size
    for length in head["lengths"]:
        ids = np.frombuffer(data, np.int32, length, at)
        types = np.frombuffer(data, np.uint8, length, at + 4 * length)
        mask = np.frombuffer(data, np.bool_, length, at + 5 * length)
        tokens.append(Tokens(ids, types, mask))
        at += 6 * length
    return Outcome(trajectories, name=name, own_id=head["own_id"]), tuple(tokens)


def _trajectory(fields: dict[str, Any], id: str, source: str, line: int) -> AgentTrajectory:
    segments = tuple(
        Segment(**{**s, "media": Media(**s["media"]) if s["media"] else None})
        for s in fields.pop("segments")
    )
    notes = tuple(fields.pop("notes"))
    here = {"id": id, "source": source, "line": line}
    return AgentTrajectory(**{**fields, **here, "segments": segments, "notes": notes})
