"""Figures of the policy task: what the chosen moves are worth, and what is said about them.

Each position is judged by its action values, the side to move's view for both colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from attrs import evolve, field, frozen

from rlvr import Metric
from rlvr_chess.evaluation.statistics import kendall_tau, mean, rate
from rlvr_chess.questions.categories import colour_of
from rlvr_chess.questions.grammar import PolicyAnswer, eval_win_probability
from rlvr_chess.values import BAND, CLAMP, ActionValues, centipawns, win_probability

CENTIPAWNS_CAP = 1000
"""Most centipawns that one move can lose in ACPL; an illegal move loses them all."""
SIGN_FROM = 50
"""Centipawns from which on the sign of an evaluation is judged."""
LOST = win_probability("cp", -CLAMP)
EVEN = 0.5


@frozen(kw_only=True)
class Judged:
    """An answer (None where malformed) to a position with values; `labels` tell the phase."""

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
        best = max(centipawns(kind, value) for _, kind, value in self.values.moves)
        return min(CENTIPAWNS_CAP, best - centipawns(*self.values.score(self.answer.best)))

    @property
    def overlap(self) -> float:
        """Distinct candidates among the k best (and what ties with the last of them), over k."""
        table, k = self.values.table, self.values.count
        least = self.values.least(k)
        named = set(self.answer.moves) if self.answer else set()
        return sum(table.get(uci, -1.0) >= least for uci in named) / k

    @property
    def said(self) -> list[tuple[float, float, int]]:
        """
        The candidates: win probability as said, win probability and centipawns of the table.

        There are always as many as were asked for. A slot that is malformed, illegal or a
        repetition stands for the best legal move that is not named, and nothing (NaN) is said
        of it: what is left unsaid must not make a figure better.
        """
        told: dict[str, float] = {}
        answer = self.answer
        for uci, text in zip(answer.moves, answer.evals, strict=True) if answer else ():
            if uci in self.values.table:
                told.setdefault(uci, eval_win_probability(text))
        for uci, _, _ in self.values.moves:
            if len(told) < self.values.count:
                told.setdefault(uci, math.nan)
        return [
            (wp, self.values.table[uci], centipawns(*self.values.score(uci)))
            for uci, wp in told.items()
        ]

    @property
    def wrong_signs(self) -> float | None:
        """
        Share of the candidates beyond `SIGN_FROM` of which `E` has the other sign, or nothing.

        1 where the answer names none; None where none of the best moves, as many as were asked
        for, is beyond: that is the position's doing, whatever was answered.
        """
        best = self.values.moves[: self.values.count]
        if not any(abs(centipawns(kind, value)) > SIGN_FROM for _, kind, value in best):
            return None
        clear = [(wp, cp) for wp, _, cp in self.said if abs(cp) > SIGN_FROM]
        return sum(not (wp - EVEN) * cp > 0 for wp, cp in clear) / len(clear) if clear else 1.0

    @property
    def tau(self) -> float | None:
        """
        Kendall's tau-b of what is said of the candidates against the table.

        0 where nothing is ordered; None where the best moves, as many as were asked for, are all
        worth the same: that is the position's doing, whatever was answered.
        """
        if self.values.best == self.values.table[self.values.ranked[self.values.count - 1]]:
            return None
        said = self.said
        return kendall_tau([wp for wp, _, _ in said], [true for _, true, _ in said]) or 0.0


def greedy_figures(judged: Sequence[Judged]) -> list[Metric]:
    """Every figure of greedy answers."""
    return [
        rate("policy/format", [one.answer is not None for one in judged]),
        rate("policy/legal", [one.is_legal for one in judged]),
        *_by_kind("policy/best", judged, lambda one: one.is_best),
        *_by_kind("policy/best_exact", judged, lambda one: one.is_first),
        mean("policy/regret", [one.regret for one in judged], "win probability"),
        mean("policy/acpl", [one.centipawns_lost for one in judged], "centipawns, at most 1000"),
        mean("policy/top_k", [one.overlap for one in judged]),
        *_evaluation_figures(judged),
        *_floors(judged),
    ]


def sampled_figures(judged: Sequence[Judged]) -> list[Metric]:
    """The figures of answers sampled at temperature 1."""
    return [
        rate("policy/sampled/format", [one.answer is not None for one in judged], "temperature 1"),
        rate("policy/sampled/legal", [one.is_legal for one in judged], "temperature 1"),
        mean("policy/sampled/regret", [one.regret for one in judged], "temperature 1"),
    ]


def _by_kind(name: str, judged: Sequence[Judged], is_hit: Callable[[Judged], bool]) -> list[Metric]:
    """All together, by colour, by phase."""
    figures = [rate(name, [is_hit(one) for one in judged])]
    kinds = [(colour_of(one.values.fen), one) for one in judged]
    kinds += [(one.labels["phase"], one) for one in judged if one.labels.get("phase")]
    for kind in dict.fromkeys(["white", "black", *sorted({kind for kind, _ in kinds})]):
        figures.append(rate(f"{name}/{kind}", [is_hit(one) for k, one in kinds if k == kind]))
    return figures


def _evaluation_figures(judged: Sequence[Judged]) -> list[Metric]:
    """Errors of the candidates' evaluations, beside those of saying 0.00 of the best moves."""
    said = [one.said for one in judged]
    errors = [sum(_error(wp, true) for wp, true, _ in line) / len(line) for line in said]
    unsaid = [evolve(one, answer=None).said for one in judged]
    zeros = [sum(abs(EVEN - true) for _, true, _ in line) / len(line) for line in unsaid]
    wrong = [share for one in judged if (share := one.wrong_signs) is not None]
    return [
        mean("policy/kendall_tau", [tau for one in judged if (tau := one.tau) is not None]),
        mean("policy/eval_error", errors, "win probability; what is unsaid is as wrong as can be"),
        mean("policy/eval_error_baseline", zeros, "0.00 of each of the best moves"),
        mean("policy/wrong_signs", wrong, "candidates beyond 50 centipawns; unsaid is wrong"),
    ]


def _error(said: float, true: float) -> float:
    return max(true, 1 - true) if math.isnan(said) else abs(said - true)


def _floors(judged: Sequence[Judged]) -> list[Metric]:
    """Expected results of a player of random legal moves on the same positions."""
    regrets = [[one.values.best - wp for wp in one.values.table.values()] for one in judged]
    note = "expected of random legal moves, the same positions"
    best = [sum(regret <= BAND for regret in every) / len(every) for every in regrets]
    return [
        mean("policy/best_floor", best, note),
        mean("policy/regret_floor", [sum(every) / len(every) for every in regrets], note),
    ]
