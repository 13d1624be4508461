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
    Eight ranks and the letters of the files, Black's side below where `flipped`.

    Pieces are chess symbols, with `ascii_only` letters, capitals for White.
    """
    text = str(board) if ascii_only else board.unicode(empty_square=EMPTY)
    rows = [text.split() for text in text.splitlines()]  # from the eighth rank down
    lines = [[f"{8 - place} ", *row] for place, row in enumerate(rows)]
    lines.append(["  ", *chess.FILE_NAMES])
    if flipped:
        lines = [*reversed(lines[:8]), lines[8]]
        lines = [[line[0], *reversed(line[1:])] for line in lines]
    return "\n".join(" ".join(line) for line in lines)


def board_svg(
    fen: str,
    *,
    move: str | None = None,
    arrows: Iterable[tuple[str, str]] = (),
    size: int = 320,
    flipped: bool = False,
) -> str:
    """
    A position as SVG text; equal arguments give equal text.

    Args:
        fen: Six fields; the game may be over.
        move: UCI of the last move, whose squares are marked; None: nothing.
        arrows: (UCI, colour) of moves to draw on it.
        size: Pixels of a side.
        flipped: Black's side below.

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
    )


TERMINATION = {
    "illegal move": "rules infraction",
    "ply cap": "adjudication",
    "value": "adjudication",
}
"""PGN's names of reasons that are no normal end."""


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
