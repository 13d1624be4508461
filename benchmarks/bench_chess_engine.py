"""
Engine analyses a second: our pool beside the predecessor's way and two common clients.

    python benchmarks/bench_chess_engine.py --dataset FILE [--positions 40] [--rounds 5]
        [--nodes 100000] [--small-nodes 2000] [--depth 15] [--answers 8] [--only NAME] [--json]

Three comparisons, each in turns that change from round to round, ratios of medians over the rounds.

`pool`: all legal moves (MultiPV 256) at `--nodes`, as tables are made: one process against two.
`cores` is the processor time that the engines got in a second: two processes cannot be faster than
that, so a machine that others use shows in it.

`clients`: five moves (MultiPV 5, Threads 1, Hash 16) at `--small-nodes`, the same positions and the
same limit for all: `predecessor` starts a process for each call and asks it with python-chess,
`wrapper` is PyPI stockfish in one process, `python-chess` its asynchronous engine in one process,
`pool of 1` and `pool of 2` are ours. The limit is small, as what is compared is everything but the
search.

`rewards`: the predecessor's own limit, five moves to depth 15 (RookWorld-RLVR ade479c,
src/rookworld_rlvr/validation.py). An answer's reward takes it three calls, for the best move, the
candidates and the evaluations; each starts a process, and nothing is kept for the other answers to
the same prompt. We search a position once, to the same depth; the five moves must be the same.
The three calls of one answer are measured; those of a group's `--answers` are so many times that.
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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import chess.engine
from chess_clients import CLIENTS, MOVES, FiveMoves, call, close_all

from rlvr_chess.engine.identity import find_engine
from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.fen import read_board
from rlvr_chess.rows import Row, read_rows

CALLS = 3
"""Of the predecessor's engine for the reward of one answer."""
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


async def compare_clients(fens: Sequence[str], nodes: int, rounds: int) -> dict[str, Any]:
    """Positions a second of each client, in turns; each gives its first moves."""
    path = find_engine()
    rates: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for client in CLIENTS.values():  # start what stays
        await client(path, fens[:4], nodes)
    for turn in range(rounds):
        names = list(CLIENTS)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            # a process a call is slow: it is asked fewer positions, its rate is the same
            asked = fens[: max(4, len(fens) // 4)] if name == "predecessor" else fens
            began = time.perf_counter()
            moves = await CLIENTS[name](path, asked, nodes)
            rates[name].append(len(moves) / (time.perf_counter() - began))
    await close_all()
    middle = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "rates": rates,
        "medians": middle,
        "ratios": {name: rate / middle["predecessor"] for name, rate in middle.items()},
    }


async def compare_rewards(
    fens: Sequence[str], depth: int, answers: int, rounds: int
) -> dict[str, Any]:
    """Seconds a position: the three calls of one answer against one search of the pool."""
    path = find_engine()
    asked = [fen for fen in fens if read_board(fen).legal_moves.count() >= MOVES]
    seconds: dict[str, list[float]] = {"predecessor": [], "pool of 1": [], "pool of 2": []}
    equal = 0
    for turn in range(rounds):
        found: dict[str, list[list[str]]] = {}
        names = list(seconds)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            if name == "predecessor":
                began = time.perf_counter()
                limit = chess.engine.Limit(depth=depth)
                found[name] = [call(path, fen, limit) for fen in asked for _ in range(CALLS)][
                    ::CALLS
                ]
            else:
                count = int(name.split()[-1])
                async with FiveMoves(EngineConfig(path=str(path), processes=count)) as pool:
                    await pool.all_tops(asked[:2], "go depth 1")  # all processes run
                    began = time.perf_counter()
                    found[name] = await pool.all_tops(asked, f"go depth {depth}")
            seconds[name].append((time.perf_counter() - began) / len(asked))
        equal += found["predecessor"] == found["pool of 1"] == found["pool of 2"]
    middle = {name: statistics.median(values) for name, values in seconds.items()}
    a_call = middle["predecessor"] / CALLS
    return {
        "seconds": seconds,
        "positions": len(asked),
        "equal_rounds": equal,
        "a_call_s": a_call,
        "a_group_s": a_call * CALLS * answers,
        "pool_s": {name: value for name, value in middle.items() if name != "predecessor"},
        "ratios": {
            name: {"call": a_call / value, "group": a_call * CALLS * answers / value}
            for name, value in middle.items()
            if name != "predecessor"
        },
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
    parser.add_argument("--depth", type=int, default=15)
    parser.add_argument("--answers", type=int, default=8)
    parser.add_argument("--only", choices=("pool", "clients", "rewards"))
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    fens = read_fens(args.dataset, args.positions)
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} cores, load {load:.1f}, {len(fens)} positions", file=sys.stderr)
    deep = fens[: max(4, len(fens) // 5)]
    comparisons = {
        "pool": lambda: compare_pools(fens, args.nodes, args.rounds),
        "clients": lambda: compare_clients(fens, args.small_nodes, args.rounds),
        "rewards": lambda: compare_rewards(deep, args.depth, args.answers, args.rounds),
    }
    chosen = [args.only] if args.only else list(comparisons)
    found = {name: asyncio.run(comparisons[name]()) for name in chosen}
    if args.json:
        print(json.dumps({"load": load, **found}))
        return
    if "pool" in found:
        show_pools(found["pool"], args.nodes)
    if "clients" in found:
        show_clients(found["clients"], args.small_nodes)
    if "rewards" in found:
        show_rewards(found["rewards"], args)


def show_pools(pools: dict[str, Any], nodes: int) -> None:
    print(f"all moves, {nodes} nodes      positions/s   cores got")
    for count in (1, 2):
        print(
            f"  {count} process{'es' * (count - 1):2}{pools[f'rate_{count}']:25.1f}"
            f"{pools[f'cores_{count}']:12.2f}"
        )
    per_core = pools["ratio_per_core"]
    print(f"  2 against 1: {pools['ratio']:.2f}x; {per_core:.2f}x per core that they got")


def show_clients(clients: dict[str, Any], nodes: int) -> None:
    print(f"five moves, {nodes} nodes       positions/s   against a process a call")
    for name, rate in clients["medians"].items():
        print(f"  {name:14}{rate:21.1f}{clients['ratios'][name]:16.1f}x")


def show_rewards(rewards: dict[str, Any], args: argparse.Namespace) -> None:
    print(f"rewards of {args.answers} answers, five moves, depth {args.depth}  s/position")
    print(f"  predecessor, a call {rewards['a_call_s']:25.2f}")
    print(f"  predecessor, a group{rewards['a_group_s']:25.2f}")
    for name, ratio in rewards["ratios"].items():
        print(
            f"  {name:20}{rewards['pool_s'][name]:25.2f}   {ratio['call']:.2f}x a call, "
            f"{ratio['group']:.1f}x a group"
        )
    print(
        f"  the same five moves in {rewards['equal_rounds']} of {args.rounds} rounds "
        f"({rewards['positions']} positions)"
    )


if __name__ == "__main__":
    main()
