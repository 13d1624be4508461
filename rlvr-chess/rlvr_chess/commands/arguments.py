"""What the commands of chess share: parsers, checks before any work, searches with progress."""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
from attrs import define, field

from rlvr import ConfigError, UnknownNameError, is_redrawn, open_policy, redraw
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.pool import EngineConfig
from rlvr_chess.selfplay.movers import PolicyMover

LONGEST_LINE = {"canonical": 96, "rookworld": 144}
"""Tokens of a policy line, at most: five moves and five evaluations in any of our tokenizers."""
_COLDEST = 1e-6
"""Logits divided by much less are not finite in single precision."""


def parser_of(name: str, description: str, *examples: str) -> argparse.ArgumentParser:
    """The parser of `rlvr chess NAME`; the examples are what stands behind `rlvr chess`."""
    return argparse.ArgumentParser(
        prog=f"rlvr chess {name}",
        description=description,
        epilog="\n  rlvr chess ".join(["examples:", *examples]),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def count(text: str) -> int:
    """A number from 1 on; argparse says what is wrong with it."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return int(text)


def share(text: str) -> float:
    """A number from 0 to 1; argparse says what is wrong with it."""
    if not 0.0 <= float(text) <= 1.0:
        raise argparse.ArgumentTypeError(f"{text} is not in 0..1")
    return float(text)


def temperature(text: str) -> float:
    """A number to divide logits by, or 0; argparse says what is wrong with it."""
    value = float(text)
    if not math.isfinite(value) or value < 0.0:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number from 0 on")
    if 0.0 < value < _COLDEST:
        raise argparse.ArgumentTypeError(f"{text} is less than {_COLDEST:g}; the first choice is 0")
    return value


def check_writable(path: Path, *, makes_folder: bool = False) -> None:
    """
    Make sure that a file can be written; what stands there stays as it is.

    `makes_folder`: make its folder where there is none; else that is a mistake.

    Raises:
        UnknownNameError: There is no such folder.
        ConfigError: It cannot be written for another reason.
    """
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.is_dir():
            raise UnknownNameError(
                f"{path} was to be written.", "found: no such folder", "make it first"
            )
        was_there = os.path.lexists(path)
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    """The error of a file that cannot be written, with the system's reason."""
    is_file = isinstance(error, FileExistsError | NotADirectoryError)  # the folder's name is taken
    reason = "a file where its folder should be" if is_file else error.strerror or error
    return ConfigError(
        f"{path} was to be written.",
        f"found: {reason}",
        "choose another file, in a folder that you may write to",
    )


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """`--model`, `--run`, `--max-tokens` and `key=value` words."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", metavar="SPEC", help="model spec (default: the starter model)")
    which.add_argument(
        "--run", type=Path, metavar="DIR", help="last checkpoint of a run, or DIR/checkpoints/NAME"
    )
    parser.add_argument(
        "--max-tokens", type=int, help="tokens of an answer, at most (default: by the profile)"
    )
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="options, as in: chess.profile=rookworld"
    )


@asynccontextmanager
async def open_player(args: argparse.Namespace) -> AsyncIterator[tuple[PolicyMover, ChessConfig]]:
    """Open the model that the flags name, at `--temperature`; closed when the block ends."""
    async with open_policy(
        "chess", model=args.model, run=args.run, options=args.overrides
    ) as opened:
        task: Any = opened.task
        config: ChessConfig = task.config
        most = args.max_tokens or LONGEST_LINE[config.wording]
        params = attrs.evolve(opened.params, temperature=args.temperature, max_tokens=most)
        yield PolicyMover(opened.policy, params, config.wording, name=opened.model), config


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
        now, is_terminal = time.monotonic(), is_redrawn(sys.stderr)
        if now - self._said < (1.0 if is_terminal else 30.0):
            return
        self._said = now
        rate = done / (now - self._began)
        left_s = (self.total - done) / rate
        text = f"{done} of {self.total} positions, {rate:.1f}/s, {left_s / 60:.0f} min left"
        redraw(text) if is_terminal else print(text, file=sys.stderr, flush=True)

    def end(self, done: int) -> None:
        """Say how long all of it took."""
        seconds = time.monotonic() - self._began
        if is_redrawn(sys.stderr):
            redraw("")
        print(f"{done} positions in {seconds:.1f} s", file=sys.stderr)
