"""The verdict store: whatever is wrong with its file, a run goes on and says so once."""

from __future__ import annotations

import gc
import json
import os
import sqlite3
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import rlvr.verification.key_value_cache as store_module
from rlvr import KeyValueCache, Reward
from rlvr.verification.verdict_cache import SqliteStore, open_store

RIGHT = Reward(value=1.0, score01=1.0)


def filled(path: Path, rows: int = 200) -> Path:
    store = SqliteStore(path)
    for number in range(rows):
        store.put(f"key {number:04d}", Reward(value=0.5, score01=0.0, evidence={"log": "x" * 200}))
    store.close()
    return path


def overwrite(at: int, content: bytes) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        raw = bytearray(path.read_bytes())
        raw[at : at + len(content)] = content
        path.write_bytes(raw)

    return damage


def sql(*statements: str) -> Callable[[Path], object]:
    def damage(path: Path) -> None:
        with sqlite3.connect(path, isolation_level=None) as db:
            for statement in statements:
                db.execute(statement)
        db.close()

    return damage


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 7])


DAMAGE: dict[str, Callable[[Path], object]] = {
    "the header": overwrite(0, b"no database at all"),
    "a page": overwrite(4096, b"\xff" * 8192),
    "the schema page": overwrite(100, b"\x00" * 2000),
    "half a file": half,
    "a text": lambda path: path.write_text("plain text\n" * 400),
    "zeros": lambda path: path.write_bytes(b"\0" * 9000),
    "another table": sql("DROP TABLE verdicts", "CREATE TABLE verdicts (other TEXT)"),
    "a missing column": sql("ALTER TABLE verdicts RENAME COLUMN verdict TO said"),
    "a view": sql("DROP TABLE verdicts", "CREATE VIEW verdicts AS SELECT 1 AS one"),
    "an unknown file format": overwrite(18, b"\x09\x09"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_set_aside_and_the_run_goes_on(
    damage: Callable[[Path], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unknown, kept again in a fresh file, and said in one line, whatever the damage."""
    path = filled(tmp_path / "v.sqlite")
    damage(path)

    store = open_store(str(path))
    for number in range(200):
        store.get(f"key {number:04d}")
    store.put("new", RIGHT)
    assert store.get("new") is not None
    store.close()

    said = [line for line in capsys.readouterr().err.splitlines() if "set_aside" in line]
    assert len(said) <= 1
    if damage is not DAMAGE["half a file"]:  # SQLite may still find its rows
        assert len(said) == 1
        assert "v.sqlite.damaged-" in said[0]
    again = open_store(str(path))
    assert again.get("new") is not None
    again.close()
    assert "set_aside" not in capsys.readouterr().err


ROWS = {
    "no JSON": "{",
    "an unknown field": json.dumps({"kind": "reward", "value": 1, "score01": 1, "new": 2}),
    "an unknown kind": json.dumps({"kind": "maybe", "value": 1, "score01": 1}),
    "no kind": json.dumps({"value": 1, "score01": 1}),
    "no object": "[1, 2]",
    "null": "null",
    "a failure": json.dumps({"kind": "failed", "reason": "x"}),
    "no number": json.dumps({"kind": "reward", "value": "1", "score01": 1}),
    "NaN": '{"kind": "reward", "value": NaN, "score01": 1}',
    "a wrong component": json.dumps(
        {"kind": "reward", "value": 1, "score01": 1, "components": {"a": "b"}}
    ),
    "components as a list": json.dumps(
        {"kind": "reward", "value": 1, "score01": 1, "components": [1]}
    ),
    "too deep": "[" * 100_000,
    "too many digits": "1" * 10_000,
    "a reason that is none": json.dumps({"kind": "unscorable", "reason": 3}),
}


@pytest.mark.parametrize("row", [*ROWS.values(), b"\xff\xfe\x00", 17], ids=[*ROWS, "bytes", "int"])
def test_a_row_that_cannot_be_read_is_unknown_and_written_again(
    row: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bad verdict is verified again; the others stay."""
    path = filled(tmp_path / "v.sqlite", rows=2)
    with sqlite3.connect(path, isolation_level=None) as db:
        db.execute("UPDATE verdicts SET verdict = ? WHERE key = 'key 0000'", (row,))
    db.close()

    store = SqliteStore(path)
    assert store.get("key 0000") is None
    assert store.get("key 0001") is not None
    store.put("key 0000", RIGHT)
    assert store.get("key 0000") == Reward(value=1.0, score01=1.0, cached=True)
    store.close()
    assert capsys.readouterr().err.count("verdict_unreadable") == 1


def test_a_locked_file_is_left_alone_and_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process holds it: verdicts are found again, nothing is renamed."""
    monkeypatch.setattr(store_module, "_WAIT_S", 0.01)
    path = filled(tmp_path / "v.sqlite", rows=1)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode=EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    other.execute("UPDATE verdicts SET verdict = verdict")
    store = SqliteStore(path)
    for _ in range(5):
        assert store.get("key 0000") is None
        store.put("new", RIGHT)
    other.execute("COMMIT")
    other.close()

    assert capsys.readouterr().err.count("verdict_store_unusable") == 1
    monkeypatch.setattr(store._file, "_resting_until", 0.0)
    assert store.get("key 0000") is not None
    store.close()
    assert [p.name for p in tmp_path.iterdir()] == ["v.sqlite"]


@pytest.mark.parametrize("what", ["folder", "pipe", "below a file", "a text of a person's"])
def test_what_is_no_store_is_left_as_it_is(
    what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder, a pipe, a path below a file, a data set named by mistake: not touched."""
    path = tmp_path / "v"
    if what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    elif what == "below a file":
        path.write_text("file")
        path = path / "v.sqlite"
    else:
        path.write_text('{"id": "a problem"}\n' * 100)

    store = open_store(str(path))
    store.put("new", RIGHT)
    assert store.get("new") is None
    store.close()

    assert [p.name for p in tmp_path.iterdir()] == ["v"]
    assert capsys.readouterr().err.count("verdict_store_unusable") == 1


def test_a_file_that_may_only_be_read_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Known verdicts are used; that new ones are not kept is said once."""
    path = filled(tmp_path / "v.sqlite", rows=1)
    connect = sqlite3.connect

    def read_only(where: Path, **options: object) -> sqlite3.Connection:
        return connect(f"file:{where}?mode=ro", uri=True, **options)  # type: ignore[call-overload, no-any-return]

    monkeypatch.setattr(sqlite3, "connect", read_only)
    store = SqliteStore(path)
    for number in range(3):
        store.put(f"new {number}", RIGHT)
    assert store.get("key 0000") is not None
    assert store.get("new 0") is None
    store.close()
    assert capsys.readouterr().err.count("verdict_store_unusable") == 1


def test_a_full_disk_loses_no_verdict_that_is_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not fit is found again; what is there stays known."""
    path = filled(tmp_path / "v.sqlite", rows=1)
    store = SqliteStore(path)
    store._file._execute("PRAGMA max_page_count = 1")
    for number in range(50):
        store.put(f"new {number}", Reward(value=1.0, score01=1.0, evidence={"x": "y" * 5000}))
    assert store.get("key 0000") is not None
    store.close()
    assert capsys.readouterr().err.count("verdict_store_unusable") == 1


def test_two_processes_set_a_damaged_file_aside_once(tmp_path: Path) -> None:
    """The second one finds a fresh file and takes that."""
    path = filled(tmp_path / "v.sqlite")
    first, second = SqliteStore(path), SqliteStore(path)
    error = sqlite3.DatabaseError("malformed")
    first._file._set_aside(error)
    first.put("new", RIGHT)
    second._file._set_aside(error)

    assert second.get("new") is not None
    first.close()
    second.close()
    aside = [p.name for p in tmp_path.iterdir() if ".damaged-" in p.name]
    assert len([name for name in aside if not name.endswith(("-wal", "-shm"))]) == 1


def test_only_the_owner_may_read_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0600, its folder 0700; so is a file of before."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    old_mask = os.umask(0o022)
    try:
        store = open_store("")
        store.put("new", RIGHT)
        folder = tmp_path / "cache"
        for path in folder.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        store.close()
        (folder / "verdicts.sqlite").chmod(0o644)
        folder.chmod(0o755)
        open_store("").close()
    finally:
        os.umask(old_mask)
    assert stat.S_IMODE((folder / "verdicts.sqlite").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("suffix", ["-wal", "-shm"])
@pytest.mark.parametrize("what", ["folder", "link"])
def test_what_is_no_file_beside_it_is_set_aside(
    what: str, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SQLite opens nothing where its own files should be: once renamed, verdicts are kept."""
    path = tmp_path / "v.sqlite"
    filled(path)
    part = Path(f"{path}{suffix}")
    part.mkdir() if what == "folder" else part.symlink_to("/nonexistent/x")

    store = SqliteStore(path)
    store.put("new", RIGHT)

    assert store.get("new") is not None
    assert store.get("key 0001") is not None
    assert capsys.readouterr().err.count("verdict_store_set_aside") == 1


@pytest.mark.parametrize(
    "rule",
    [
        "CREATE TABLE verdicts (key TEXT PRIMARY KEY, verdict TEXT, must TEXT NOT NULL)",
        "CREATE TABLE verdicts (key TEXT PRIMARY KEY, verdict TEXT CHECK (verdict < 'a'))",
        "CREATE TABLE verdicts (key TEXT, verdict TEXT)",
    ],
)
def test_a_rule_that_keeps_nothing_is_no_silence(
    rule: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`INSERT OR IGNORE` would leave out every verdict without a word."""
    path = tmp_path / "v.sqlite"
    with sqlite3.connect(path) as db:
        db.execute(rule)
    db.close()

    store = SqliteStore(path)
    store.put("old", RIGHT)
    store.put("new", RIGHT)

    assert store.get("new") is not None
    assert "verdict_store_set_aside" in capsys.readouterr().err


def test_another_thread_may_use_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And nothing that a caller does wrong makes the file damaged."""
    store = SqliteStore(tmp_path / "v.sqlite")
    store.put("key 0001", RIGHT)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(store.get("key 0001")))
    thread.start()
    thread.join()

    assert found[0] is not None
    assert capsys.readouterr().err == ""


def test_a_callers_mistake_is_no_damage(tmp_path: Path) -> None:
    """What is no text, or no name of a table, is refused; the file that others share stays."""
    path = filled(tmp_path / "v.sqlite", rows=1)
    for name in ("my-name", "a b", 'a"b', "", "key", "At", "sqlite_x"):
        with pytest.raises(ValueError, match="one word"):
            KeyValueCache(path, name, str)
    words = KeyValueCache(path, "group", str)  # a word of SQL
    for key, text in (("bad", None), (None, "bad"), (b"bad", "bad")):
        with pytest.raises(TypeError, match="texts"):
            words.put(key, text)  # type: ignore[arg-type]
    words.put("good", "kept")
    words._attempt(lambda: words._execute("no SQL"))  # as a mistake of ours would do

    assert words.get("good") == "kept"
    words.close()
    assert SqliteStore(path).get("key 0000") is not None
    assert not [p.name for p in tmp_path.iterdir() if "damaged" in p.name]


def test_one_that_is_let_go_closes_its_file(tmp_path: Path) -> None:
    """Also where nobody does; one that was never opened has nothing to close."""
    words = KeyValueCache(tmp_path / "v.sqlite", "word", str)
    db = words._db
    assert db is not None
    del words
    gc.collect()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        db.execute("SELECT 1")
    KeyValueCache.__new__(KeyValueCache).__del__()


def test_a_text_that_is_no_unicode_is_not_kept_and_the_next_one_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of a surrogate pair, as key or value; said once."""
    store = KeyValueCache(tmp_path / "v.sqlite", "word", str)
    store.put("\ud800", "text")
    store.put("key", "\ud800")

    assert (store.get("\ud800"), store.get("key")) == (None, None)
    store.put("key", "text")
    assert store.get("key") == "text"
    store.close()
    assert capsys.readouterr().err.count("word_not_kept") == 1


def test_a_huge_row_is_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It counts as unknown, and is written again."""
    path = tmp_path / "v.sqlite"
    filled(path)
    with sqlite3.connect(path) as db:
        db.execute("UPDATE verdicts SET verdict = zeroblob(100000000) WHERE key = 'key 0001'")
    db.close()
    store = SqliteStore(path)

    assert store.get("key 0001") is None
    assert "(char 0)" in capsys.readouterr().err
    store.put("key 0001", RIGHT)
    assert store.get("key 0001") is not None
