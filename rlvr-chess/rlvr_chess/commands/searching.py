"""What the commands that search share: their options, many positions at a time, progress."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

from attrs import define, field

from rlvr_chess.commands.arguments import count
from rlvr_chess.engine.pool import EngineConfig

NODES = 100_000


def add_engine_options(parser: argparse.ArgumentParser, nodes_help: str) -> None:
    """`--nodes`, `--engine`, `--engines`."""
    parser.add_argument("--nodes", type=count, default=NODES, help=nodes_help)
    parser.add_argument("--engine", default="", help="engine binary; default: stockfish")
    parser.add_argument("--engines", type=_engines, default=0, help="processes; 0: cores less one")


def engine_of(options: argparse.Namespace, nodes: int) -> EngineConfig:
    """The engine that the options ask for."""
    return EngineConfig(path=options.engine, nodes=nodes, processes=options.engines)


async def for_each(
    fens: Sequence[str], work: Callable[[str], Awaitable[bool]], engine: EngineConfig
) -> None:
    """
    Do the work of every position (True: it succeeded), enough at a time to keep engines busy.

    The first error ends all of it and is raised.
    """
    progress, done, todo = _Progress(total=len(fens)), 0, iter(fens)

    async def worker() -> None:
        nonlocal done
        for fen in todo:
            done += await work(fen)
            progress.step(done)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(2 * engine.count):
                group.create_task(worker())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    progress.end(done)


def _engines(text: str) -> int:
    if int(text) < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return int(text)


@define
class _Progress:
    """How far a long search is, on stderr: every second on a terminal, else twice a minute."""

    total: int
    _began: float = field(factory=time.monotonic)
    _said: float = field(factory=time.monotonic)

    def step(self, done: int) -> None:
        """Say so where the last word is long enough ago."""
        now, is_terminal = time.monotonic(), sys.stderr.isatty()
        if now - self._said < (1.0 if is_terminal else 30.0):
            return
        self._said = now
        rate = done / (now - self._began)
        left_s = (self.total - done) / rate
        text = f"{done} of {self.total} positions, {rate:.1f}/s, {left_s / 60:.0f} min left"
        print(
            f"\r{text}  " if is_terminal else text,
            end="" if is_terminal else "\n",
            file=sys.stderr,
            flush=True,
        )

    def end(self, done: int) -> None:
        """Say how long all of it took."""
        seconds = time.monotonic() - self._began
        before = "\r" if sys.stderr.isatty() else ""
        print(f"{before}{done} positions in {seconds:.1f} s" + " " * 20, file=sys.stderr)
