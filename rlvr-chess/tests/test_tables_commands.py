from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest
from attrs import evolve
from engine_fixture import QUICK, positions, script
from engine_fixture import stockfish as stockfish

from rlvr import ConfigError, ExitCode, PrerequisiteError, VerifierError
from rlvr.cli.main import main
from rlvr.testing.tools import shared_data
from rlvr_chess.commands.build_table import build_table
from rlvr_chess.commands.verify_table import verify_table
from rlvr_chess.tables.file import Table, read_table, write_table

FENS = positions(8, seed=8)
NODES = ["--nodes", str(QUICK)]


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a table of `FENS` that the command built, its data set and its cache."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RLVR_CACHE_DIR", str(folder / "cache"))
        out = ["--out", str(folder / "table.jsonl.gz")]
        build_table(["--dataset", str(dataset(folder)), *out, *NODES])
    return folder


@pytest.fixture
def table(stockfish: Path, built: Path, tmp_path: Path) -> Path:
    """The table with what belongs to it, in this test's folder."""
    shutil.copytree(built, tmp_path, dirs_exist_ok=True)
    return tmp_path / "table.jsonl.gz"


def dataset(folder: Path, fens: list[str] = FENS) -> Path:
    path = folder / "positions.fen"
    path.write_text("".join(f"{fen}\n" for fen in fens))
    return path


def test_build_then_verify(table: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A built table holds every position in order, and verifies on the same machine."""
    assert list(read_table(table).entries) == FENS
    capsys.readouterr()
    assert verify_table([str(table), "--sample", "5", "--seed", "3", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["same"], facts["searched"], facts["positions"]) == (5, 5, len(FENS))
    assert verify_table([str(table), "--sample", "0"]) == 0
    assert capsys.readouterr().out.startswith(f"{len(FENS)} of {len(FENS)} positions come out")


def test_rebuilding_is_bit_for_bit(table: Path, tmp_path: Path) -> None:
    """Searched anew without cache, by two processes, the file is the same to the byte."""
    out = tmp_path / "again.jsonl.gz"
    (tmp_path / "cache" / "chess-tables.sqlite").unlink()
    data = str(tmp_path / "positions.fen")
    build_table(["--dataset", data, "--out", str(out), *NODES, "--engines", "2"])
    assert out.read_bytes() == table.read_bytes()


def test_build_goes_on_where_it_was_broken_off(stockfish: Path, tmp_path: Path) -> None:
    """Neither what the file nor what the cache holds is searched again."""
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")
    told.touch()
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"

    def searches(fens: list[str], out: Path) -> int:
        before = told.read_text().count("go nodes")
        data = dataset(tmp_path, fens)
        words = ["--dataset", str(data), "--out", str(out), "--engine", str(engine), *NODES]
        assert build_table(words) == 0
        return told.read_text().count("go nodes") - before

    assert searches(FENS[:3], one) == 3
    assert searches(FENS, one) == len(FENS) - 3
    assert searches(FENS, two) == 0  # all from the cache
    (tmp_path / "cache" / "chess-tables.sqlite").unlink()
    assert searches(FENS, two) == 0  # all from the file
    assert one.read_bytes() == two.read_bytes()
    assert searches(FENS[:1], two) == 0
    assert set(read_table(two).entries) == set(FENS)  # a smaller data set takes nothing away


def test_position_that_cannot_be_scored(
    stockfish: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A position that the engine fails at is named and left out; the others are written; exit 5."""
    board = FENS[3].split()[0]
    engine = script(tmp_path, f"sed -u '\\,{board},d' | {stockfish}\n")  # never told of it
    out = tmp_path / "table.jsonl"
    data = str(dataset(tmp_path))
    with pytest.raises(VerifierError, match=r"1 of 8 positions") as caught:
        build_table(["--dataset", data, "--out", str(out), "--engine", str(engine), *NODES])
    assert caught.value.exit_code == 5
    assert list(read_table(out).entries) == FENS[:3] + FENS[4:]
    assert f"could not score {FENS[3]}" in capsys.readouterr().err


def test_dead_engine_stops_the_build(stockfish: Path, tmp_path: Path) -> None:
    """An engine that fails at everything is not tried on every position; no file is written."""
    starts = tmp_path / "starts"
    engine = script(
        tmp_path, f"echo >> {starts}\n[ $(wc -l < {starts}) -gt 1 ] && exit 1\nexec {stockfish}\n"
    )
    out = tmp_path / "table.jsonl"
    data = str(dataset(tmp_path, positions(40, seed=10)))
    with pytest.raises(VerifierError, match="the engine fails at position after position"):
        build_table(["--dataset", data, "--out", str(out), "--engine", str(engine), *NODES])
    assert len(starts.read_text()) < 40
    assert not out.exists()


def test_engine_that_ends_often_is_only_slow(stockfish: Path, table: Path, tmp_path: Path) -> None:
    """An engine that ends after a few searches each time is started again and again."""
    engine = script(tmp_path, f"sed -u 16q | {stockfish}\n")
    out = tmp_path / "often.jsonl"
    data = str(dataset(tmp_path))
    build_table(["--dataset", data, "--out", str(out), "--engine", str(engine), *NODES])
    one, two = read_table(out), read_table(table)
    moves = {fen: entry.values.moves for fen, entry in one.entries.items()}
    assert moves == {fen: entry.values.moves for fen, entry in two.entries.items()}


def test_bad_rows_are_named(
    stockfish: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row that is no position is named on stderr with its line; the others are scored."""
    data = dataset(tmp_path, [FENS[0], "8/8/8/8/8/8/8/8 w - - 0 1", FENS[1]])
    out = tmp_path / "table.jsonl"
    assert build_table(["--dataset", str(data), "--out", str(out), *NODES]) == 0
    assert "left out: line 2" in capsys.readouterr().err
    assert list(read_table(out).entries) == FENS[:2]


def test_file_of_another_engine_is_not_overwritten(table: Path, tmp_path: Path) -> None:
    """A file that was searched otherwise stays as it is; both ways are named."""
    before = table.read_bytes()
    data = str(tmp_path / "positions.fen")
    with pytest.raises(ConfigError, match=f"nodes {QUICK} against 50"):
        build_table(["--dataset", data, "--out", str(table), "--nodes", "50"])
    assert table.read_bytes() == before


def test_changed_value_is_found(table: Path) -> None:
    """One centipawn more in one move: exit 5, position and move named."""
    held = read_table(table)
    fen = FENS[2]
    entry = held.entries[fen]
    (uci, kind, value), *others = entry.values.moves
    values = evolve(entry.values, moves=[(uci, kind, value + 1), *others])
    changed = {**held.entries, fen: evolve(entry, values=values)}
    write_table(table, Table(identity=held.identity, entries=changed))
    with pytest.raises(VerifierError, match="1 of 8 positions") as caught:
        verify_table([str(table), "--sample", "0"])
    assert f"{fen}: place 1: {uci} {kind} {value + 1} in the file" in str(caught.value)


def test_missing_move_is_found(table: Path) -> None:
    """A table that lacks a legal move is refused before anything is searched."""
    held = read_table(table)
    entry = held.entries[FENS[0]]
    values = evolve(entry.values, moves=entry.values.moves[:-1])
    changed = {FENS[0]: evolve(entry, values=values)}
    write_table(table, Table(identity=held.identity, entries=changed))
    with pytest.raises(ConfigError, match="line 2: no value of 1 legal moves"):
        verify_table([str(table)])


def test_damaged_table_is_refused(tmp_path: Path) -> None:
    """A `.gz` with broken bytes is no table and no data set: both are said, no traceback."""
    path = tmp_path / "t.jsonl.gz"
    for body in (b"", b'{"rlvr_chess_table":1}' * 20):
        path.write_bytes(gzip.compress(body + bytes(range(256)) * 40)[:-30] + b"\xff" * 30)
        with pytest.raises(ConfigError, match=r"t\.jsonl\.gz"):
            verify_table([str(path)])


def test_out_is_checked_before_the_search(stockfish: Path, tmp_path: Path) -> None:
    """Where the table cannot be written, no position is searched."""
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")
    (tmp_path / "afile").write_text("text")
    words = ["--dataset", str(dataset(tmp_path)), "--engine", str(engine), *NODES]
    for name in ("afile/t.jsonl", "afile/below/t.jsonl"):
        with pytest.raises(ConfigError, match="a file where its folder should be") as caught:
            build_table([*words, "--out", str(tmp_path / name)])
        assert f"{name} was to be written" in str(caught.value)
    assert "go nodes" not in told.read_text()
    assert build_table([*words, "--out", str(tmp_path / "new" / "t.jsonl")]) == 0


def test_another_build_is_said(table: Path) -> None:
    """The table of another build is neither verified nor added to: both builds named, exit 4."""
    held = read_table(table)
    other = evolve(held.identity, name="Stockfish 99", binary="f" * 64)
    write_table(table, Table(identity=other, entries=held.entries))
    build = ["--dataset", str(table.with_name("positions.fen")), "--out", str(table), *NODES]
    for command, words in ((verify_table, [str(table)]), (build_table, build)):
        with pytest.raises(PrerequisiteError, match=r"different: engine .*binary") as caught:
            command(words)
        assert caught.value.exit_code == ExitCode.PREREQUISITE
        assert other.text in str(caught.value)
        assert held.identity.text in str(caught.value)


def test_other_nodes_are_the_callers_mistake(table: Path) -> None:
    """A table searched with other nodes by the same build: exit 2, the file stays."""
    before = table.read_bytes()
    data = str(table.with_name("positions.fen"))
    with pytest.raises(ConfigError, match="different: nodes ") as caught:
        build_table(["--dataset", data, "--out", str(table), "--nodes", str(QUICK + 1)])
    assert caught.value.exit_code == ExitCode.USAGE
    assert table.read_bytes() == before


def test_data_set_with_values_is_verified(
    stockfish: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of our JSON Lines with values are searched again as well."""
    path = shared_data("chess", "policy_action_values.jsonl")
    try:
        assert verify_table([str(path), "--sample", "4"]) == 0
    except VerifierError:
        out = capsys.readouterr().out
        assert "Stockfish 15.1" not in out
        pytest.skip(f"another build than the data's: {out}")
    assert capsys.readouterr().out.startswith("4 of 4 positions")


@pytest.mark.integration
def test_exit_codes(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands' exit codes: 0 equal, 2 for a file that is none, 4 without an engine."""
    assert main(["chess", "verify-table", str(table), "--sample", "2"]) == 0
    assert main(["chess", "verify-table", str(tmp_path / "absent")]) == 2
    assert main(["chess", "verify-table", str(table), "--engine", "/nonexistent"]) == 4
    assert "apt-get install stockfish" in capsys.readouterr().err
    data = str(tmp_path / "positions.fen")
    no_nodes = ["chess", "build-table", "--dataset", data, "--out", "x", "--nodes", "0"]
    assert main(no_nodes) == 2
