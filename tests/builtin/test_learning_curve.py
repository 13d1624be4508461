"""What the picture of a run's curve says."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from rlvr import BuildContext, RunInfo
from rlvr.builtin.learning_curve import LearningCurve

REPORT = {
    **{"step": 1, "split": "test", "pass1": 0.5, "low": 0.25, "high": 0.875, "reward_mean": 0.5},
    **{"seconds": 1.0, "samples": 4, "failed": 0, "problems": 4, "pass_at": {}, "scores": {}},
}
"""An evaluation, as a run writes it down."""


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pictures that are drawn; none is written."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = importlib.import_module("matplotlib.figure").Figure
    made: list[Any] = []
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")  # a notebook's own
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: made.append(self))
    return made


def draw(folder: Path, *metrics: dict[str, Any], evaluations: tuple[Any, ...] = ()) -> None:
    """As at the end of a run with these lines."""
    for name, lines in (("metrics", metrics), ("eval", evaluations)):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    run = RunInfo(id="r", directory=folder, plugin="toy", algo="sft", model="m", steps=1, seed=1)
    LearningCurve(None, BuildContext()).run_finished(run, "done")


def labels(picture: Any) -> list[str]:
    return picture.axes[0].get_legend_handles_labels()[1]  # type: ignore[no-any-return]


@pytest.mark.parametrize(("drawn", "whose"), [(1.0, "train"), (0.0, "references")])
def test_the_rewards_of_references_are_named_as_theirs(
    tmp_path: Path, made: list[Any], drawn: float, whose: str
) -> None:
    """The policy drew nothing of what was judged."""
    line = {"step": 1, "reward/mean": 1.0, "reward/pass": 1.0, "sampler/drawn": drawn}

    draw(tmp_path, line)

    assert labels(made[0]) == [f"mean reward ({whose})", f"pass rate ({whose})"]
    assert sys.modules["matplotlib"].get_backend() == "svg"


def test_evaluations_have_bars(tmp_path: Path, made: list[Any]) -> None:
    """From the low end of the interval to its high end."""
    line = {"step": 1, "reward/mean": 1.0, "reward/pass": 1.0}

    draw(tmp_path, line, evaluations=(REPORT,))

    assert labels(made[0])[2:] == ["pass@1 (test, 95 %)"]
    (bars,) = made[0].axes[0].containers
    assert bars[2][0].get_segments()[0].tolist() == [[1, 0.25], [1, 0.875]]
    assert made[0].axes[0].get_ylim() == (0, 1.02)


def test_of_recorded_trajectories_it_is_the_loss(tmp_path: Path, made: list[Any]) -> None:
    """Trained on and held out: nothing is right or wrong."""
    report = REPORT | {"measures": {"eval/loss": 3.0}}

    draw(tmp_path, {"step": 1, "loss": 2.0}, evaluations=(report,))

    assert labels(made[0]) == ["loss (train)", "loss (test)"]
    assert [line.get_ydata().tolist() for line in made[0].axes[0].lines] == [[2.0], [3.0]]


def test_nothing_is_drawn_of_nothing_or_without_matplotlib(
    tmp_path: Path, made: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second is said, with what to install."""
    draw(tmp_path)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with capture_logs() as told:
        draw(tmp_path, {"step": 1, "reward/mean": 1.0})

    assert made == []
    assert [(line["event"], "[plot]" in line["fix"]) for line in told] == [
        ("curve_not_drawn", True)
    ]
