"""Games as PGN, written from our records and from boards; `rows.games` reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import chess
import chess.pgn

from rlvr_chess.selfplay.game import Game

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
