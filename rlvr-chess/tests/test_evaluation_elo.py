"""Ratings from results, against closed forms and simulated players."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlvr_chess.evaluation.games.elo import MODEL, Pair, Rung, elo_figure, expected, fit
from rlvr_chess.evaluation.games.ladder import RUNGS, nearest

RANDOM = Rung(name="random", rating=0.0, low=0.0, high=0.0)
STRONG = Rung(name="strong", rating=400.0, low=400.0, high=400.0)


def results(points: float, games: int, other: str = "random") -> list[Pair]:
    """Pairs of games with these points in all, as even as possible."""
    pairs, left = [], points
    for _ in range(games // 2):
        won = min(2.0, left)
        pairs.append(Pair(one=MODEL, other=other, points=won))
        left -= won
    return pairs


@pytest.mark.parametrize(
    ("share", "rating"), [(0.5, 0.0), (0.75, 190.848), (0.9, 381.697), (0.25, -190.848)]
)
def test_one_opponent_gives_the_closed_form(share: float, rating: float) -> None:
    """Against one fixed opponent the fit is 400 log10(p / (1 - p))."""
    fitted = fit(results(share * 200, 200), {"random": (0.0, 0.0)})
    assert fitted[MODEL] == pytest.approx(rating, abs=0.01)
    assert fitted["random"] == 0.0
    assert expected(rating) == pytest.approx(share, abs=1e-4)


def test_players_without_a_rating_are_fitted_jointly() -> None:
    """A chain random - middle - model adds up: 190.848 twice."""
    chain = [Pair(one="middle", other="random", points=1.5)] * 50
    chain += [Pair(one=MODEL, other="middle", points=1.5)] * 50
    fitted = fit(chain, {"random": (0.0, 0.0)})
    assert fitted["middle"] == pytest.approx(190.848, abs=0.01)
    assert fitted[MODEL] == pytest.approx(2 * 190.848, abs=0.01)


def test_an_uncertain_rung_gives_way() -> None:
    """Results that contradict a rung's rating move it, the more the less it was known."""
    pairs = results(100, 200) + results(100, 200, "strong")
    moved = [
        fit(pairs, {"random": (0.0, 0.0), "strong": (400.0, deviation)})["strong"]
        for deviation in (1.0, 50.0, 500.0)
    ]
    assert 399.0 < moved[0] < 400.0
    assert moved[0] > moved[1] > moved[2] > 0.0


def test_a_rung_of_only_wins_or_losses_is_never_quoted() -> None:
    """Such rungs are left out of the fit; with no other one there is no number but a bound."""
    lost = elo_figure("elo", results(0, 20), [RANDOM])
    assert math.isnan(lost.value)
    assert "below random" in lost.note
    won = elo_figure("elo", results(20, 20), [RANDOM])
    assert "above random" in won.note
    between = elo_figure("elo", results(20, 20) + results(0, 20, "strong"), [RANDOM, STRONG])
    assert math.isnan(between.value)
    assert "below strong and above random" in between.note
    one = elo_figure("elo", results(20, 20) + results(5, 20, "strong"), [RANDOM, STRONG])
    assert one.value == pytest.approx(400 - 190.848, abs=0.01)
    assert one.n == 20
    assert "against strong" in one.note
    assert "random," not in one.note.partition("against")[2]


def test_the_interval_covers_the_truth() -> None:
    """Of 16 simulated matches of a player of +100, about 95 % of the intervals hold 100."""
    rng = np.random.default_rng(5)
    inside = 0
    for _ in range(16):
        points = rng.binomial(2, expected(100.0), size=50)
        pairs = [Pair(one=MODEL, other="random", points=float(p)) for p in points]
        figure = elo_figure("elo", pairs, [RANDOM])
        inside += figure.low <= 100.0 <= figure.high
        assert figure.low < figure.value < figure.high
    assert inside >= 13


def test_the_calibration_widens_the_interval() -> None:
    """What is not known of a rung is not known of the model."""
    vague = Rung(name="strong", rating=400.0, low=200.0, high=600.0)
    pairs = results(50, 200, "strong")
    sharp, wide = (elo_figure("elo", pairs, [rung]) for rung in (STRONG, vague))
    assert wide.value == pytest.approx(sharp.value, abs=1.0)
    assert wide.high - wide.low > 2 * (sharp.high - sharp.low)


def test_rungs_near_the_model_are_chosen() -> None:
    """Lost everywhere: the weakest ones; half won against mix50: it and its neighbours."""
    nothing = [Pair(one=MODEL, other=r.name, points=0.0) for r in RUNGS for _ in range(4)]
    assert [rung.name for rung in nearest(nothing)] == ["random", "mix10"]
    wins = {"random": 2.0, "mix25": 2.0, "mix50": 1.0, "nodes100": 0.0}
    middle = [Pair(one=MODEL, other=n, points=p) for n, p in wins.items() for _ in range(4)]
    assert "mix50" in [rung.name for rung in nearest(middle)]
    everything = [Pair(one=MODEL, other=r.name, points=2.0) for r in RUNGS for _ in range(4)]
    assert [rung.name for rung in nearest(everything)][-1] == "nodes1k"
