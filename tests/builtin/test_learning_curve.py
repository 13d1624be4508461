"""What the picture of a run's curve says."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from rlvr import BuildContext, RunInfo
from rlvr.builtin.learning_curve import LearningCurve


@pytest.mark.parametrize(("drawn", "whose"), [(1.0, "train"), (0.0, "references")])
def test_the_rewards_of_references_are_named_as_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: float, whose: str
) -> None:
    """The policy drew nothing of what was judged."""
    matplotlib = pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    figure = importlib.import_module("matplotlib.figure").Figure
    made: list[Any] = []
    monkeypatch.setitem(matplotlib.rcParams, "backend", "svg")  # a notebook's own
    monkeypatch.setattr(figure, "savefig", lambda self, *_, **__: made.append(self))
    line = {"step": 1, "reward/mean": 1.0, "reward/pass": 1.0, "sampler/drawn": drawn}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line))
    run = RunInfo(id="r", directory=tmp_path, plugin="toy", algo="sft", model="m", steps=1, seed=1)

    LearningCurve(None, BuildContext()).run_finished(run, "done")

    _, labels = made[0].axes[0].get_legend_handles_labels()
    assert labels == [f"mean reward ({whose})", f"pass rate ({whose})"]
    assert matplotlib.get_backend() == "svg"
