"""python-chess boards read from and written to FEN several times as fast as it does itself.

It sets and asks one square after another. Here a board is also a text of 64 letters (a8 to h1, "."
for empty): a bitboard is that text with the letters of one piece made ones, read as a number, and
after a move only the squares that changed are asked. `tests/test_fast_board.py` holds that both
ways agree.
"""

from __future__ import annotations

import chess


def _ones(letters: str) -> bytes:
    return bytes(ord("01"[chr(code) in letters]) for code in range(256))


_WHITE, _BLACK = _ones("PNBRQK"), _ones("pnbrqk")
_PAWNS, _KNIGHTS, _BISHOPS = _ones("Pp"), _ones("Nn"), _ones("Bb")
_ROOKS, _QUEENS, _KINGS = _ones("Rr"), _ones("Qq"), _ones("Kk")
_RIGHTS = {"K": chess.BB_H1, "Q": chess.BB_A1, "k": chess.BB_H8, "q": chess.BB_A8}
_RUNS = tuple(("." * count, str(count)) for count in range(8, 0, -1))


def board_of(fields: str, squares: str) -> chess.Board:
    """
    The board of a valid FEN whose 64 letters (`fen.board_squares`) are known.

    Nothing is checked: `fen.read_board` is for texts of unknown origin.
    """
    _, side, castling, passant, half, full = fields.split(" ")
    # the first digit of a number is h8, its last one a1
    text = "".join([squares[rank : rank + 8][::-1] for rank in range(0, 64, 8)]).encode()
    board = chess.Board(None)
    board.pawns, board.knights = int(text.translate(_PAWNS), 2), int(text.translate(_KNIGHTS), 2)
    board.bishops, board.rooks = int(text.translate(_BISHOPS), 2), int(text.translate(_ROOKS), 2)
    board.queens, board.kings = int(text.translate(_QUEENS), 2), int(text.translate(_KINGS), 2)
    white, black = int(text.translate(_WHITE), 2), int(text.translate(_BLACK), 2)
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
    placement = "/".join([squares[rank : rank + 8] for rank in range(0, 64, 8)])
    for run, digit in _RUNS:
        placement = placement.replace(run, digit)
    rights = board.clean_castling_rights()
    castling = "".join([right for right, rook in _RIGHTS.items() if rights & rook]) or "-"
    passant = "-"
    if board.ep_square is not None and board.has_legal_en_passant():
        passant = chess.SQUARE_NAMES[board.ep_square]
    side = "w" if board.turn else "b"
    return f"{placement} {side} {castling} {passant} {board.halfmove_clock} {board.fullmove_number}"


def _planes(board: chess.Board) -> tuple[int, ...]:
    return (
        *(board.pawns, board.knights, board.bishops, board.rooks, board.queens, board.kings),
        *board.occupied_co,
    )
