"""Boards as text and SVG, games as PGN (which `rows.games` reads)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import chess
import chess.pgn
import chess.svg

from rlvr_chess.fen import read_board
from rlvr_chess.selfplay.game import Game

EMPTY = "\N{MIDDLE DOT}"
GOOD, BAD = "#15781B", "#882020"
"""Colours of arrows."""


def board_text(board: chess.Board, *, ascii_only: bool = False, flipped: bool = False) -> str:
    """
    Eight ranks and the letters of the files.

    Args:
        board: What to draw.
        ascii_only: Letters for pieces, capitals for White; else chess symbols.
        flipped: Black's side below.
    """
    files = range(7, -1, -1) if flipped else range(8)
    ranks = range(8) if flipped else range(7, -1, -1)
    lines = []
    for rank in ranks:
        squares = [_symbol(board.piece_at(chess.square(f, rank)), ascii_only) for f in files]
        lines.append(f"{rank + 1}  {' '.join(squares)}")
    lines.append("   " + " ".join(chess.FILE_NAMES[file] for file in files))
    return "\n".join(lines)


def _symbol(piece: chess.Piece | None, ascii_only: bool) -> str:
    if piece is None:
        return "." if ascii_only else EMPTY
    return piece.symbol() if ascii_only else piece.unicode_symbol()


def board_svg(
    fen: str,
    *,
    move: str | None = None,
    arrows: Iterable[tuple[str, str]] = (),
    size: int = 320,
    flipped: bool = False,
    coordinates: bool = True,
) -> str:
    """
    A position as SVG text; equal arguments give equal text.

    Args:
        fen: Six fields; the game may be over.
        move: UCI of the last move, whose squares are marked; None: nothing.
        arrows: (UCI, colour) of moves to draw on it.
        size: Pixels of a side.
        flipped: Black's side below.
        coordinates: Letters and numbers on the margin.

    Raises:
        FenError: The position is impossible.
    """
    board = read_board(fen, may_be_over=True)
    drawn = [
        chess.svg.Arrow(step.from_square, step.to_square, color=colour)
        for step, colour in ((chess.Move.from_uci(uci), colour) for uci, colour in arrows)
    ]
    return chess.svg.board(
        board,
        orientation=chess.BLACK if flipped else chess.WHITE,
        lastmove=chess.Move.from_uci(move) if move else None,
        check=board.king(board.turn) if board.is_check() else None,
        arrows=drawn,
        size=size,
        coordinates=coordinates,
    )


TERMINATION = {
    "illegal move": "rules infraction",
    "ply cap": "adjudication",
    "value": "adjudication",
}
"""What PGN calls the reasons that are no normal end."""


def game_pgn(game: Game, headers: Mapping[str, str] | None = None) -> str:
    """
    A game as PGN, an empty line at its end.

    Args:
        game: As it was played. What was drawn at random, and where an answer was illegal, is said
            in comments.
        headers: Further tags, such as Event, Date and Round; they win.
    """
    board = chess.Board(game.start_fen)
    told = {place: ["random move"] for place in game.random}
    if game.illegal_at is not None:
        told.setdefault(game.illegal_at - 1, []).append("the next answer was no legal move")
    pgn = _game_of(board, game.moves, told)
    pgn.headers.update(
        {
            "Event": "self-play" if game.white == game.black else "match",
            "White": game.white or "?",
            "Black": game.black or "?",
            "Result": game.result,
            "Termination": TERMINATION.get(game.reason, "normal"),
            "Reason": game.reason,
            "PlyCount": str(game.plies),
        }
    )
    if game.opening:
        pgn.headers["Opening"] = game.opening
    if game.eco:
        pgn.headers["ECO"] = game.eco
    return _text(pgn, headers or {})


def board_pgn(board: chess.Board, headers: Mapping[str, str]) -> str:
    """The game that led to a board, as PGN; `*` where no `Result` is given."""
    pgn = _game_of(board.root(), [move.uci() for move in board.move_stack], {})
    return _text(pgn, headers)


def _text(game: chess.pgn.Game, headers: Mapping[str, str]) -> str:
    game.headers.update(headers)
    for tag, value in game.headers.items():  # python-chess writes them as they are
        game.headers[tag] = " ".join(value.replace('"', "'").split())
    return f"{game}\n\n"


def _game_of(
    start: chess.Board, moves: Iterable[str], told: Mapping[int, Iterable[str]]
) -> chess.pgn.Game:
    game = chess.pgn.Game()
    game.headers.clear()
    for tag in ("Event", "Site", "Date", "Round", "White", "Black"):
        game.headers[tag] = "????.??.??" if tag == "Date" else "?"
    game.headers["Result"] = "*"
    game.setup(start)
    game.comment = "; ".join(told.get(-1, ()))
    node: chess.pgn.GameNode = game
    for place, uci in enumerate(moves):
        node = node.add_variation(chess.Move.from_uci(uci), comment="; ".join(told.get(place, ())))
    return game
