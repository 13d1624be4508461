"""What a task measures besides: as a table, as JSON, beside another model's."""

from __future__ import annotations

import json
import math

from rlvr.cli.eval_figures import figure_line, figures_as_json, figures_as_text
from rlvr.types import Figure

FIGURES = [
    Figure(name="policy/regret", value=0.277, low=0.25, high=0.3, n=140),
    Figure(name="elo", value=148.0, low=120.0, high=174.0, n=200, note="relative to random"),
]


def test_a_row_a_figure_with_its_interval_and_note() -> None:
    """Value, interval and n stand in the row of the name; the note is not lost."""
    lines = figures_as_text(FIGURES).splitlines()
    assert lines[0].split() == ["FIGURE", "VALUE", "95", "%", "INTERVAL", "N", "NOTE"]
    assert lines[1].split() == ["policy/regret", "0.277", "[0.25,", "0.3]", "140"]
    assert lines[2].endswith("relative to random")
    assert figure_line(FIGURES[1]) == "  elo 148 [120, 174] n=200"


def test_another_models_figures_stand_beside() -> None:
    """Only those that both have are compared; a dash stands for one that the other lacks."""
    other = [Figure(name="elo", value=365.0, low=328.0, high=407.0, n=200)]
    lines = figures_as_text(FIGURES, other).splitlines()
    assert lines[1].split()[-2:] == ["-", "-"]
    assert "365" in lines[2]
    assert "[328, 407]" in lines[2]


def test_json_has_every_number_by_name() -> None:
    """A program finds value, bounds, n and note under the figure's name."""
    assert figures_as_json(FIGURES)["elo"] == {
        "value": 148.0,
        "low": 120.0,
        "high": 174.0,
        "n": 200,
        "note": "relative to random",
    }


def test_what_could_not_be_measured_is_a_dash_and_null() -> None:
    """No value is no number: a dash with the reason beside it, and valid JSON."""
    missing = Figure(name="elo", value=math.nan, low=math.nan, high=math.nan, n=0, note="no engine")
    assert figures_as_text([missing]).splitlines()[1].split() == [
        "elo",
        "-",
        "-",
        "0",
        "no",
        "engine",
    ]
    assert figure_line(missing) == "  elo - - n=0"
    read = json.loads(json.dumps(figures_as_json([missing]), allow_nan=False))
    assert read["elo"] == {"value": None, "low": None, "high": None, "n": 0, "note": "no engine"}
