"""Kinds of positions and moves, for labels and for questions that meet each kind often enough."""

from __future__ import annotations

import chess

from rlvr_chess.questions.transition import legal_move

_ENDGAME = 6
"""Queens, rooks, bishops and knights on the board, at most; Lichess's divider of games."""
_MIDDLEGAME = 10
_BACK_RANK = 4
"""Men on their own back rank; fewer say that the opening is over."""
_PLY_BUCKET = 20
_RATING_BUCKET = 400
_CLAIM = 100
"""Half-moves without capture or pawn move at which a draw may be claimed, and is not."""
_DOUBLE = 16
"""Squares between the two ends of a pawn's double step, as python-chess numbers them."""


def phase_of(fen: str) -> str:
    """
    "opening", "middlegame" or "endgame", by the men on the board.

    The rule of Lichess's divider (github.com/lichess-org/scalachess, Divider) without its measure
    of how mixed the men stand.
    """
    placement = fen.split(" ", 1)[0]
    men = sum(letter in "qrbnQRBN" for letter in placement)
    if men <= _ENDGAME:
        return "endgame"
    ranks = placement.split("/")
    home = min(sum(map(str.islower, ranks[0])), sum(map(str.isupper, ranks[-1])))
    return "middlegame" if men <= _MIDDLEGAME or home < _BACK_RANK else "opening"


def colour_of(fen: str) -> str:
    """The side to move, "white" or "black"."""
    return "white" if fen.split(" ")[1] == "w" else "black"


def ply_bucket(fen: str) -> str:
    """When in a game the position is: "1-20", "21-40", ... half-moves, by its move number."""
    _, side, *_, number = fen.split(" ")
    ply = max(1, 2 * int(number) - (side == "w"))
    return _bucket(ply - 1, _PLY_BUCKET, first=1)


def rating_bucket(rating: int) -> str:
    """The 400-wide bucket of a puzzle's rating: "1200-1599"."""
    return _bucket(rating, _RATING_BUCKET)


def _bucket(value: int, width: int, first: int = 0) -> str:
    low = value // width * width + first
    return f"{low}-{low + width - 1}"


def category_of(fen: str, uci: str) -> str:
    """
    What kind of move it is: one of the names of the golden transitions.

    The first that fits of: how it ends the game, a draw that may be claimed, promotion, en
    passant, castling, check, capture, a lost castling right, a double step, quiet; for illegal
    moves why it is illegal.
    """
    board = chess.Board(fen)
    move = legal_move(board, uci)
    return _illegal(board, uci) if move is None else legal_category(board, move)


def legal_category(board: chess.Board, move: chess.Move) -> str:
    """The same for a legal move on a board, which is left as it was."""
    board.push(move)
    outcome = board.outcome()
    board.pop()
    if outcome is not None:
        return _ENDS[outcome.termination]
    if board.halfmove_clock >= _CLAIM - 1 and not board.is_zeroing(move):
        return "fifty_move_not_terminal"
    is_special = move.promotion or board.is_en_passant(move) or board.is_castling(move)
    if not is_special and board.gives_check(move):
        return "check"
    return plain_category(board, move)


def plain_category(board: chess.Board, move: chess.Move) -> str:
    """The same without a look at check and at the end of the game: nothing is played."""
    if move.promotion:
        is_capture = board.is_capture(move)
        return "promo_capture" if is_capture else f"promo_{chess.piece_symbol(move.promotion)}"
    if board.is_en_passant(move):
        return "ep_capture"
    if board.is_castling(move):
        return "castle_k" if board.is_kingside_castling(move) else "castle_q"
    rights = board.clean_castling_rights()
    if board.is_capture(move):
        taken = rights & chess.BB_SQUARES[move.to_square]
        return "loses_castling_by_capture" if taken else "capture"
    if rights and _loses_rights(board, move, rights):
        return "loses_castling"
    is_pawn = board.piece_type_at(move.from_square) == chess.PAWN
    if is_pawn and abs(move.from_square - move.to_square) == _DOUBLE:
        board.push(move)
        can_be_taken = board.has_legal_en_passant()
        board.pop()
        return "double_push_ep_square" if can_be_taken else "double_push_no_ep"
    return "quiet"


_ENDS = {
    chess.Termination.CHECKMATE: "checkmate",
    chess.Termination.STALEMATE: "stalemate",
    chess.Termination.INSUFFICIENT_MATERIAL: "insufficient_material",
    chess.Termination.SEVENTYFIVE_MOVES: "seventyfive_move_draw",
    chess.Termination.FIVEFOLD_REPETITION: "quiet",
}


def _loses_rights(board: chess.Board, move: chess.Move, rights: int) -> bool:
    if rights & chess.BB_SQUARES[move.from_square]:
        return True
    own = chess.BB_RANK_1 if board.turn == chess.WHITE else chess.BB_RANK_8
    is_king = board.piece_type_at(move.from_square) == chess.KING
    return is_king and bool(rights & own)


def _illegal(board: chess.Board, uci: str) -> str:
    if uci == "0000":
        return "illegal_null"
    try:
        move = chess.Move.from_uci(uci)
    except ValueError:
        return "illegal_malformed"
    piece = board.piece_at(move.from_square)
    if piece is None:
        return "illegal_empty"
    if piece.color != board.turn:
        return "illegal_opponent"
    bare = chess.Move(move.from_square, move.to_square)
    if move.promotion and board.is_legal(bare):
        return "illegal_promo_extra"
    if not move.promotion and board.is_legal(chess.Move.from_uci(uci + "q")):
        return "illegal_promo_missing"
    if board.is_pseudo_legal(move):
        return "illegal_into_check"
    return "illegal_geometry"
