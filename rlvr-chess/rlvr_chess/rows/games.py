"""The questions that a game holds: its positions, and what each of its moves does."""

from __future__ import annotations

from collections.abc import Iterator

import chess

from rlvr_chess.records import EnvironmentStep, PolicyPosition
from rlvr_chess.rows.row import GameLine, Row, Unsupported
from rlvr_chess.transition import SEVENTY_FIVE

_HISTORY = 10


def rows_of(game: GameLine, met: set[str]) -> Iterator[Row | Unsupported]:
    """
    Two questions a ply: "game.ply" asks for a move, "game.ply/env" for what the game's move does.

    Ply 1 is the first move. What another game asked word for word already is in `met` and is not
    asked again.
    """
    board = chess.Board(game.start_fen)
    key = game_key(game)
    source = "opening" if game.is_opening else "game"
    for ply, uci in enumerate(game.moves, 1):
        if board.halfmove_clock >= SEVENTY_FIVE or board.is_insufficient_material():
            reason = f"game {game.id} goes on after ply {ply - 1}, where it was over by the rules"
            yield Unsupported(id=f"{game.id}.{ply}", reason=reason)
            return
        fen, history = board.fen(), game.moves[max(0, ply - _HISTORY) : ply]
        if fen not in met:
            position = PolicyPosition(fen=fen, source=source)
            yield Row(id=f"{game.id}.{ply}", payload=position, game=key)
        question = f"{fen}+{uci}+{' '.join(history)}"
        if question not in met:
            step = EnvironmentStep(fen=fen, uci=uci, history=history)
            yield Row(id=f"{game.id}.{ply}/env", payload=step, game=key)
        met |= {fen, question}
        board.push_uci(uci)


def game_key(game: GameLine) -> str:
    """What makes two games the same: where they begin, and their moves."""
    return " ".join([game.start_fen, *game.moves])
