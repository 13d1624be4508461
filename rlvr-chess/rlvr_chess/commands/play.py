"""The subcommand `rlvr chess play`: a game against a model in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import chess

from rlvr import ConfigError
from rlvr_chess.commands.arguments import (
    add_model_flags,
    check_writable,
    open_player,
    parser_of,
    temperature,
    unwritable,
)
from rlvr_chess.fen import FenError, read_board
from rlvr_chess.play.session import HELP, Session


def play(argv: list[str]) -> int:
    """Read moves from standard input until the game is over; the end of input quits."""
    options = _parser().parse_intermixed_args(argv)
    board = _board(options.fen)
    if options.pgn_out is not None:
        check_writable(options.pgn_out)
    # A runner, not one coroutine: while a person thinks no loop runs, so Ctrl-C ends at once.
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        try:
            mover, _ = runner.run(stack.enter_async_context(open_player(options)))
            session = Session(
                mover=mover,
                board=board,
                colour=chess.BLACK if options.colour == "black" else chess.WHITE,
                seed=options.seed,
                ascii_only=options.ascii,
            )
            try:
                _play(session, runner)
            finally:
                _keep(session, options.pgn_out)
        finally:
            runner.run(stack.aclose())
    return 0


def _play(session: Session, runner: asyncio.Runner) -> None:
    is_typed = sys.stdin.isatty()
    _say([f"against {session.mover.name}", HELP, session.shown()])
    while not session.is_over:
        if session.is_models_turn:
            _say(runner.run(session.answer()))
            continue
        if is_typed:
            print("your move: ", end="", flush=True)
        line = sys.stdin.readline()
        if not line:
            return
        if not is_typed:
            print(f"your move: {line.rstrip()}")
        _say(session.take(line))


def _say(lines: list[str]) -> None:
    for line in lines:
        print(line)
    sys.stdout.flush()


def _keep(session: Session, path: Path | None) -> None:
    if path is None:
        return
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(session.pgn())
    except OSError as error:
        _say([session.pgn()])  # it was writable before the game; so the game is not lost
        raise unwritable(path, error) from None
    print(f"game added to {path}", file=sys.stderr)


def _board(fen: str | None) -> chess.Board:
    if fen is None:
        return chess.Board()
    try:
        return read_board(fen)
    except FenError as error:
        raise ConfigError(
            f"a game from {fen!r} was asked for.", f"found: {error}", "give another FEN"
        ) from error


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "play",
        "Play against a model. It answers with its whole P: line, which is shown.",
        "play",
        "play --run runs/NAME --colour black --pgn-out games.pgn",
        "play --fen '8/8/8/4k3/8/8/4P3/4K3 w - - 0 1' --ascii",
    )
    add_model_flags(parser)
    parser.add_argument("--colour", choices=("white", "black"), default="white", help="yours")
    parser.add_argument("--fen", help="position to begin with (default: the initial one)")
    parser.add_argument("--pgn-out", type=Path, metavar="FILE", help="add the game to this file")
    parser.add_argument("--ascii", action="store_true", help="letters for pieces")
    parser.add_argument(
        "--temperature",
        type=temperature,
        default=0.0,
        help="of the model (default: 0, its first choice)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of its answers")
    return parser
