from __future__ import annotations

import asyncio
import json
import random
import time
from pathlib import Path

import chess
import pytest
from engine_fixture import QUICK, positions, script
from engine_fixture import stockfish as stockfish

from rlvr import Outcome, Problem, Reward, RewardFn, Trajectory
from rlvr.testing.tools import shared_data
from rlvr.verification.runner import VerificationRunner
from rlvr_chess.engine.interactive import interactive
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.fen import FenError
from rlvr_chess.values import Entry

DEBIAN = "af67e5f96d92cf6a730f89291ea439ba90ca5bf7921e5d740d79ccfc4584bc92"
"""sha256 of Stockfish 15.1 as Debian 12 ships it (amd64), which scored the shared data."""


def analyses(fens: list[str], **config: object) -> list[Entry]:
    async def work() -> list[Entry]:
        async with EnginePool(EngineConfig(**config)) as pool:  # type: ignore[arg-type]
            return list(await asyncio.gather(*(pool.analyse(fen) for fen in fens)))

    return asyncio.run(work())


def test_equal_from_pool_to_pool_and_order_to_order(stockfish: Path) -> None:
    """Pools of one and two processes, asked in different orders, give the same to the bit."""
    fens = positions(20)
    shuffled = random.Random(5).sample(fens, len(fens))
    one = dict(zip(fens, analyses(fens, nodes=QUICK, processes=1), strict=True))
    two = dict(zip(shuffled, analyses(shuffled, nodes=QUICK, processes=2), strict=True))
    assert one == two
    for fen, analysis in one.items():
        legal = {move.uci() for move in chess.Board(fen).legal_moves}
        assert {move for move, _, _ in analysis.values.moves} == legal


def test_opponents_leave_no_trace(stockfish: Path) -> None:
    """Moves played at other settings in between do not change any value."""
    fens = positions(6, seed=2)

    async def mixed() -> list[Entry]:
        async with EnginePool(EngineConfig(nodes=QUICK, processes=1)) as pool:
            found = []
            for fen in fens:
                move = await pool.best_move(fen, nodes=200, elo=1400)
                assert chess.Move.from_uci(move) in chess.Board(fen).legal_moves
                await pool.best_move(fen, nodes=500, skill=3)
                found.append(await pool.analyse(fen))
            return found

    assert asyncio.run(mixed()) == analyses(fens, nodes=QUICK, processes=1)


def test_best_move_is_repeatable(stockfish: Path) -> None:
    """At full strength a move depends on position and nodes only."""

    async def moves() -> list[str]:
        async with EnginePool(EngineConfig(processes=2)) as pool:
            asked = (pool.best_move(fen, nodes=500) for fen in positions(8, seed=3))
            return list(await asyncio.gather(*asked))

    assert asyncio.run(moves()) == asyncio.run(moves())


def test_best_move_finds_mate(stockfish: Path) -> None:
    """The move is the engine's: a mate in one is played."""

    async def move() -> str:
        async with EnginePool(EngineConfig(processes=1)) as pool:
            return await pool.best_move("6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1", nodes=1000)

    assert asyncio.run(move()) == "a1a8"


@pytest.mark.thorough
def test_equals_the_shared_tables(stockfish: Path) -> None:
    """Debian's Stockfish 15.1 gives what it gave elsewhere: order, scores, mates and depth."""
    path = shared_data("chess", "policy_action_values.jsonl")
    rows = [json.loads(text) for text in path.read_text().splitlines()]
    chosen = random.Random(0).sample(rows, 20)

    async def work() -> tuple[str, list[Entry]]:
        async with EnginePool(EngineConfig(nodes=100_000)) as pool:
            if pool.identity.binary != DEBIAN:
                return pool.identity.text, []
            found = await asyncio.gather(*(pool.analyse(row["fen"]) for row in chosen))
            return pool.identity.text, list(found)

    engine, found = asyncio.run(work())
    if not found:
        pytest.skip(f"another build than the data's: {engine}")
    for row, analysis in zip(chosen, found, strict=True):
        assert [list(move) for move in analysis.values.moves] == row["moves"]
        assert analysis.depth == row["depth"]
        assert analysis.values.engine == engine


def test_scores_are_the_side_to_moves(stockfish: Path) -> None:
    """A queen up is good for whoever has the move, White or Black."""
    white = "4k3/8/8/8/8/8/8/Q3K3 w - - 0 1"
    black = "q3k3/8/8/8/8/8/8/4K3 b - - 0 1"
    for analysis in analyses([white, black], nodes=QUICK, processes=1):
        assert analysis.values.best > 0.9


def test_another_spelling_is_the_same_position(stockfish: Path) -> None:
    """An en-passant square that nobody can use is dropped: the values say the canonical FEN."""
    spelt = "rnbqkbnr/pppppppp/8/8/4P3/8/PPPP1PPP/RNBQKBNR b KQkq e3 0 1"
    (found,) = analyses([spelt], nodes=QUICK, processes=1)
    assert found.values.fen == spelt.replace(" e3 ", " - ")


def test_equal_positions_under_way_are_one_search(stockfish: Path, tmp_path: Path) -> None:
    """Eight answers to one prompt cost one search."""
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")
    fen = positions(1)[0]
    found = analyses([fen] * 8, path=str(engine), nodes=QUICK, processes=2)
    assert found == found[:1] * 8
    assert told.read_text().count("go nodes") == 1


def test_every_search_is_a_new_game(stockfish: Path, tmp_path: Path) -> None:
    """
    Between any two searches stands `ucinewgame`, after the options: also where options change.

    It is sent as soon as an answer is there, so that clearing goes on while nobody waits for it.
    """
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")

    async def work() -> None:
        config = EngineConfig(path=str(engine), nodes=QUICK, processes=1)
        async with EnginePool(config) as pool:
            for fen in positions(3):
                await pool.analyse(fen)
            await pool.best_move(positions(1)[0], nodes=100)
            until = time.monotonic() + 30
            while _words(told)[-2:] != ["ucinewgame", "isready"]:
                assert time.monotonic() < until
                await asyncio.sleep(0.01)

    asyncio.run(work())
    words = [word for word in _words(told) if word in ("ucinewgame", "setoption", "go")]
    searches = [place for place, word in enumerate(words) if word == "go"]
    assert len(searches) == 4
    assert all(words[place - 1] == "ucinewgame" for place in searches)


def _words(told: Path) -> list[str]:
    """The first word of each line that an engine was told."""
    return [line.split()[0] for line in told.read_text().splitlines()]


def test_a_caller_that_gives_up_takes_nobody_along(stockfish: Path) -> None:
    """Cancelling one of two that wait for a position leaves the other its values."""
    fen = positions(1)[0]

    async def work() -> Entry:
        async with EnginePool(EngineConfig(nodes=50_000, processes=1)) as pool:
            first = asyncio.create_task(pool.analyse(fen))
            second = asyncio.create_task(pool.analyse(fen))
            await asyncio.sleep(0.01)
            first.cancel()
            return await second

    assert asyncio.run(work()) == analyses([fen], nodes=50_000, processes=1)[0]


class AsksEngine(RewardFn):
    """The best value of a position, which is the answer."""

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        values = await self._pool.action_values(trajectory.completion)
        return Reward(value=values.best, score01=1.0)


def test_waiting_for_a_free_engine_does_not_count_against_the_deadline(stockfish: Path) -> None:
    """The only engine is busy for three times the deadline; equal and other positions wait."""
    fens = [positions(2)[0], *positions(2)]
    deadline_s = 0.5

    async def work() -> list[Outcome]:
        async with EnginePool(EngineConfig(nodes=QUICK, processes=1)) as pool:
            await pool.action_values(positions(3)[2])  # the process runs
            runner = VerificationRunner(reward=AsksEngine(pool), workers=3, deadline_s=deadline_s)
            async with pool._process():
                judging = [
                    runner.begin(Problem(id="p", prompt=()), Trajectory.from_text("p", fen))
                    for fen in fens
                ]
                await asyncio.sleep(3 * deadline_s)
            return list(await asyncio.gather(*judging))

    assert [type(outcome) for outcome in asyncio.run(work())] == [Reward] * 3


def test_a_search_that_nobody_waits_for_ends(stockfish: Path) -> None:
    """Both of its askers give up: the only engine is free again at once."""
    first, second = positions(2)

    async def work() -> str:
        async with EnginePool(EngineConfig(nodes=10**9, processes=1)) as pool:
            await pool.best_move(second, nodes=100)
            asked = [asyncio.create_task(pool.analyse(first)) for _ in range(2)]
            await asyncio.sleep(0.1)
            for each in asked:
                each.cancel()
            async with asyncio.timeout(10):
                return await pool.best_move(second, nodes=100)

    assert chess.Move.from_uci(asyncio.run(work())) in chess.Board(second).legal_moves


@pytest.mark.parametrize(
    "fen",
    [
        "8/8/8/8/8/8/8/K6k w - - 0 1\nquit",
        "8/8/8/8/8/8/R7/K6k w - - 0 1; quit",
        "startpos",
        "8/8/8/8/8/8/R7/K6k w - - 0 1 moves a1b1",
        "rnbqkbnr/pppppppp/8/8/8/8/PPPPPPPP/RNBQKBNR w KQkq - 0 1\n",
        "7k/8/8/8/8/8/8/K7 w - - 0 1",
        "R5k1/5ppp/8/8/8/8/8/4K3 b - - 1 1",
    ],
)
def test_only_positions_reach_the_engine(stockfish: Path, tmp_path: Path, fen: str) -> None:
    """No newline, command, move list or finished game gets through: no engine is even started."""
    told = tmp_path / "told"
    engine = script(tmp_path, f"tee -a {told} | {stockfish}\n")

    async def work() -> None:
        async with EnginePool(EngineConfig(path=str(engine), nodes=QUICK)) as pool:
            told.unlink()  # of the question who it is
            with pytest.raises(FenError):
                await pool.action_values(fen)
            with pytest.raises(FenError):
                await pool.best_move(fen)
            assert pool.pids == []

    asyncio.run(work())
    assert not told.exists()


def test_as_many_processes_as_asked(stockfish: Path) -> None:
    """No more than the configured number runs, and none once the pool is closed."""

    async def work() -> list[int]:
        async with EnginePool(EngineConfig(nodes=QUICK, processes=2)) as pool:
            await asyncio.gather(*(pool.analyse(fen) for fen in positions(12)))
            return pool.pids

    pids = asyncio.run(work())
    assert len(pids) == 2
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_interactive_engine_is_closed(stockfish: Path) -> None:
    """The PyPI wrapper finds the same engine, and leaves neither process nor open pipe."""
    with interactive(nodes=2000) as engine:
        engine.set_fen_position("6k1/5ppp/8/8/8/8/8/R3K3 w Q - 0 1")
        top = engine.get_top_moves(1, num_nodes=2000)
        process = engine._stockfish
    assert top[0]["Move"] == "a1a8"
    assert process.poll() is not None
    assert process.stdout is not None
    assert process.stdout.closed
