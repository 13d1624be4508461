"""Figures of the environment task: whole answers, by category and by field.

Most moves of games can be foretold by editing the FEN, without any rule (`without_rules`). So the
headline is the mean over the kinds of moves, and what a player without rules gets stands beside it:
it moves the letter from square to square, sets the clocks and the side, drops the castling rights
of squares that are touched, and calls a move illegal where no piece of the side to move stands. It
does not know how pieces move, castle or capture in passing, nor what check and mate are.

On natural data one outcome makes up almost everything, so the outcome's three fields are given as
balanced accuracy: the mean over true values of the share that was read right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import chess
from attrs import evolve, frozen

from rlvr import Metric
from rlvr_chess.evaluation.statistics import macro, rate
from rlvr_chess.fen import placement_of, squares_of
from rlvr_chess.questions.transition import ILLEGAL, LEGAL, UCI, State

FIELDS = ("placement", "turn", "castling", "en_passant", "halfmove", "fullmove")
"""The six fields of a FEN, in order."""
OUTCOME = ("reward", "terminated", "truncated")
_HOMES = {"a1": "Q", "e1": "KQ", "h1": "K", "a8": "q", "e8": "kq", "h8": "k"}
LEAST = 30
"""Rows from which on a category counts in the headline."""


@frozen(kw_only=True)
class Foretold:
    """
    An answer about a move: what the move does, and what was said (None where it is malformed).

    `floor` is what a player without rules says, None where it was not asked.
    """

    truth: State
    answer: State | None
    floor: State | None = None
    category: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the whole answer is right."""
        return self.answer == self.truth


def figures(answers: Sequence[Foretold]) -> list[Metric]:
    """The headline and its floor first, then all answers together, fields and categories."""
    named = by_category(answers, [one.is_exact for one in answers])
    return [
        headline("environment/macro", named),
        *_floors(answers),
        rate("environment/exact", [one.is_exact for one in answers]),
        rate("environment/format", [one.answer is not None for one in answers]),
        *_field_figures(answers),
        *(rate(f"environment/category/{name}", hits) for name, hits in named.items()),
    ]


def by_category(answers: Sequence[Foretold], hits: Sequence[bool]) -> dict[str, list[bool]]:
    """One hit an answer, sorted out by the names of the categories."""
    found: dict[str, list[bool]] = {}
    for one, hit in zip(answers, hits, strict=True):
        found.setdefault(one.category, []).append(hit)
    return {name: found[name] for name in sorted(found) if name}


def headline(name: str, categories: Mapping[str, Sequence[bool]]) -> Metric:
    """The mean of the categories' exact shares, over those with `LEAST` rows or more."""
    kept = {kind: hits for kind, hits in categories.items() if len(hits) >= LEAST}
    small = [kind for kind in categories if kind not in kept]
    note = f"mean of {len(kept)} categories' exact shares"
    if small:
        note += f"; fewer than {LEAST} rows, left out: {', '.join(small)}"
    return macro(name, kept, note if kept else f"no category has {LEAST} rows")


def _floors(answers: Sequence[Foretold]) -> list[Metric]:
    """The same two figures for a player without rules, where it was asked."""
    if not all(one.floor for one in answers):
        return []
    hits = [one.floor == one.truth for one in answers]
    note = "a player without rules, the same questions"
    return [
        evolve(headline("environment/macro_floor", by_category(answers, hits)), note=note),
        rate("environment/exact_floor", hits, note),
    ]


def _field_figures(answers: Sequence[Foretold]) -> list[Metric]:
    """Each field of the FEN by itself; each part of the outcome balanced over its true values."""
    found = []
    true = [(*one.truth.fen.split(), *one.truth.outcome) for one in answers]
    said = [(*one.answer.fen.split(), *one.answer.outcome) if one.answer else () for one in answers]
    for place, name in enumerate((*FIELDS, *OUTCOME)):
        by_truth: dict[str, list[bool]] = {}
        for right, told in zip(true, said, strict=True):
            hit = bool(told) and told[place] == right[place]
            by_truth.setdefault(right[place], []).append(hit)
        path = f"environment/field/{name}"
        if name in OUTCOME:
            parts = ", ".join(f"{value}: {len(hits)}" for value, hits in sorted(by_truth.items()))
            one = f"only one value occurs ({parts})"
            note = f"balanced over {parts}" if len(by_truth) > 1 else one
            found.append(macro(path, by_truth, note))
        else:
            found.append(rate(path, [hit for hits in by_truth.values() for hit in hits]))
    return found


def without_rules(fen: str, uci: str) -> State:
    """The answer to an environment question, from the text of position and move alone."""
    _, side, castling, _, half, full = fen.split(" ")
    squares = list(squares_of(fen))
    if UCI.fullmatch(uci) is None:
        return State(fen, ILLEGAL, "0", "1")
    start, end, letter = uci[:2], uci[2:4], uci[4:]
    origin, target = (chess.square_mirror(chess.parse_square(name)) for name in (start, end))
    piece = squares[origin]
    if piece == "." or piece.isupper() != (side == "w"):
        return State(fen, ILLEGAL, "0", "1")
    resets = piece in "Pp" or squares[target] != "."
    squares[origin] = "."
    squares[target] = (letter.upper() if side == "w" else letter) or piece
    lost = _HOMES.get(start, "") + _HOMES.get(end, "")
    rights = "".join(right for right in castling if right not in lost) or "-"
    board = placement_of("".join(squares))
    clock = 0 if resets else int(half) + 1
    after = f"{'b' if side == 'w' else 'w'} {rights} - {clock} {int(full) + (side == 'b')}"
    return State(f"{board} {after}", LEGAL, "0", "0")
