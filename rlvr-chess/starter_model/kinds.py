"""Questions of every kind: which move of which position, so many of each in a deck.

In games most moves are quiet. A model that reads what games offer never learns what an en-passant
square is, or what ends a game; so a deck says how many questions of each kind there are, and an
index of the positions says where the rare kinds are to be found.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import chess
from mirrors import Moves, mirrored
from mistakes import MISTAKES

from rlvr_chess.questions.categories import category_of, legal_category

ANY = "any"  # any legal move, as likely as any other
CLOCKS = "clocks"  # a quiet move late in the count to a draw
DECK: Mapping[str, int] = {
    ANY: 50,
    "capture": 10,
    "check": 12,
    "double_push_ep_square": 8,
    "double_push_no_ep": 5,
    "ep_capture": 8,
    "castle_k": 6,
    "castle_q": 5,
    "promo_q": 5,
    "promo_r": 3,
    "promo_b": 3,
    "promo_n": 3,
    "promo_capture": 6,
    "loses_castling": 6,
    "loses_castling_by_capture": 4,
    "checkmate": 12,
    "stalemate": 5,
    "insufficient_material": 3,
    CLOCKS: 4,
    "illegal_empty": 7,
    "illegal_opponent": 7,
    "illegal_geometry": 10,
    "illegal_into_check": 8,
    "illegal_promo_missing": 3,
    "illegal_promo_extra": 3,
    "illegal_malformed": 3,
    "illegal_null": 1,
}
"""Questions of each kind in a deck of 200; kinds are those of `rlvr_chess.questions.categories`."""
INDEXED = {
    "double_push_ep_square", "ep_capture", "castle_k", "castle_q",
    "promo_q", "promo_r", "promo_b", "promo_n", "promo_capture",
    "loses_castling_by_capture", "checkmate", "stalemate",
}  # fmt: skip
"""Kinds too rare to be looked for position by position."""
LIKE = {"illegal_promo_missing": "promo_q"}  # a kind that only positions with another offer
COUNTED = {"fifty_move_not_terminal", "seventyfive_move_draw"}
FEW_MEN = 12  # on the board, at most, where a move that is worth nothing may be stalemate
TRIES = 3000  # positions that are looked at for a kind
TeacherRequest = tuple[str, str]  # FEN, move


def decks(rng: random.Random) -> Iterator[str]:
    """Kinds without end, deck by deck."""
    deck = [kind for kind, count in DECK.items() for _ in range(count)]
    while True:
        yield from rng.sample(deck, len(deck))


class Finder:
    """Positions, and where the rare kinds are among them."""

    def __init__(self, positions: Sequence[tuple[str, Moves]]) -> None:
        self._positions = positions
        self._index: dict[str, list[TeacherRequest]] = defaultdict(list)
        for fen, moves in positions:
            for kind, uci in rare(fen, moves):
                self._index[kind].append((fen, uci))

    def question(self, kind: str, rng: random.Random) -> TeacherRequest:
        """A question of the kind, mirrored at random."""
        for _ in range(TRIES):
            fen, moves = self._place(kind, rng)
            fen, moves = mirrored(clocked(fen, rng) if kind == CLOCKS else fen, moves, rng)
            uci = moves[0][0] if kind in INDEXED else find(kind, fen, moves, rng)
            if uci:
                return fen, uci
        raise SystemExit(f"no position offers a question of kind {kind}: play more games")

    def _place(self, kind: str, rng: random.Random) -> tuple[str, Moves]:
        """A position that may offer the kind, and its moves; of an indexed kind the one move."""
        if kind == "insufficient_material":  # games of engines end before
            return bare(rng)
        if kind not in INDEXED and kind not in LIKE:
            return rng.choice(self._positions)
        found = self._index[LIKE.get(kind, kind)]
        if not found:
            raise SystemExit(f"no position offers a move of kind {kind}: play more games")
        fen, uci = rng.choice(found)
        return fen, [(uci, "cp", 0)]


def find(kind: str, fen: str, moves: Moves, rng: random.Random) -> str | None:
    """A move of the kind in the position, None where none was found."""
    if kind == ANY:
        return rng.choice(moves)[0]
    board = chess.Board(fen)
    if kind in MISTAKES:
        uci = MISTAKES[kind](board, rng)
        return uci if uci and category_of(fen, uci) == kind else None
    wanted = COUNTED if kind == CLOCKS else {kind}
    found = [uci for uci, _, _ in moves if _category(board, uci) in wanted]
    return rng.choice(found) if found else None


def clocked(fen: str, rng: random.Random) -> str:
    """The position late in the count of moves without a capture or a pawn's move."""
    *fields, _, _, number = fen.split()
    count = rng.choice((99, 149, rng.randrange(99, 150)))
    return " ".join([*fields, "-", str(count), str(int(number) + count // 2)])


def bare(rng: random.Random) -> tuple[str, Moves]:
    """Two kings, a man of Black's that may be taken, perhaps a knight or a bishop of White's."""
    while True:
        board = chess.Board(None)
        men = ["K", "k", rng.choice("pnbrq"), *rng.choice(("", "N", "B"))]
        for square, letter in zip(rng.sample(chess.SQUARES, len(men)), men, strict=True):
            board.set_piece_at(square, chess.Piece.from_symbol(letter))
        board.halfmove_clock, board.fullmove_number = rng.randrange(40), rng.randrange(40, 100)
        if board.is_valid():
            return board.fen(), [(move.uci(), "cp", 0) for move in board.legal_moves]


def rare(fen: str, moves: Moves) -> Iterator[TeacherRequest]:
    """Kind and move of each move of an indexed kind; what cannot be one is not played."""
    placement, _, castling, ep, *_ = fen.split()
    board, is_few = None, sum(map(str.isalpha, placement)) <= FEW_MEN
    for uci, unit, value in moves:
        start, end = uci[:2], uci[2:4]
        if (
            len(uci) == 5
            or (unit, value) == ("mate", 1)
            or end == ep
            or (start[0] == end[0] and start[1] + end[1] in ("24", "75"))
            or (castling != "-" and (end in ("a1", "h1", "a8", "h8") or start in ("e1", "e8")))
            or (is_few and (unit, value) == ("cp", 0))
        ):
            board = board or chess.Board(fen)
            kind = _category(board, uci)
            if kind in INDEXED:
                yield kind, uci


def _category(board: chess.Board, uci: str) -> str:
    return legal_category(board, chess.Move.from_uci(uci))
