"""The subcommand `rlvr chess board`: positions of FEN or PGN as text or SVG."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import chess

from rlvr import ConfigError, UnknownNameError, counted
from rlvr_chess.commands.arguments import check_writable, parser_of
from rlvr_chess.fen import FenError, board_after, read_board
from rlvr_chess.play.board import board_svg, board_text
from rlvr_chess.rows.games import PgnGame, games_in


def board(argv: list[str]) -> int:
    """Draw one position; FEN below it."""
    parser = parser_of(
        "board",
        "Draw a position: of a FEN, or of a game in a PGN file.",
        "board 'r1bqkbnr/pppp1ppp/2n5/4p3/4P3/5N2/PPPP1PPP/RNBQKB1R w KQkq - 2 3'",
        "board games.pgn --game 3 --ply 20",
        "board games.pgn --svg final.svg",
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
                "a position was to be drawn.", f"found: {error}", "give six fields of a FEN"
            ) from error
    game, ply = _game(Path(text), options.game), options.ply
    if ply is not None and not 0 <= ply <= len(game.moves):
        raise ConfigError(
            f"the position after half-move {ply} was asked for.",
            f"found: a game of {len(game.moves)} half-moves",
            f"--ply 0 to {len(game.moves)}",
        )
    return board_after(game.start, game.moves[:ply])


def _game(path: Path, number: int) -> PgnGame:
    """The game of a file with this number (from 1); what stands behind it is not read."""
    if not path.is_file():
        raise UnknownNameError(
            f"games of {path} were asked for.", "found: no such file", "check the path"
        )
    games: list[PgnGame] = []
    for _, game in games_in(path.read_text(encoding="utf-8-sig")):
        games.append(game)
        if game.problem:
            found = f"found: game {len(games)}: {game.problem}"
            do = "mend the move, or take the game out"
            raise ConfigError(f"games were read from {path}.", found, do)
        if len(games) == number:
            return game
    if not any(game.moves or "FEN" in game.headers for game in games):
        raise ConfigError(f"games were read from {path}.", "found: none in it", "give a PGN file")
    raise ConfigError(
        f"game {number} of {path} was asked for.",
        f"found: {counted(len(games), 'game')}",
        f"--game 1 to {len(games)}",
    )
