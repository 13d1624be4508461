from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import chess
import pytest
from attrs import evolve
from engine_fixture import QUICK, positions, script
from engine_fixture import stockfish as stockfish

from rlvr import ConfigError, ExitCode, PrerequisiteError
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.identity import identify
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.fen import FenError
from rlvr_chess.tables.file import Table, write_table
from rlvr_chess.tables.store import TableCache, TableStore, cache_file
from rlvr_chess.values import ActionValues, Entry

FENS = positions(4, seed=6)
NO_ENGINE = EngineConfig(path="/nonexistent/stockfish", nodes=QUICK, processes=1)


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test has a cache of its own, and no shipped table."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("rlvr_chess.tables.store.shipped_table", lambda: None)
    return tmp_path / "cache"


def sevens(fen: str) -> tuple[tuple[str, str, int], ...]:
    return tuple((move.uci(), "cp", 7) for move in chess.Board(fen).legal_moves)


def layer(stockfish: Path, *fens: str, **changes: object) -> Table:
    """A table that says what no engine would, so that its values are recognised."""
    identity = evolve(identify(stockfish, QUICK), **changes)  # type: ignore[arg-type]
    entries = {
        fen: Entry(values=ActionValues(fen=fen, moves=sevens(fen), engine=identity.text), depth=99)
        for fen in fens
    }
    return Table(identity=identity, entries=entries)


def values(store: TableStore, *fens: str) -> list[ActionValues]:
    async def work() -> list[ActionValues]:
        async with store:
            return list(await asyncio.gather(*(store.values(fen) for fen in fens)))

    return asyncio.run(work())


def test_table_needs_no_engine(stockfish: Path) -> None:
    """Positions of a table are answered where no engine is installed; so is `peek`."""
    store = TableStore(engine=NO_ENGINE, layers=[layer(stockfish, FENS[0])])
    assert [found.moves for found in values(store, FENS[0])] == [sevens(FENS[0])]
    assert store.peek(FENS[0]) is not None
    assert store.peek(FENS[1]) is None
    store.close()


def test_first_layer_wins(stockfish: Path) -> None:
    """Of two tables that hold a position the first is taken, and the second fills its gaps."""
    one, two = layer(stockfish, FENS[0]), layer(stockfish, FENS[0], FENS[1], name="other")
    store = TableStore(engine=NO_ENGINE, layers=[one, two])
    first, second = values(store, FENS[0], FENS[1])
    assert first.engine == one.identity.text
    assert second.engine == two.identity.text


def test_miss_without_engine_is_exit_4() -> None:
    """A miss where no engine is installed names the package: exit code 4, no reward."""
    with pytest.raises(PrerequisiteError, match="apt-get install stockfish") as caught:
        values(TableStore(engine=NO_ENGINE), FENS[0])
    assert caught.value.exit_code == ExitCode.PREREQUISITE


def test_miss_is_searched_and_kept(stockfish: Path, tmp_path: Path) -> None:
    """A miss is searched once: the next store, and `peek`, find it in the cache, no engine told."""
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")
    config = EngineConfig(path=str(engine), nodes=QUICK, processes=1)
    first = values(TableStore(engine=config), FENS[0], FENS[0])
    assert told.read_text().count("go nodes") == 1
    store = TableStore(engine=config)
    assert store.peek(FENS[0]) == first[0] == first[1]
    assert values(store, FENS[0]) == first[:1]
    assert told.read_text().count("go nodes") == 1

    async def searched() -> ActionValues:
        async with EnginePool(config) as pool:
            return await pool.action_values(FENS[0])

    assert asyncio.run(searched()) == first[0]


def test_other_nodes_are_other_values(stockfish: Path) -> None:
    """What was cached at one limit does not answer for another."""
    config = EngineConfig(nodes=QUICK, processes=1)
    values(TableStore(engine=config), FENS[0])
    store = TableStore(engine=evolve(config, nodes=QUICK + 1))
    assert store.peek(FENS[0]) is None
    store.close()


def test_another_build_is_not_mixed_in(stockfish: Path) -> None:
    """A miss beside tables of another build: refused, both builds and the remedy named."""
    other = layer(stockfish, FENS[0], name="Stockfish 99", binary="f" * 64)
    store = TableStore(engine=EngineConfig(nodes=QUICK, processes=1), layers=[other])
    with pytest.raises(PrerequisiteError, match=r"chess\.any_engine=true") as caught:
        values(store, FENS[1])
    assert caught.value.exit_code == ExitCode.PREREQUISITE
    assert other.identity.text in str(caught.value)
    assert identify(stockfish, QUICK).text in str(caught.value)
    assert [found.moves for found in values(store, FENS[0])] == [sevens(FENS[0])]


def test_cache_of_another_build_is_not_mixed_in(stockfish: Path) -> None:
    """Beside tables of another build, what this machine's engine left in the cache is not used."""
    config = EngineConfig(nodes=QUICK, processes=1)
    values(TableStore(engine=config), FENS[1])
    other = layer(stockfish, FENS[0], name="Stockfish 99")
    store = TableStore(engine=config, layers=[other])
    assert store.peek(FENS[1]) is None
    with pytest.raises(PrerequisiteError):
        values(store, FENS[1])


def test_any_engine_mixes_on_request(stockfish: Path) -> None:
    """With `chess.any_engine=true` tables answer for what they hold, this engine for the rest."""
    other = layer(stockfish, FENS[0], name="Stockfish 99")
    config = EngineConfig(nodes=QUICK, processes=1)
    store = TableStore(engine=config, layers=[other], any_engine=True)
    old, new = values(store, FENS[0], FENS[1])
    assert old.engine == other.identity.text
    assert new.engine == identify(stockfish, QUICK).text


def test_options_choose_the_table(stockfish: Path, tmp_path: Path) -> None:
    """`chess.tables` is read; with other nodes than `chess.nodes` it is refused, both named."""
    path = tmp_path / "t.jsonl.gz"
    write_table(path, layer(stockfish, FENS[0]))
    store = TableStore.of(ChessConfig(tables=str(path), nodes=QUICK))
    assert store.peek(FENS[0]) is not None
    with pytest.raises(ConfigError, match=f"try: chess.nodes={QUICK}"):
        TableStore.of(ChessConfig(tables=str(path)))
    assert TableStore.of(ChessConfig(tables=str(path), any_engine=True)).layers
    with pytest.raises(ConfigError, match="No such file"):
        TableStore.of(ChessConfig(tables=str(tmp_path / "absent")))


def test_shipped_table_joins_where_it_fits(
    stockfish: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shipped table is used beside one of the same engine, and left out beside another's."""
    shipped = layer(stockfish, FENS[1])
    monkeypatch.setattr("rlvr_chess.tables.store.shipped_table", lambda: shipped)
    same, other = tmp_path / "same.jsonl", tmp_path / "other.jsonl"
    write_table(same, layer(stockfish, FENS[0]))
    write_table(other, layer(stockfish, FENS[0], name="Stockfish 99"))

    def layers(**options: object) -> int:
        config = ChessConfig(**{"nodes": QUICK, **options})  # type: ignore[arg-type]
        return len(TableStore.of(config).layers)

    assert layers() == 1
    assert layers(nodes=QUICK + 1) == 0
    assert layers(nodes=QUICK + 1, any_engine=True) == 1
    assert layers(tables=str(same)) == 2
    assert layers(tables=str(other)) == 1
    assert layers(tables=str(other), any_engine=True) == 2


def test_bad_positions(stockfish: Path) -> None:
    """An invalid or finished position is said to be one before anything is searched."""
    store = TableStore(engine=NO_ENGINE)
    for fen in ("x", "R5k1/5ppp/8/8/8/8/8/4K3 b - - 1 1"):
        with pytest.raises(FenError):
            values(store, fen)
    with pytest.raises(FenError):
        store.peek("x")


def test_unusable_cache_only_costs_time(stockfish: Path, cache_folder: Path) -> None:
    """Where the cache cannot be opened, positions are searched and the run goes on."""
    cache_folder.write_text("a file where a folder should be")
    config = EngineConfig(nodes=QUICK, processes=1)
    (found,) = values(TableStore(engine=config), FENS[0])
    assert found.moves


def test_cache_file_of_another_kind(
    stockfish: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that is no SQLite is set aside, which is logged; the cache is then used."""
    cache_folder.mkdir()
    path = cache_folder / "chess-tables.sqlite"
    path.write_bytes(b"no database" * 100)
    table = layer(stockfish, FENS[0])
    cache = TableCache(path)
    cache.put(table.identity, table.entries[FENS[0]])
    assert cache.get(table.identity, FENS[0]) == table.entries[FENS[0]]
    cache.close()
    assert "chess_table_store_set_aside" in capsys.readouterr().err
    assert [p.read_bytes()[:11] for p in cache_folder.glob("*.damaged-*")] == [b"no database"]


def test_cache_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The cache lies where rlvr keeps what can be made again."""
    assert cache_file() == tmp_path / "cache" / "chess-tables.sqlite"
    monkeypatch.delenv("RLVR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_file() == tmp_path / "rlvr" / "chess-tables.sqlite"


def test_cache_keeps_every_field(stockfish: Path, tmp_path: Path) -> None:
    """Moves, kinds, order and depth come back equal, from another connection too."""
    table = layer(stockfish, FENS[0])
    entry = table.entries[FENS[0]]
    one, two = TableCache(tmp_path / "c.sqlite"), TableCache(tmp_path / "c.sqlite")
    one.put(table.identity, entry)
    assert two.get(table.identity, FENS[0]) == entry
    assert two.get(table.identity, FENS[1]) is None
    assert two.get(evolve(table.identity, nodes=1), FENS[0]) is None
    one.close()
    two.close()


def test_table_lookup_is_cheap(stockfish: Path) -> None:
    """A hit costs less than 20 us: rewards are made of them (5.2 us were seen)."""
    store = TableStore(engine=NO_ENGINE, layers=[layer(stockfish, *FENS)])

    async def work() -> float:
        async with store:
            began = time.process_time()
            for _ in range(5000):
                await store.values(FENS[0])
            return (time.process_time() - began) / 5000

    assert asyncio.run(work()) < 20e-6


def test_json_of_moves_is_what_rows_use(stockfish: Path) -> None:
    """The moves of a table are written as `[[uci, kind, value], ...]`, as our data rows are."""
    entry = layer(stockfish, FENS[0]).entries[FENS[0]]
    assert json.loads(json.dumps(entry.values.moves)) == [list(move) for move in sevens(FENS[0])]
