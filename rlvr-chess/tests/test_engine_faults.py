from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from engine_fixture import QUICK, positions, script
from engine_fixture import stockfish as stockfish

from rlvr import ExitCode, PrerequisiteError, VerifierError
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.engine.process import EngineProcess
from rlvr_chess.values import ActionValues

FEN = positions(1, seed=9)[0]
LONG = 250_000
"""Nodes that take much longer than it takes to find that a search runs."""
ANSWERS = 'while read -r line; do case "$line" in\nuci) echo "id name Fake"; echo uciok;;\n'
ANSWERS += "isready) echo readyok;;\nquit) exit;;\n"


def expected(nodes: int) -> ActionValues:
    async def work() -> ActionValues:
        async with EnginePool(EngineConfig(nodes=nodes, processes=1)) as pool:
            return await pool.action_values(FEN)

    return asyncio.run(work())


def disturbed(
    disturb: Callable[[int], None], *, times: int, nodes: int, timeout_s: float = 30.0
) -> ActionValues:
    """The values of `FEN` while the process is disturbed in mid-search, so many times."""
    ask, searching = EngineProcess.ask, set[int]()

    async def watched(
        process: EngineProcess, commands: Sequence[str], end: bytes, timeout_s: float
    ) -> list[bytes]:
        if commands[-1] == f"go nodes {nodes}" and process.pid is not None:
            searching.add(process.pid)
        return await ask(process, commands, end, timeout_s)

    async def work() -> ActionValues:
        config = EngineConfig(nodes=nodes, processes=1, timeout_s=timeout_s)
        async with EnginePool(config) as pool:
            await pool.best_move("4k3/8/8/8/8/8/8/Q3K3 w - - 0 1", nodes=1)  # it runs
            search = asyncio.create_task(pool.action_values(FEN))
            hit: set[int] = set()
            while not search.done():
                await asyncio.sleep(0.01)
                for pid in searching - hit:
                    if len(hit) < times:
                        hit.add(pid)
                        disturb(pid)
            assert len(hit) == times
            return await search

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EngineProcess, "ask", watched)
        return asyncio.run(work())


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def test_killed_engine_is_replaced(stockfish: Path) -> None:
    """An engine killed in mid-search: another one gives exactly the values it would have given."""
    assert disturbed(_kill, times=1, nodes=LONG) == expected(LONG)


def test_killed_twice_is_an_error(stockfish: Path) -> None:
    """Killed again in the second try: a verifier's failure, and no values."""
    with pytest.raises(VerifierError, match=r"it ended.*; then it ended") as caught:
        disturbed(_kill, times=2, nodes=LONG)
    assert FEN in str(caught.value)
    assert caught.value.exit_code == ExitCode.VERIFIER


def test_hung_engine_is_replaced(stockfish: Path) -> None:
    """An engine that stands still is killed after the timeout, and the search done in another."""

    async def work() -> ActionValues:
        async with EnginePool(EngineConfig(nodes=QUICK, processes=1, timeout_s=2.0)) as pool:
            await pool.action_values("4k3/8/8/8/8/8/8/Q3K3 w - - 0 1")  # it runs
            (hung,) = pool.pids
            _stop(hung)
            found = await pool.action_values(FEN)
            assert hung not in pool.pids
            assert not _runs(hung)
            return found

    began = time.monotonic()
    assert asyncio.run(work()) == expected(QUICK)
    assert time.monotonic() - began > 2.0


@pytest.mark.slow
def test_hung_twice_is_an_error(stockfish: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing still again: the time it was given is said."""
    monkeypatch.setattr("rlvr_chess.engine.pool._SLOWEST", 10_000_000)
    with pytest.raises(
        VerifierError, match=r"no 'bestmove' within 1\.\d+ s; then no 'bestmove' within 1\."
    ):
        disturbed(_stop, times=2, nodes=LONG, timeout_s=1.5)


def fails(engine: Path, *, timeout_s: float) -> str:
    """The message of the verifier's failure that this engine causes."""

    async def work() -> None:
        config = EngineConfig(path=str(engine), nodes=1, processes=1, timeout_s=timeout_s)
        async with EnginePool(config) as pool:
            with pytest.raises(VerifierError) as caught:
                await pool.action_values(FEN)
            messages.append(str(caught.value))
            with pytest.raises(VerifierError):
                await pool.best_move(FEN)
            await asyncio.sleep(0)

    messages: list[str] = []
    asyncio.run(work())
    return messages[0]


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ("go*) exit 3;;", "it ended"),
        ("go*) echo garbage; echo info depth x multipv y;;", "no '.*' within"),
        ("go*) echo garbage; echo bestmove zzzz;;", "no iteration scored all"),
        ("go*) echo bestmove e2e4e;;", "no iteration scored all"),
        ("go*) printf 'bestmove e2e4'; exit;;", "it ended"),
        ("go*) yes;;", "bytes and no 'bestmove'"),
        ("position*) exit;;", "it has ended|it ended"),
        ("ucinewgame) exit;;", "it has ended|it ended"),
    ],
)
def test_nonsense_is_an_error(
    tmp_path: Path, case: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that ends, says nothing, nonsense or far too much: an error after one retry."""
    monkeypatch.setattr("rlvr_chess.engine.process._MOST_BYTES", 2**20)
    engine = script(tmp_path, f"{ANSWERS}{case}\nesac; done\n")
    message = fails(engine, timeout_s=0.3 if "within" in reason else 10.0)
    assert message.count("; then ") == 1
    assert re.search(reason, message), message


def test_missing_line_is_an_error(stockfish: Path, tmp_path: Path) -> None:
    """The real engine with the lines of its third move taken away: no values, no guess."""
    engine = script(tmp_path, f"{stockfish} | grep --line-buffered -v 'multipv 3 '\n")

    async def work() -> None:
        config = EngineConfig(path=str(engine), nodes=QUICK, processes=1, timeout_s=10.0)
        async with EnginePool(config) as pool:
            with pytest.raises(VerifierError, match=r"no iteration scored all \d+ legal moves"):
                await pool.action_values(FEN)

    asyncio.run(work())


def test_too_few_nodes_for_one_iteration(stockfish: Path) -> None:
    """A limit that cuts the first iteration off says to search longer."""

    async def work() -> None:
        async with EnginePool(EngineConfig(nodes=1, processes=1)) as pool:
            with pytest.raises(VerifierError, match=r"a larger chess\.nodes \(now 1\)"):
                await pool.action_values(FEN)

    asyncio.run(work())


def test_engine_that_ends_at_start_is_a_prerequisite(tmp_path: Path) -> None:
    """Nothing that can search: said when the pool opens, exit 4, with the package."""

    async def work() -> None:
        async with EnginePool(EngineConfig(path=str(script(tmp_path, "exit 1\n")))):
            pass

    with pytest.raises(PrerequisiteError, match="apt-get install stockfish"):
        asyncio.run(work())


def test_engine_removed_during_a_run(stockfish: Path, tmp_path: Path) -> None:
    """Removed after the pool opened, before a process started: a failure, not a reward."""
    engine = script(tmp_path, f"exec {stockfish}\n")

    async def work() -> None:
        async with EnginePool(EngineConfig(path=str(engine), nodes=QUICK, processes=1)) as pool:
            engine.unlink()
            with pytest.raises(VerifierError):
                await pool.action_values(FEN)

    asyncio.run(work())


def test_pool_goes_on_after_failures(stockfish: Path) -> None:
    """After a position was given up, the next one gets a fresh process and its values."""

    async def work() -> ActionValues:
        async with EnginePool(EngineConfig(nodes=LONG, processes=1)) as pool:
            search = asyncio.create_task(pool.action_values(FEN))
            with contextlib.suppress(VerifierError):
                while not search.done():
                    await asyncio.sleep(0.05)
                    for pid in pool.pids:
                        with contextlib.suppress(ProcessLookupError):
                            _kill(pid)
                await search
            return await pool.action_values("4k3/8/8/8/8/8/8/Q3K3 w - - 0 1")

    assert asyncio.run(work()).best > 0.9


PARENT = """
import asyncio, sys
from rlvr_chess.engine.pool import EngineConfig, EnginePool

async def main():
    async with EnginePool(EngineConfig(nodes=500_000_000, processes=2)) as pool:
        searches = [asyncio.create_task(pool.analyse(fen)) for fen in sys.argv[1:]]
        while len(pool.pids) < 2:
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        print(*pool.pids, flush=True)
        await asyncio.gather(*searches)

asyncio.run(main())
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("end", "is_stopped"),
    [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGINT, False)],
)
def test_engines_end_with_us(stockfish: Path, end: signal.Signals, is_stopped: bool) -> None:
    """After Ctrl-C and after kill -9 no engine is left, not even one that hangs."""
    if is_stopped and not Path("/usr/bin/setpriv").exists():
        pytest.skip("without Linux's setpriv a hung engine outlives a killed parent")
    fens = positions(2, seed=4)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, *fens],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        if is_stopped:
            for pid in pids:
                _stop(pid)
        parent.send_signal(end)
        parent.communicate(timeout=120)
    finally:
        parent.kill()
    until = time.monotonic() + 60
    while any(_runs(pid) for pid in pids) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    """Whether it is there and no zombie that nobody has asked about yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split()[0] != "Z"
    except FileNotFoundError:
        return False
