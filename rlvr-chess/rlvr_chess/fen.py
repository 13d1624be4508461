"""Positions as text: read strictly, written one way, recognised by their first four fields.

"Canonical" is what python-chess writes: castling rights in the order KQkq, and an en-passant square
only where a legal capture uses it. Two spellings of one position would otherwise count as two.

`board_of`, `push` and `fen_of` are several times as fast as python-chess, which sets and asks one
square after another. Here a board is also a text of 64 letters (a8 to h1, "." for empty): a
bitboard is that text with the letters of one piece made ones, read as a number, and after a move
only the squares that changed are asked. `tests/test_fast_board.py` holds that both ways agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import chess

FEN = (
    r"([pnbrqkPNBRQK1-8]+(?:/[pnbrqkPNBRQK1-8]+){7}) [wb] (?:-|(?=[KQkq])K?Q?k?q?)"
    r" (?:-|[a-h][36]) [0-9]{1,4} [0-9]{1,4}"
)
"""Syntax of a FEN; its first group is the board."""
_FEN = re.compile(FEN)
_NEIGHBOURS = re.compile("[1-8][1-8]")
_RUNS = tuple((str(count), "." * count) for count in range(8, 0, -1))
_EIGHTS = [8] * 8
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


_ONES = [
    bytes(ord("01"[chr(code) in letters]) for code in range(256))
    for letters in ("Pp", "Nn", "Bb", "Rr", "Qq", "Kk", "PNBRQK", "pnbrqk")
]
"""Translations of 64 letters into the ones of a bitboard: six kinds of pieces, two colours."""
_RIGHTS = {"K": chess.BB_H1, "Q": chess.BB_A1, "k": chess.BB_H8, "q": chess.BB_A8}


class FenError(ValueError):
    """A text that is no position, or a position that nothing can be asked about."""


def read_board(fen: str, *, may_be_over: bool = False) -> chess.Board:
    """
    The board of a FEN (six fields with one space between them): a possible position, not over.

    Other spellings of a possible position (an en-passant square without a capture) are
    accepted; `board.fen()` is then the canonical one. With `may_be_over` so are mate, stalemate,
    dead positions and 75 moves without progress.

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


def board_after(fen: str, moves: Iterable[str]) -> chess.Board:
    """A board after legal moves (UCI) from a position, with its history."""
    board = chess.Board(fen)
    for uci in moves:
        board.push_uci(uci)
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
    return chess.Board(fen).mirror().fen()


def flip_move(uci: str) -> str:
    """A move or a square with its ranks mirrored."""
    return uci.translate(_RANKS)


def placement_of(squares: str) -> str:
    """The first field of a FEN, of 64 letters."""
    placement = "/".join([squares[rank : rank + 8] for rank in range(0, 64, 8)])
    for digit, run in _RUNS:
        placement = placement.replace(run, digit)
    return placement


def board_of(fields: str, squares: str) -> chess.Board:
    """
    The board of a valid FEN whose 64 letters (`board_squares`) are known.

    Nothing is checked: `read_board` is for texts of unknown origin.
    """
    _, side, castling, passant, half, full = fields.split(" ")
    # the first digit of a number is h8, its last one a1
    text = "".join([squares[rank : rank + 8][::-1] for rank in range(0, 64, 8)]).encode()
    board = chess.Board(None)
    planes = [int(text.translate(ones), 2) for ones in _ONES]
    board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings = planes[:6]
    white, black = planes[6:]
    board.occupied_co = [black, white]
    board.occupied = white | black
    board.turn = side == "w"
    board.castling_rights = sum(_RIGHTS[right] for right in castling if right != "-")
    board.ep_square = None if passant == "-" else chess.parse_square(passant)
    board.halfmove_clock, board.fullmove_number = int(half), max(1, int(full))
    return board


def push(board: chess.Board, squares: str, move: chess.Move) -> str:
    """Play a legal move; gives the 64 letters after it."""
    before = _planes(board)
    board.push(move)
    changed = 0
    for old, new in zip(before, _planes(board), strict=True):
        changed |= old ^ new
    letters = list(squares)
    for square in chess.scan_forward(changed):
        piece = board.piece_at(square)
        letters[chess.square_mirror(square)] = piece.symbol() if piece else "."
    return "".join(letters)


def fen_of(board: chess.Board, squares: str) -> str:
    """The canonical FEN of a board whose 64 letters are known."""
    rights = board.clean_castling_rights()
    castling = "".join([right for right, rook in _RIGHTS.items() if rights & rook]) or "-"
    passant = "-"
    if board.ep_square is not None and board.has_legal_en_passant():
        passant = chess.SQUARE_NAMES[board.ep_square]
    placement, side = placement_of(squares), "w" if board.turn else "b"
    return f"{placement} {side} {castling} {passant} {board.halfmove_clock} {board.fullmove_number}"


def _planes(board: chess.Board) -> tuple[int, ...]:
    return (
        *(board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings),
        *board.occupied_co,
    )


def _syntax(fen: str) -> str:
    shown = fen if len(fen) <= 100 else fen[:100] + "..."
    count = len(fen.split(" "))
    what = "no position" if count == 6 else f"{count} fields instead of six"
    return f"{what}: {shown!r}"
