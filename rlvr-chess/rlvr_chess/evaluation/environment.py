"""Figures of the environment task: whole answers, by category and by field.

On natural data one outcome makes up almost everything, so the outcome's three fields are given as
balanced accuracy: the mean over true values of the share that was read right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import frozen

from rlvr.types import Figure
from rlvr_chess.evaluation.statistics import macro, rate
from rlvr_chess.grammar import EnvironmentAnswer
from rlvr_chess.transition import Transition

FIELDS = ("placement", "turn", "castling", "en_passant", "halfmove", "fullmove")
"""The six fields of a FEN, in order."""
OUTCOME = ("reward", "terminated", "truncated")


@frozen(kw_only=True)
class Foretold:
    """An answer about a move: what it really does, what was said (None: malformed), its kind."""

    truth: Transition
    answer: EnvironmentAnswer | None
    category: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the whole answer is right."""
        return self.fields == (*self.truth.new_fen.split(), *outcome(self.truth))

    @property
    def fields(self) -> tuple[str, ...]:
        """The nine fields as they were said; () where the answer is malformed."""
        if self.answer is None:
            return ()
        return (*self.answer.fen.split(), *outcome(self.answer))


def outcome(said: Transition | EnvironmentAnswer) -> tuple[str, str, str]:
    """Reward and the two bits, as texts."""
    return said.reward, said.terminated, said.truncated


def figures(answers: Sequence[Foretold]) -> list[Figure]:
    """The macro mean first: it is the headline."""
    by_category: dict[str, list[bool]] = {}
    for one in answers:
        by_category.setdefault(one.category, []).append(one.is_exact)
    named = {name: hits for name, hits in sorted(by_category.items()) if name}
    return [
        macro("environment/macro", named, f"mean of {len(named)} categories' exact shares"),
        rate("environment/exact", [one.is_exact for one in answers]),
        rate("environment/format", [one.answer is not None for one in answers]),
        *_field_figures(answers),
        *(rate(f"environment/category/{name}", hits) for name, hits in named.items()),
    ]


def _field_figures(answers: Sequence[Foretold]) -> list[Figure]:
    """Each field of the FEN by itself; each part of the outcome balanced over its true values."""
    found = []
    for place, name in enumerate(FIELDS):
        hits = [_said(one, place) == one.truth.new_fen.split()[place] for one in answers]
        found.append(rate(f"environment/field/{name}", hits))
    for place, name in enumerate(OUTCOME):
        by_truth: dict[str, list[bool]] = {}
        for one in answers:
            true = outcome(one.truth)[place]
            by_truth.setdefault(true, []).append(_said(one, len(FIELDS) + place) == true)
        note = _balance(by_truth)
        found.append(macro(f"environment/field/{name}", by_truth, note))
    return found


def _said(one: Foretold, place: int) -> str:
    return one.fields[place] if one.answer else ""


def _balance(by_truth: Mapping[str, Sequence[bool]]) -> str:
    parts = ", ".join(f"{value}: {len(hits)}" for value, hits in sorted(by_truth.items()))
    return f"balanced over {parts}" if len(by_truth) > 1 else f"only one value occurs ({parts})"
