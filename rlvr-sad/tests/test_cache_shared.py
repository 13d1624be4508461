"""A file of kept results that others hold: nobody waits for housekeeping, nobody breaks off."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlvr_sad.sessions import cache as cache_module
from rlvr_sad.sessions.cache import TrajectoryCache, code_digest


@pytest.fixture
def hour(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The hour that it is; who waits for the file waits 50 ms."""
    connect, at = sqlite3.connect, [1]

    def impatient(path: Path, timeout: float) -> sqlite3.Connection:
        return connect(path, timeout=min(timeout, 0.05))

    monkeypatch.setattr(sqlite3, "connect", impatient)
    monkeypatch.setattr(cache_module, "now", lambda: at[0])
    return at


@pytest.fixture
def held(tmp_path: Path, hour: list[int]) -> Iterator[tuple[Path, sqlite3.Connection]]:
    """Ten results of 100 kB, and another process that is writing."""
    path = tmp_path / "c.sqlite"
    first = TrajectoryCache(path, limit=0)
    first.put({bytes([n]): bytes(100_000) for n in range(10)})
    first.close()
    other = sqlite3.connect(path, timeout=1)
    other.isolation_level = None
    other.execute("begin immediate")
    yield path, other
    other.close()


@pytest.fixture
def cache(held: tuple[Path, sqlite3.Connection], hour: list[int]) -> TrajectoryCache:
    """The file opened an hour later with half the limit, while the other still writes."""
    hour[0] = 2
    return TrajectoryCache(held[0], limit=500_000)


def test_a_file_in_use_is_opened_and_read(cache: TrajectoryCache) -> None:
    """Also where it is over its limit, and where uses of an hour ago are to be written down."""
    assert set(cache.get([b"\0", b"\1", b"?"])) == {b"\0", b"\1"}


def test_housekeeping_that_was_left_leaves_nothing_begun(
    held: tuple[Path, sqlite3.Connection], cache: TrajectoryCache
) -> None:
    """What others write meanwhile is seen, and written beside."""
    _, other = held
    cache.get([b"\0"])
    other.execute("insert into results values ('theirs', x'00', 2)")
    other.execute("commit")
    cache.get([b"\1"])
    other.execute("update results set used = 3")

    cache.put({b"ours": b"kept"})
    assert cache.get([b"ours"]) == {b"ours": b"kept"}
    cache.close()
    (left,) = other.execute("select count(*) from results").fetchone()
    assert left < 10  # closing had the file to itself


def test_what_is_kept_goes_by_all_code_that_made_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts with pictures are kept, so the code that places pictures counts."""
    before = code_digest.__wrapped__()
    read = Path.read_bytes

    def changed(path: Path) -> Any:
        return read(path) + (b"# changed" if path.name == "images.py" else b"")

    assert code_digest.__wrapped__() == before
    monkeypatch.setattr(Path, "read_bytes", changed)
    assert code_digest.__wrapped__() != before
