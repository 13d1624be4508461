from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rlvr import ConfigError, ExitCode
from rlvr_chess.engine.identity import EngineIdentity
from rlvr_chess.tables.file import (
    SHIPPED,
    Table,
    is_table,
    read_table,
    shipped_positions,
    shipped_table,
    write_table,
)
from rlvr_chess.values import ActionValues, Entry

IDENTITY = EngineIdentity(name="Stockfish 15.1", net="nn-1.nnue", binary="a" * 64, nodes=100)
FENS = ("7k/8/8/8/8/8/r7/K7 w - - 3 9", "7k/8/8/8/8/1r6/8/K7 w - - 0 1")


def table() -> Table:
    first = ActionValues(
        fen=FENS[0], moves=[("a1a2", "cp", 500), ("a1b1", "mate", -3)], engine=IDENTITY.text
    )
    second = ActionValues(fen=FENS[1], moves=[("a1a2", "cp", 0)], engine=IDENTITY.text)
    entries = {
        FENS[0]: Entry(values=first, depth=8, split="test"),
        FENS[1]: Entry(values=second, depth=3),
    }
    return Table(identity=IDENTITY, entries=entries)


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    """What is written is read again: values, their order, depth, split, engine."""
    path = tmp_path / name
    write_table(path, table())
    assert read_table(path) == table()
    assert list(read_table(path).entries) == list(FENS)
    assert is_table(path)


def test_equal_tables_are_equal_bytes(tmp_path: Path) -> None:
    """Neither time nor file name gets into the file, so that a rebuild can be compared."""
    write_table(tmp_path / "one.jsonl.gz", table())
    write_table(tmp_path / "two.jsonl.gz", table())
    assert (tmp_path / "one.jsonl.gz").read_bytes() == (tmp_path / "two.jsonl.gz").read_bytes()


def test_lines_are_as_documented(tmp_path: Path) -> None:
    """A header, then key, fen, moves, depth a line, and split only where there is one."""
    path = tmp_path / "t.jsonl"
    write_table(path, table())
    header, first, second = map(json.loads, path.read_text().splitlines())
    assert header == {"rlvr_chess_table": 1, "engine": IDENTITY.to_json()}
    assert first == {
        "key": IDENTITY.key(FENS[0]),
        "fen": FENS[0],
        "moves": [["a1a2", "cp", 500], ["a1b1", "mate", -3]],
        "depth": 8,
        "split": "test",
    }
    assert "split" not in second


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"depth":8', '"depth":8', ""),
        ("7k/8/8/8/8/8/r7", "7k/8/8/8/8/r7/8", "line 2: the key is not that of"),
        ('"a1a2","cp",500', '"a1a2","xx",500', "line 2: xx 500 is not a score"),
        ("500", "500.5", r"line 2: cp 500\.5 is not a score"),
        ('"nodes":100', '"nodes":101', "line 2: the key is not that of"),
        ('"nodes":100', '"nodes":0', "line 1 is not the header"),
        ('"rlvr_chess_table":1', '"rlvr_chess_table":2', "format 2, this rlvr-chess reads 1"),
        ('"key"', '"kee"', "line 2: 'key'"),
        ('[["a1a2","cp",0]]', "[]", "line 3: no moves"),
        ('[["a1a2","cp",0]]', '[["a1a2","cp"]]', "line 3: "),
        ('["a1a2","cp",500],', "", "line 2: no value of 1 legal moves: a1a2"),
        ('["a1a2","cp",500],', '["zzzz","cp",500],', "line 2: not legal here: 'zzzz'"),
        ('["a1a2","cp",500],', '["a1a2","cp",500],["a1a2","cp",500],', "line 2: a1a2 has two"),
        ('"cp",500', '"mate",0', "line 2: mate 0 is not a score"),
        ('"cp",500', '"mate",-2', "line 2: not best first: a1b1 is better than a1a2"),
        ('[["a1a2","cp",0]]', "[" * 100_000, "line 3: "),
        ('{"rlvr_chess_table":1,', '{"rlvr_chess_table":' + "[" * 100_000, "line 1 is not"),
    ],
)
def test_changed_lines_show(tmp_path: Path, old: str, new: str, reason: str) -> None:
    """A table that was changed by hand or by accident is refused; the line is named."""
    path = tmp_path / "t.jsonl"
    write_table(path, table())
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    if not reason:
        assert read_table(path) == table()
        return
    with pytest.raises(ConfigError, match=reason) as caught:
        read_table(path)
    assert caught.value.exit_code == ExitCode.USAGE
    assert str(path) in str(caught.value)
    assert "rlvr chess build-table" in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"\n", b"[]", b"{}", b"\xff\xfe", b'{"fen": 1}'])
def test_not_a_table(tmp_path: Path, content: bytes) -> None:
    """Any other file is refused as such."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    assert not is_table(path)
    with pytest.raises(ConfigError, match="cannot be used"):
        read_table(path)


def test_broken_gzip(tmp_path: Path) -> None:
    """A file that was cut short, or is no gzip in spite of its name, is refused."""
    path = tmp_path / "t.jsonl.gz"
    write_table(path, table())
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ConfigError):
        read_table(path)
    write_table(path, table())
    packed = path.read_bytes()
    for place in range(10, len(packed)):
        path.write_bytes(packed[:place] + bytes([packed[place] ^ 0xFF]) + packed[place + 1 :])
        is_table(path)
        with pytest.raises(ConfigError):
            read_table(path)
    path.write_bytes(b"plain")
    assert not is_table(path)
    with pytest.raises(ConfigError):
        read_table(path)
    with pytest.raises(ConfigError):
        read_table(tmp_path / "absent.jsonl")


class Breaking(Mapping[str, Entry]):
    """Entries that fail after the first one, as a full disk would."""

    def __iter__(self) -> Iterator[str]:
        yield FENS[0]
        raise OSError("disk full")

    def __getitem__(self, fen: str) -> Entry:
        return table().entries[fen]

    def __len__(self) -> int:
        return 2


def test_written_in_one_piece_or_not_at_all(tmp_path: Path) -> None:
    """A failure while writing leaves the old file as it was, and no other file."""
    path = tmp_path / "t.jsonl"
    write_table(path, table())
    with pytest.raises(OSError, match="disk full"):
        write_table(path, Table(identity=IDENTITY, entries=Breaking()))
    assert read_table(path) == table()
    assert list(tmp_path.iterdir()) == [path]


def test_shipped_table() -> None:
    """The shipped table reads, agrees with the rules, and is small enough for a package."""
    if not SHIPPED.is_file():
        pytest.skip("this checkout holds no starter positions")
    shipped = shipped_table()
    assert shipped is not None
    assert read_table(SHIPPED) == shipped, "its moves are the legal ones, in order"
    found = dict(shipped_positions())
    assert len(found) == len(shipped.entries) > 0
    assert SHIPPED.stat().st_size <= 2 * 2**20
    with gzip.open(SHIPPED) as file:
        assert b"rlvr_chess_table" in file.readline()
