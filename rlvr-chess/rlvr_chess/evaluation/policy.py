"""Figures of the policy task: what the chosen moves are worth, and what is said about them.

Each position is judged by its action values, the side to move's view for both colours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import chess
from attrs import field, frozen

from rlvr.types import Figure
from rlvr_chess.evaluation.statistics import kendall_tau, mean, rate, ratio
from rlvr_chess.grammar import PolicyAnswer, eval_win_probability
from rlvr_chess.values import BAND, CLAMP, ActionValues, win_probability

CENTIPAWNS_CAP = 1000
"""Most centipawns that one move can lose in ACPL; an illegal move loses them all."""
SIGN_FROM = 50
"""Centipawns from which on the sign of an evaluation is judged."""
LOST = win_probability("cp", -CLAMP)
EVEN = 0.5


@frozen(kw_only=True)
class Judged:
    """
    An answer to a position.

    Attributes:
        values: Of every legal move.
        answer: The line, None where it is malformed.
        labels: The problem's labels ("phase").
    """

    values: ActionValues
    answer: PolicyAnswer | None
    labels: Mapping[str, str] = field(factory=dict)

    @property
    def is_legal(self) -> bool:
        """Whether its `B` can be played."""
        return self.answer is not None and self.answer.best in self.values.table

    @property
    def regret(self) -> float:
        """Win probability given away; an illegal move gives the game away (the most there is)."""
        if self.answer is None or not self.is_legal:
            return self.values.best - LOST
        return self.values.regret(self.answer.best)

    @property
    def is_best(self) -> bool:
        """Whether `B` is legal and as good as the best move, within the band."""
        return self.is_legal and self.regret <= BAND

    @property
    def is_first(self) -> bool:
        """Whether `B` is the very move that the engine puts first."""
        return self.answer is not None and self.answer.best == self.values.moves[0][0]

    @property
    def centipawns_lost(self) -> float:
        """Best score minus that of `B`, mates as +-2000, 0..1000; illegal: 1000."""
        if self.answer is None or not self.is_legal:
            return CENTIPAWNS_CAP
        scores = {uci: _centipawns(kind, value) for uci, kind, value in self.values.moves}
        lost = max(scores.values()) - scores[self.answer.best]
        return min(CENTIPAWNS_CAP, lost)

    @property
    def overlap(self) -> float:
        """Distinct candidates among the k best (and what ties with the last of them), over k."""
        table, k = self.values.table, self.values.count
        least = sorted(table.values(), reverse=True)[k - 1] - BAND
        named = set(self.answer.moves) if self.answer else set()
        return sum(table.get(uci, -1.0) >= least for uci in named) / k

    @property
    def said(self) -> list[tuple[float, float, int]]:
        """Each distinct legal candidate: WP as said, WP of the table, centipawns of the table."""
        if self.answer is None:
            return []
        told: dict[str, str] = {}
        for uci, text in zip(self.answer.moves, self.answer.evals, strict=True):
            told.setdefault(uci, text)
        scores = {uci: _centipawns(kind, value) for uci, kind, value in self.values.moves}
        return [
            (eval_win_probability(text), self.values.table[uci], scores[uci])
            for uci, text in told.items()
            if uci in scores
        ]


def greedy_figures(judged: Sequence[Judged]) -> list[Figure]:
    """Every figure of greedy answers."""
    legal = [one for one in judged if one.is_legal]
    return [
        rate("policy/format", [one.answer is not None for one in judged]),
        rate("policy/legal", [one.is_legal for one in judged]),
        *_by_kind("policy/best", judged, lambda one: one.is_best),
        *_by_kind("policy/best_exact", judged, lambda one: one.is_first),
        mean("policy/regret", [one.regret for one in judged], "win probability"),
        mean("policy/regret_legal", [one.regret for one in legal], "legal answers only"),
        mean("policy/acpl", [one.centipawns_lost for one in judged], "centipawns, at most 1000"),
        mean("policy/top_k", [one.overlap for one in judged]),
        *_evaluation_figures(judged),
    ]


def sampled_figures(judged: Sequence[Judged]) -> list[Figure]:
    """What is measured of answers at temperature 1 too."""
    return [
        rate("policy/sampled/format", [one.answer is not None for one in judged], "temperature 1"),
        rate("policy/sampled/legal", [one.is_legal for one in judged], "temperature 1"),
        mean("policy/sampled/regret", [one.regret for one in judged], "temperature 1"),
    ]


def _by_kind(name: str, judged: Sequence[Judged], is_hit: Callable[[Judged], bool]) -> list[Figure]:
    """All together, by colour, by phase."""
    figures = [rate(name, [is_hit(one) for one in judged])]
    kinds = [(_colour(one), one) for one in judged]
    kinds += [(one.labels["phase"], one) for one in judged if one.labels.get("phase")]
    for kind in dict.fromkeys(["white", "black", *sorted({kind for kind, _ in kinds})]):
        figures.append(rate(f"{name}/{kind}", [is_hit(one) for k, one in kinds if k == kind]))
    return figures


def _evaluation_figures(judged: Sequence[Judged]) -> list[Figure]:
    """How wrong the evaluations of legal candidates are, against saying 0.00 always."""
    said = [one.said for one in judged if one.said]
    errors = [sum(abs(wp - true) for wp, true, _ in line) / len(line) for line in said]
    zeros = [sum(abs(EVEN - true) for _, true, _ in line) / len(line) for line in said]
    taus = [kendall_tau([s[0] for s in line], [s[1] for s in line]) for line in said]
    clear = [[s for s in line if abs(s[2]) > SIGN_FROM] for line in said]
    wrong = [(sum((wp - EVEN) * cp <= 0 for wp, _, cp in line), len(line)) for line in clear]
    return [
        mean("policy/kendall_tau", [tau for tau in taus if tau is not None]),
        mean("policy/eval_error", errors, "win probability, legal candidates"),
        mean("policy/eval_error_baseline", zeros, "the same candidates, always 0.00"),
        ratio("policy/wrong_signs", wrong, "candidates beyond 50 centipawns"),
    ]


def _colour(one: Judged) -> str:
    return "white" if chess.Board(one.values.fen).turn else "black"


def _centipawns(kind: str, value: int) -> int:
    if kind == "mate":
        return CLAMP if value > 0 else -CLAMP
    return max(-CLAMP, min(CLAMP, value))
