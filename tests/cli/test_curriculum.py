"""`rlvr run --curriculum NAME` on the toy task, as a person uses it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = pytest.mark.integration

Call = Callable[..., "subprocess.CompletedProcess[str]"]
WORDS = ("run", "--plugin", "toy", "--algo", "grpo", "eval.samples=0", "train.problems=2")


def met(run: Path) -> list[list[str]]:
    """The problems of each step, in order."""
    steps = sorted((run / "trajectories").glob("step-*.jsonl"))
    lines = [[json.loads(line)["id"] for line in path.read_text().splitlines()] for path in steps]
    return [list(dict.fromkeys(ids)) for ids in lines]


@pytest.mark.thorough
def test_stages_of_a_label_open_one_after_another(rlvr: Call, tmp_path: Path) -> None:
    """The first steps know one letter; after the ramp all of them come."""
    done = rlvr(
        *(*WORDS, "--curriculum", "difficulty", "--steps", "8", "--out", "r"),
        *("curriculum.label=family", "curriculum.stages=c,a,b,d", "curriculum.ramp_steps=6"),
    )

    assert done.returncode == 0, done.stderr
    line = met(tmp_path / "r")
    assert line[0] == ["toy_c"]
    assert {name for step in line[6:] for name in step} == {"toy_a", "toy_b", "toy_c", "toy_d"}


@pytest.mark.thorough
def test_a_resumed_run_meets_what_the_whole_one_would_have_met(rlvr: Call, tmp_path: Path) -> None:
    """By pass rates, which come from all that was sampled before: the same problems, step by step.

    And other ones than without the curriculum.
    """
    words = (*WORDS, "--curriculum", "pass-rate", "curriculum.explore=0.5")
    whole = rlvr(*words, "--steps", "8", "--out", "whole")
    begun = rlvr(*words, "--steps", "4", "--out", "parts")
    resumed = rlvr("run", "--resume", "parts", "--steps", "8", env={"PYTHONHASHSEED": "1"})
    plain = rlvr(*WORDS, "--steps", "8", "--out", "plain")

    for done in (whole, begun, resumed, plain):
        assert done.returncode == 0, done.stderr
    assert met(tmp_path / "parts") == met(tmp_path / "whole")
    assert met(tmp_path / "plain") != met(tmp_path / "whole")


def test_a_resumed_run_keeps_its_curriculum(rlvr: Call) -> None:
    """Another one would be another run: refused, with both names."""
    words = (*WORDS, "--steps", "2", "--out", "r")
    begun = rlvr(*words, "--curriculum", "pass-rate")

    other = rlvr("run", "--resume", "r", "--steps", "3", "--curriculum", "epochs")

    assert begun.returncode == 0, begun.stderr
    assert other.returncode == 2, other.stderr
    assert "pass-rate" in other.stderr
