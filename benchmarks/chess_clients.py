"""Ways to ask a chess engine for five moves of positions: the predecessor's, others', ours."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import chess
import chess.engine
from stockfish import Stockfish

from rlvr_chess.engine.pool import EngineConfig, EnginePool
from rlvr_chess.engine.process import EngineFailure, EngineProcess, last_block
from rlvr_chess.fen import read_board

MOVES = 5
OPTIONS = {"Threads": 1, "Hash": 16}
SETTINGS = {**OPTIONS, "MultiPV": MOVES}
TIMEOUT_S = 300.0

_kept: dict[str, Any] = {}
"""Engines that stay between rounds."""


def call(path: Path, fen: str, limit: chess.engine.Limit) -> list[str]:
    """The predecessor's question: a process of its own, with the engine's default options."""
    with chess.engine.SimpleEngine.popen_uci(str(path)) as engine:
        infos = engine.analyse(chess.Board(fen), limit, multipv=MOVES)
    return [info["pv"][0].uci() for info in infos]


class FiveMoves(EnginePool):
    """The pool, asked for five moves at any limit."""

    async def top(self, fen: str, go: str) -> list[str]:
        """The moves of the last complete iteration, best first."""
        count = min(MOVES, read_board(fen).legal_moves.count())

        process: EngineProcess = await self._free.get()
        try:
            await process.start(SETTINGS)
            process.new_game(SETTINGS)
            lines = await process.ask([f"position fen {fen}", go], b"bestmove", TIMEOUT_S)
            process.forget()
        finally:
            self._free.put_nowait(process)
        ranking = last_block(lines, count)
        if ranking is None:
            raise EngineFailure(f"no iteration scored {count} moves")
        return [move for move, _, _ in ranking.moves]

    async def all_tops(self, fens: Sequence[str], go: str) -> list[list[str]]:
        """Of many positions at once: the queue is full."""
        return list(await asyncio.gather(*(self.top(fen, go) for fen in fens)))


async def predecessor(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """A process a call, blocking, one after another."""
    return [call(path, fen, chess.engine.Limit(nodes=nodes))[0] for fen in fens]


async def wrapper(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
    """PyPI stockfish: one process, blocking; 5.2 sends `ucinewgame` only when told to."""
    engine = wrapper_engine(path)
    found = []
    for fen in fens:
        engine.send_ucinewgame_command()
        engine.set_fen_position(fen, do_validation=False)
        found.append(str(engine.get_top_moves(MOVES, num_nodes=nodes)[0]["Move"]))
    return found


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


Client = Callable[[Path, Sequence[str], int], Awaitable[list[str]]]


def ours(processes: int) -> Client:
    """The pool of so many processes."""

    async def ask(path: Path, fens: Sequence[str], nodes: int) -> list[str]:
        name = f"pool of {processes}"
        if name not in _kept:
            _kept[name] = FiveMoves(EngineConfig(path=str(path), processes=processes))
            await _kept[name].__aenter__()
        tops = await _kept[name].all_tops(fens, f"go nodes {nodes}")
        return [moves[0] for moves in tops]

    return ask


CLIENTS: dict[str, Client] = {
    "predecessor": predecessor,
    "wrapper": wrapper,
    "python-chess": python_chess,
    "pool of 1": ours(1),
    "pool of 2": ours(2),
}


async def close_all() -> None:
    """End the engines that stayed."""
    for name in [name for name in _kept if name.startswith("pool of")]:
        await _kept.pop(name).__aexit__(None, None, None)
    await _kept.pop("python-chess").quit()
    _kept.pop("wrapper").send_quit_command()
