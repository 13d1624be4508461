"""
Engine analyses a second: our pool beside the predecessor's way and two common clients.

    python benchmarks/bench_chess_engine.py --dataset FILE [--positions 40] [--rounds 5]
        [--nodes 100000] [--small-nodes 2000] [--json]

Two comparisons, each in turns that change from round to round, ratios of medians over the rounds.

`pool`: all legal moves (MultiPV 256) at `--nodes`, as tables are made: one process against two.
`cores` is the processor time that the engines got in a second: two processes cannot be faster than
that, so a machine that others use shows in it.

`clients`: five moves (MultiPV 5, Threads 1, Hash 16) at `--small-nodes`, the same positions and the
same limit for all: `predecessor` starts a process for each position and asks it with python-chess
(RookWorld-RLVR, engine/stockfish.py; there to depth 15), `wrapper` is PyPI stockfish in one
process, `python-chess` its asynchronous engine in one process, `ours` one process of the pool.
The limit is small, as what is compared is everything but the search.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import chess
import chess.engine
from stockfish import Stockfish

from rlvr_chess.engine.find import find_engine
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.engine.process import EngineProcess
from rlvr_chess.engine.search import last_block
from rlvr_chess.rows import Row, read_rows

MOVES = 5
OPTIONS = {"Threads": 1, "Hash": 16}
TICKS = os.sysconf("SC_CLK_TCK")


async def tables(pool: EnginePool, fens: Sequence[str]) -> None:
    await asyncio.gather(*(pool.analyse(fen) for fen in fens))


def engine_seconds(pids: Sequence[int]) -> float:
    """Processor time of running processes so far."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rsplit(")")[-1].split() for pid in pids]
    return sum(int(words[11]) + int(words[12]) for words in fields) / TICKS


async def compare_pools(fens: Sequence[str], nodes: int, rounds: int) -> dict[str, Any]:
    """Positions a second of one and of two processes, and the cores that they got."""
    rates: dict[int, list[float]] = {1: [], 2: []}
    cores: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds):
        for count in (1, 2) if turn % 2 else (2, 1):
            async with EnginePool(EngineConfig(nodes=nodes, processes=count)) as pool:
                await tables(pool, fens[:4])  # all processes run
                used, began = engine_seconds(pool.pids), time.perf_counter()
                await tables(pool, fens)
                seconds = time.perf_counter() - began
                used = engine_seconds(pool.pids) - used
            rates[count].append(len(fens) / seconds)
            cores[count].append(used / seconds)
    middle = {count: statistics.median(rates[count]) for count in rates}
    got = {count: statistics.median(cores[count]) for count in cores}
    return {
        "rates": rates,
        "cores": cores,
        "rate_1": middle[1],
        "rate_2": middle[2],
        "cores_1": got[1],
        "cores_2": got[2],
        "ratio": middle[2] / middle[1],
        "ratio_per_core": (middle[2] / got[2]) / (middle[1] / got[1]),
    }


async def predecessor(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """A process a call, blocking."""
    found = []
    for fen in fens:
        engine = chess.engine.SimpleEngine.popen_uci(str(path))
        engine.configure(OPTIONS)
        limit = chess.engine.Limit(nodes=nodes)
        infos = engine.analyse(chess.Board(fen), limit, multipv=MOVES)
        engine.quit()
        found.append(infos[0]["pv"][0].uci())
    return found


async def wrapper(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """PyPI stockfish: one process, blocking; 5.2 sends `ucinewgame` only when told to."""
    engine = wrapper_engine(path)
    found = []
    for fen in fens:
        engine.send_ucinewgame_command()
        engine.set_fen_position(fen, do_validation=False)
        found.append(str(engine.get_top_moves(MOVES, num_nodes=nodes)[0]["Move"]))
    return found


_kept: dict[str, Any] = {}


def wrapper_engine(path: Path) -> Stockfish:
    if "wrapper" not in _kept:
        _kept["wrapper"] = Stockfish(path=str(path), parameters=OPTIONS)
    return _kept["wrapper"]


async def python_chess(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """python-chess's asynchronous engine, one process; `game` makes each position a new game."""
    if "python-chess" not in _kept:
        _, _kept["python-chess"] = await chess.engine.popen_uci(str(path))
        await _kept["python-chess"].configure(OPTIONS)
    limit = chess.engine.Limit(nodes=nodes)
    found = []
    for fen in fens:
        infos = await _kept["python-chess"].analyse(
            chess.Board(fen), limit, multipv=MOVES, game=object()
        )
        found.append(infos[0]["pv"][0].uci())
    return found


async def ours(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """The pool's process and reader, asked for five moves."""
    if "ours" not in _kept:
        _kept["ours"] = EngineProcess(path)
        await _kept["ours"].start({**OPTIONS, "MultiPV": MOVES})
    process, found = _kept["ours"], []
    for fen in fens:
        await process.ask(["ucinewgame", "isready"], b"readyok", 30)
        commands = [f"position fen {fen}", f"go nodes {nodes}"]
        lines = await process.ask(commands, b"bestmove", 30)
        count = min(MOVES, chess.Board(fen).legal_moves.count())
        ranking = last_block(lines, count)
        assert ranking is not None
        found.append(ranking.moves[0][0])
    return found


Client = Callable[[Path, Sequence[str], int], Awaitable[list[str]]]
CLIENTS: dict[str, Client] = {
    "predecessor": predecessor,
    "wrapper": wrapper,
    "python-chess": python_chess,
    "ours": ours,
}


async def compare_clients(fens: Sequence[str], nodes: int, rounds: int) -> dict[str, Any]:
    """Positions a second of each client, in turns; each gives its first moves."""
    path = find_engine()
    rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for client in CLIENTS.values():  # start what stays
        await client(path, fens[:2], nodes)
    for turn in range(rounds):
        names = list(CLIENTS)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            # a process a call is slow: it is asked fewer positions, its rate is the same
            asked = fens[: max(4, len(fens) // 8)] if name == "predecessor" else fens
            began = time.perf_counter()
            moves = await CLIENTS[name](path, asked, nodes)
            rates[name].append(len(moves) / (time.perf_counter() - began))
    await _kept["ours"].close()
    await _kept["python-chess"].quit()
    _kept["wrapper"].send_quit_command()
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "rates": rates,
        "medians": middle,
        "ratios": {name: middle["ours"] / rate for name, rate in middle.items()},
    }


def read_fens(path: Path, count: int) -> list[str]:
    """A seeded sample of the positions of a data set."""
    rows = [row for row in read_rows(path) if isinstance(row, Row)]
    fens = list(dict.fromkeys(row.payload.fen for row in rows))
    return random.Random("bench").sample(fens, min(count, len(fens)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--positions", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--small-nodes", type=int, default=2000)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fens = read_fens(args.dataset, args.positions)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {len(fens)} positions", file=sys.stderr)
    pools = asyncio.run(compare_pools(fens, args.nodes, args.rounds))
    clients = asyncio.run(compare_clients(fens, args.small_nodes, args.rounds))
    if args.json:
        print(json.dumps({"load": load, "pool": pools, "clients": clients}))
        return
    print(f"all moves, {args.nodes} nodes      positions/s   cores got")
    for count in (1, 2):
        print(
            f"  {count} process{'es' * (count - 1):2}{pools[f'rate_{count}']:25.1f}"
            f"{pools[f'cores_{count}']:12.2f}"
        )
    per_core = pools["ratio_per_core"]
    print(f"  2 against 1: {pools['ratio']:.2f}x; {per_core:.2f}x per core that they got")
    print(f"five moves, {args.small_nodes} nodes       positions/s   ours against it")
    for name, rate in clients["medians"].items():
        print(f"  {name:14}{rate:21.1f}{clients['ratios'][name]:16.1f}x")


if __name__ == "__main__":
    main()
