"""Figures of the environment task: whole answers, by category and by field.

Most moves of games can be foretold by editing the FEN, without any rule (`without_rules`). So the
headline is the mean over the kinds of moves, and what a player without rules gets stands beside it.

On natural data one outcome makes up almost everything, so the outcome's three fields are given as
balanced accuracy: the mean over true values of the share that was read right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import evolve, frozen

from rlvr.types import Figure
from rlvr_chess.evaluation.statistics import macro, rate
from rlvr_chess.grammar import EnvironmentAnswer
from rlvr_chess.transition import Transition

FIELDS = ("placement", "turn", "castling", "en_passant", "halfmove", "fullmove")
"""The six fields of a FEN, in order."""
OUTCOME = ("reward", "terminated", "truncated")
LEAST = 30
"""Rows from which on a category counts in the headline."""


@frozen(kw_only=True)
class Foretold:
    """
    An answer about a move.

    Attributes:
        truth: What the move really does.
        answer: What was said, None where it is malformed.
        floor: What a player without rules says, None where nobody asked it.
        category: The kind of the move, "" where it is unknown.
    """

    truth: Transition
    answer: EnvironmentAnswer | None
    floor: EnvironmentAnswer | None = None
    category: str = ""

    @property
    def is_exact(self) -> bool:
        """Whether the whole answer is right."""
        return is_exact(self.truth, self.answer)

    @property
    def fields(self) -> tuple[str, ...]:
        """The nine fields as they were said; () where the answer is malformed."""
        return () if self.answer is None else all_fields(self.answer.fen, self.answer)


def all_fields(fen: str, said: Transition | EnvironmentAnswer) -> tuple[str, ...]:
    """The nine fields of a state and its outcome."""
    return (*fen.split(), *outcome(said))


def is_exact(truth: Transition, answer: EnvironmentAnswer | None) -> bool:
    """Whether every field of an answer is right."""
    said = () if answer is None else all_fields(answer.fen, answer)
    return said == all_fields(truth.new_fen, truth)


def outcome(said: Transition | EnvironmentAnswer) -> tuple[str, str, str]:
    """Reward and the two bits, as texts."""
    return said.reward, said.terminated, said.truncated


def figures(answers: Sequence[Foretold]) -> list[Figure]:
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


def headline(name: str, categories: Mapping[str, Sequence[bool]]) -> Figure:
    """The mean of the categories' exact shares, over those with `LEAST` rows or more."""
    kept = {kind: hits for kind, hits in categories.items() if len(hits) >= LEAST}
    small = [kind for kind in categories if kind not in kept]
    note = f"mean of {len(kept)} categories' exact shares"
    if small:
        note += f"; fewer than {LEAST} rows, left out: {', '.join(small)}"
    return macro(name, kept, note if kept else f"no category has {LEAST} rows")


def _floors(answers: Sequence[Foretold]) -> list[Figure]:
    """The same two figures for a player without rules, where it was asked."""
    if not all(one.floor for one in answers):
        return []
    hits = [is_exact(one.truth, one.floor) for one in answers]
    note = "a player without rules, the same questions"
    return [
        evolve(headline("environment/macro_floor", by_category(answers, hits)), note=note),
        rate("environment/exact_floor", hits, note),
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
