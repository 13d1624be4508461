"""Shards: safetensors files of many sequences' rows, written whole, read a sequence at a time."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from attrs import define, field
from safetensors import safe_open
from safetensors.numpy import save_file

from rlvr_sad.teacher_cache.index import SHARDS, Entry, add_entries
from rlvr_sad.teacher_cache.rows import Rows

_NAMES = ("places", "ids", "logprobs", "actual", "entropy")
_BYTES = 64 * 2**20
"""About the size of a shard."""


@define
class ShardWriter:
    """
    Gathers rows and writes them when there are enough; use as a context manager.

    Attributes:
        folder: Of the answers.
        limit: Bytes of rows after which a shard is written.
        written: Sequences that are safely there.
    """

    folder: Path
    limit: int = _BYTES
    written: int = 0
    _waiting: list[tuple[str, str, Rows]] = field(factory=list)
    _size: int = 0

    def __enter__(self) -> ShardWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.flush()  # what was answered is kept, also after an error or Ctrl-C

    def add(self, key: str, digest: str, rows: Rows) -> None:
        """One more sequence."""
        self._waiting.append((key, digest, rows))
        self._size += sum(getattr(rows, name).nbytes for name in _NAMES)
        if self._size >= self.limit:
            self.flush()

    def flush(self) -> None:
        """Write what waits: first the shard, then its lines of the index."""
        if not self._waiting:
            return
        parts = [rows for _, _, rows in self._waiting]
        whole = {name: np.concatenate([getattr(r, name) for r in parts]) for name in _NAMES}
        name = self._name()
        path = self.folder / SHARDS / name
        part = path.with_name(f"{name}.part")
        save_file(whole, str(part))
        part.replace(path)
        entries, at = [], 0
        for key, digest, rows in self._waiting:
            count = len(rows.places)
            mean = float(rows.entropy.astype(np.float64).mean()) if count else 0.0
            entries.append(
                Entry(key=key, shard=name, row=at, rows=count, entropy=mean, digest=digest)
            )
            at += count
        add_entries(self.folder, entries)
        self.written += len(entries)
        self._waiting, self._size = [], 0

    def _name(self) -> str:
        taken = sorted(p.name for p in (self.folder / SHARDS).glob("*.safetensors"))
        number = int(taken[-1].partition(".")[0]) + 1 if taken else 1
        return f"{number:06d}.safetensors"


class ShardReader:
    """Reads rows out of shards; keeps some files open."""

    def __init__(self, folder: Path, open_files: int = 16) -> None:
        self._folder = folder
        self._most = open_files
        self._open: dict[str, Any] = {}

    def rows(self, entry: Entry) -> Rows:
        """
        The rows of a sequence.

        Raises:
            OSError: The shard is not there, or broken.
        """
        file = self._file(entry.shard)
        inside = slice(entry.row, entry.row + entry.rows)
        return Rows(*(file.get_slice(name)[inside] for name in _NAMES))

    def close(self) -> None:
        """Let go of the files."""
        for file in self._open.values():
            with suppress(Exception):
                file.__exit__(None, None, None)
        self._open = {}

    def _file(self, name: str) -> Any:
        if name not in self._open:
            if len(self._open) >= self._most:
                oldest = next(iter(self._open))
                self._open.pop(oldest).__exit__(None, None, None)
            path = self._folder / SHARDS / name
            try:
                self._open[name] = safe_open(str(path), framework="numpy").__enter__()
            except Exception as error:  # the Rust library's own error
                raise OSError(f"{path}: {error}") from error
        return self._open[name]
