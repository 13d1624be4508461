from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from judging.answers import make_answers
from judging.contest import Turn, compete, summary
from judging.plain import judge_plainly

from rlvr.testing.tools import require_tool

from .conftest import BENCHMARKS


@pytest.fixture
def simulator() -> None:
    for tool in ("bwrap", "iverilog", "vvp"):
        require_tool(tool)


def test_ratios_are_of_one_round_and_who_begins_changes(starter_rows: Path) -> None:
    """A machine that is slow for one round slows both sides of that round's ratio."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    order: list[str] = []
    speeds = {"plain": iter([0.0, 4.0, 40.0, 4.0]), "warm": iter([0.0, 2.0, 20.0, 1.0])}

    def judge(name: str) -> object:
        def turn(chosen: object, workers: int) -> Turn:
            order.append(name)
            return Turn(seconds=next(speeds[name]), verdicts=(True,) * 3)

        return turn

    turns = compete({n: judge(n) for n in speeds}, answers, 2, 3)  # type: ignore[misc]
    assert order[2:] == ["plain", "warm", "warm", "plain", "plain", "warm"]
    found = summary(turns, answers)
    assert found["ratios"]["warm / plain"] == {"median": 2.0, "least": 2.0, "most": 4.0}
    assert found["unequal_verdicts"] == []


def test_verdicts_that_differ_between_judges_are_named(starter_rows: Path) -> None:
    """Speed over different verdicts would mean nothing."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    turns = {
        "plain": [Turn(seconds=2.0, verdicts=(True, True, True))],
        "warm": [Turn(seconds=1.0, verdicts=(True, False, True))],
    }
    (found,) = summary(turns, answers)["unequal_verdicts"]
    assert found == f"{answers[1].name}: plain True, warm False"


@pytest.mark.thorough
@pytest.mark.integration
def test_the_plain_way_says_what_the_harness_says(simulator: None, starter_rows: Path) -> None:
    """References pass, broken syntax fails, in the sandbox that the others are compared with."""
    answers = make_answers([starter_rows], kinds=["reference", "broken"]).answers
    verdicts = asyncio.run(judge_plainly(answers, workers=2))
    assert [v.is_right for v in verdicts] == [True, False] * 3
    assert "exited with 1" in verdicts[1].why


@pytest.mark.thorough
@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_benchmark_prints_ratios_scaling_and_cached_answers(simulator: None) -> None:
    """One small run of the command gives every figure, and all judges agree."""
    words = ["--answers", "3", "--rounds", "1", "--no-docker", "--json", "--hang-timeout", "0"]
    words += ["--mixes", "starter"]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "bench_verify.py"), *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=540,
    )
    found = json.loads(done.stdout)
    assert set(found["mixes"]) == {"starter"}
    for mix in found["mixes"].values():
        assert set(mix["ratios"]) == {"fresh / plain", "warm / plain"}
        assert mix["unequal_verdicts"] == []
    assert set(found["scaling"]["per_second"]) == {"1", "2"}
    assert found["cached_per_second"] > 0
    assert {row["kind"] for row in found["phases"]} >= {"mutant", "reference"}
