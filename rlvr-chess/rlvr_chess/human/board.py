"""The subcommand `rlvr chess board`: positions of FEN or PGN as text or SVG."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import chess
import chess.pgn

from rlvr.errors import ConfigError, explain
from rlvr_chess.arguments import check_writable
from rlvr_chess.fen import FenError, read_board
from rlvr_chess.human.pgn import read_pgn
from rlvr_chess.human.svg import board_svg
from rlvr_chess.human.text import board_text


def board(argv: list[str]) -> int:
    """Draw one position; FEN below it."""
    parser = argparse.ArgumentParser(
        prog="rlvr chess board",
        description="Draw a position: of a FEN, or of a game in a PGN file.",
        epilog="examples:\n"
        "  rlvr chess board 'r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3'\n"
        "  rlvr chess board games.pgn --game 3 --ply 20\n"
        "  rlvr chess board games.pgn --svg final.svg",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("position", metavar="FEN|FILE.pgn", help="what to draw; - reads a FEN")
    parser.add_argument("--game", type=int, default=1, help="of a PGN file (default: the first)")
    parser.add_argument("--ply", type=int, help="half-moves from its start (default: all)")
    parser.add_argument("--svg", type=Path, metavar="OUT", help="also write an SVG file")
    looks = parser.add_mutually_exclusive_group()
    looks.add_argument("--unicode", action="store_true", help="chess symbols (the default)")
    looks.add_argument("--ascii", action="store_true", help="letters, capitals for White")
    parser.add_argument("--flip", action="store_true", help="Black's side below")
    options = parser.parse_args(argv)
    drawn = _position(options)
    if options.svg is not None:
        check_writable(options.svg)
    print(board_text(drawn, ascii_only=options.ascii, flipped=options.flip))
    print(drawn.fen())
    if options.svg is not None:
        last = drawn.move_stack[-1].uci() if drawn.move_stack else None
        options.svg.write_text(board_svg(drawn.fen(), move=last, flipped=options.flip))
        print(f"wrote {options.svg}", file=sys.stderr)
    return 0


def _position(options: argparse.Namespace) -> chess.Board:
    text = sys.stdin.readline().strip() if options.position == "-" else options.position
    if "/" in text and " " in text and not Path(text).exists():
        try:
            return read_board(text, may_be_over=True)
        except FenError as error:
            raise ConfigError(
                explain(
                    "a position was to be drawn.", f"found: {error}", "give six fields of a FEN"
                )
            ) from error
    games = read_pgn(Path(text), last=options.game if options.game >= 1 else None)
    if not 1 <= options.game <= len(games):
        raise ConfigError(
            explain(
                f"game {options.game} of {text} was asked for.",
                f"found: {len(games)} games",
                f"--game 1 to {len(games)}",
            )
        )
    return _after(games[options.game - 1], options.ply)


def _after(game: chess.pgn.Game, ply: int | None) -> chess.Board:
    moves = list(game.mainline_moves())
    if ply is not None and not 0 <= ply <= len(moves):
        raise ConfigError(
            explain(
                f"the position after half-move {ply} was asked for.",
                f"found: a game of {len(moves)} half-moves",
                f"--ply 0 to {len(moves)}",
            )
        )
    position = game.board()
    for move in moves[:ply]:
        position.push(move)
    return position
