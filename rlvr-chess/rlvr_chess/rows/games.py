"""Games in PGN (main lines only) and opening lines, and the questions that a game holds."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator

import chess
import chess.pgn

from rlvr_chess.fen import read_board
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.questions.transition import SEVENTY_FIVE, first_illegal
from rlvr_chess.rows.row import (
    GameLine,
    Item,
    Lines,
    Row,
    RowError,
    Unsupported,
    check_clock,
    each,
    refused,
)

_STANDARD = {"", "standard", "chess", "from position", "normal"}
_HISTORY = 10


class PgnGame(chess.pgn.BaseVisitor["PgnGame"]):
    """The tags, start and main line (UCI) of a game, and the first thing that is wrong, or ""."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}
        self.moves: list[str] = []
        self.start = chess.STARTING_FEN
        self.problem = ""

    def visit_header(self, tagname: str, tagvalue: str) -> None:
        self.headers[tagname] = tagvalue

    def end_headers(self) -> chess.pgn.SkipType | None:
        variant = self.headers.get("Variant", "").lower()
        if variant not in _STANDARD:
            self.problem = f"variant {variant!r}, not standard chess"
        try:
            self.start = read_board(self.headers.get("FEN", self.start), may_be_over=True).fen()
        except ValueError as error:
            self.problem = f"its FEN: {error}"
        return chess.pgn.SKIP if self.problem else None

    def begin_variation(self) -> chess.pgn.SkipType:
        return chess.pgn.SKIP

    def visit_move(self, board: chess.Board, move: chess.Move) -> None:
        if not move:
            self.handle_error(ValueError(f"move {len(self.moves) + 1} is a null move"))
        self.moves.append(move.uci())

    def handle_error(self, error: Exception) -> None:
        self.problem = self.problem or str(error)

    def result(self) -> PgnGame:
        return self


def games_in(text: str) -> Iterator[tuple[int, PgnGame]]:
    """The games of a PGN text, in order, each with the number of its first line."""
    handle, number, end = io.StringIO(text), 1, 0
    blank = re.compile(r"\s*")
    while (begin := blank.match(text, end).end()) < len(text):  # type: ignore[union-attr]
        number += text.count("\n", end, begin)
        handle.seek(begin)
        game = chess.pgn.read_game(handle, Visitor=PgnGame)
        assert game is not None, "there is text"
        yield number, game
        end = handle.tell()
        number += text.count("\n", begin, end)


def read_pgn(lines: Lines, _name: str) -> Iterator[Item]:
    """The games of a file, in order; ids are their numbers. A broken one is left out and said."""
    for count, (number, game) in enumerate(games_in(lines.text), 1):
        try:
            yield _game(game, count)
        except ValueError as error:
            yield refused(number, RowError(f"game {count}: {error}"))


def _game(game: PgnGame, count: int) -> GameLine:
    if game.problem:
        raise RowError(game.problem)
    if not game.moves:
        raise RowError("no moves")
    check_clock(game.start, len(game.moves))
    return GameLine(id=str(count), start_fen=game.start, moves=game.moves)


def read_openings(lines: Lines, _name: str) -> Iterator[Item]:
    """Opening lines, moves in UCI from the starting position; an id is the number of the line."""
    return each(lines.good, _opening)


def _opening(text: str, number: int) -> GameLine | None:
    if text.startswith("#"):
        return None
    moves = text.split("#")[0].split()
    if wrong := first_illegal(chess.Board(), moves):
        raise RowError(f"move {wrong}, {moves[wrong - 1]!r}, is not legal")
    return GameLine(id=str(number), start_fen=chess.STARTING_FEN, moves=moves, is_opening=True)


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
    """The key of equal games: start position and moves."""
    return " ".join([game.start_fen, *game.moves])
