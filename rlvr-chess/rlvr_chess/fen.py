"""Positions as text: read strictly, written one way, recognised by their first four fields.

"Canonical" is what python-chess writes: castling rights in the order KQkq, and an en-passant square
only where a legal capture uses it. Two spellings of one position would otherwise count as two.
"""

from __future__ import annotations

import re

import chess

_CASTLING = r"(?:-|(?=[KQkq])K?Q?k?q?)"
_FEN = re.compile(
    rf"([pnbrqkPNBRQK1-8]+(?:/[pnbrqkPNBRQK1-8]+){{7}}) [wb] {_CASTLING} (?:-|[a-h][36])"
    r" [0-9]{1,4} [0-9]{1,4}"
)
_NEIGHBOURS = re.compile("[1-8][1-8]")
_RUNS = tuple((str(count), "." * count) for count in range(1, 9))
_EIGHTS = [8] * 8
_SIDES = str.maketrans("wb", "bw")
_RANKS = str.maketrans("12345678", "87654321")
_STATUS = {
    chess.STATUS_NO_WHITE_KING: "White has no king",
    chess.STATUS_NO_BLACK_KING: "Black has no king",
    chess.STATUS_TOO_MANY_KINGS: "a side has two kings",
    chess.STATUS_TOO_MANY_WHITE_PAWNS: "White has more than eight pawns",
    chess.STATUS_TOO_MANY_BLACK_PAWNS: "Black has more than eight pawns",
    chess.STATUS_PAWNS_ON_BACKRANK: "a pawn stands on the first or the last rank",
    chess.STATUS_TOO_MANY_WHITE_PIECES: "White has more than 16 pieces",
    chess.STATUS_TOO_MANY_BLACK_PIECES: "Black has more than 16 pieces",
    chess.STATUS_BAD_CASTLING_RIGHTS: "a castling right lacks its king or rook at home",
    chess.STATUS_INVALID_EP_SQUARE: "no pawn has just passed the en-passant square",
    chess.STATUS_OPPOSITE_CHECK: "the side that is not to move is in check",
    chess.STATUS_EMPTY: "the board is empty",
    chess.STATUS_TOO_MANY_CHECKERS: "more than two pieces give check",
    chess.STATUS_IMPOSSIBLE_CHECK: "no last move can have given this check",
}


class FenError(ValueError):
    """A text that is no position, or a position that nothing can be asked about."""


def read_board(fen: str, *, may_be_over: bool = False) -> chess.Board:
    """
    The board of a FEN of six fields: a possible position that is not over.

    Other spellings of a possible position (an en-passant square nobody can capture on) are
    accepted; `board.fen()` is then the canonical one.

    Args:
        fen: Six fields with one space between them, nothing before or after.
        may_be_over: Also accept mate, stalemate, dead positions and 75 moves without progress.

    Raises:
        FenError: What is wrong with it.
    """
    squares_of(fen)
    board = chess.Board(fen)
    status = board.status()
    if status != chess.STATUS_VALID:
        raise FenError("; ".join(text for flag, text in _STATUS.items() if status & flag))
    if not may_be_over:
        outcome = board.outcome()
        if outcome is not None:
            raise FenError(f"the game is over: {outcome.termination.name.lower()}")
    return board


def canonical(fen: str) -> str:
    """The one spelling of a possible position; FenError where it is none."""
    return read_board(fen, may_be_over=True).fen()


def four_fields(fen: str) -> str:
    """
    What makes two positions the same: pieces, side to move, castling rights, en passant.

    The clocks are left out. Give six fields; an en-passant square that no capture uses is dropped.
    """
    fields = fen.split(" ")
    if len(fields) < 4:
        raise FenError(_syntax(fen))
    if fields[3] != "-":
        fields = canonical(fen).split(" ")
    return " ".join(fields[:4])


def squares_of(fen: str) -> str:
    """64 letters of a text that has the syntax of a FEN; FenError where it does not."""
    match = _FEN.fullmatch(fen)
    if match is None:
        raise FenError(_syntax(fen))
    squares = board_squares(match[1])
    if not squares:
        raise FenError(f"no board of eight ranks with eight squares each: {match[1]!r}")
    return squares


def board_squares(placement: str) -> str:
    """64 letters from a8 to h1, "." for empty; "" where the text is no 8x8 board."""
    if _NEIGHBOURS.search(placement):
        return ""
    for digit, run in _RUNS:
        placement = placement.replace(digit, run)
    ranks = placement.split("/")
    return "".join(ranks) if [len(rank) for rank in ranks] == _EIGHTS else ""


def flip(fen: str) -> str:
    """The position with the colours exchanged: the same game seen from the other side."""
    placement, side, castling, passant, half, full = fen.split(" ")
    placement = "/".join(reversed(placement.swapcase().split("/")))
    castling = "".join(right for right in "KQkq" if right in castling.swapcase()) or "-"
    return " ".join([placement, side.translate(_SIDES), castling, flip_move(passant), half, full])


def flip_move(uci: str) -> str:
    """A move or a square with its ranks mirrored."""
    return uci.translate(_RANKS)


def _syntax(fen: str) -> str:
    shown = fen if len(fen) <= 100 else fen[:100] + "..."
    count = len(fen.split(" "))
    what = "no position" if count == 6 else f"{count} fields instead of six"
    return f"{what}: {shown!r}"
