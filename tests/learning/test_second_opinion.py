"""A policy that learns to cheat a weak verifier is caught within the run; an honest one is not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import run_rlvr

from tests.conftest import LEAN

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "bench_second_opinion.py"
STEPS, SHARE = 22, "verify.second_opinion=0.25"
"""A shorter form of the demonstration: fewer steps, more of the answers asked about."""


def load() -> Any:
    """The demonstration as a module."""
    spec = importlib.util.spec_from_file_location("bench_second_opinion", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rlvr(site: Path, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """A command that must succeed, with the example on its path."""
    env = {**os.environ, **LEAN, "PYTHONPATH": str(site), "OMP_NUM_THREADS": "1"}
    done = run_rlvr(*words, cwd=folder, env=env, timeout_s=600)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def bench() -> Any:
    """The demonstration, whose commands share a start."""
    module = load()
    module.rlvr = lambda site, *words: rlvr(site, *words).stdout
    return module


@pytest.fixture(scope="module")
def site(bench: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with the example in it."""
    path: Path = bench.installed(tmp_path_factory.mktemp("site") / "site")
    return path


@pytest.fixture(scope="module")
def cheated(site: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A run with the weak verifier, its output redirected: folder, stdout, stderr."""
    folder = tmp_path_factory.mktemp("cheated")
    words = ["run", "--plugin", "formula", "--steps", str(STEPS), "--out", "r", SHARE]
    done = rlvr(site, *words, "formula.weak=dstf", folder=folder)
    return folder / "r", done.stdout, done.stderr


def test_a_policy_that_cheats_is_caught_within_the_run(cheated: tuple[Path, str, str]) -> None:
    """One alarm before the last step, on the screen and in the events; it names answers."""
    run, out, err = cheated
    lines = err.splitlines()

    (alarm,) = [line for line in lines if "false_accepts_alarm" in line]
    after = lines[lines.index(alarm) :]
    assert any(line.startswith("step ") for line in after), "only once training was over"
    assert "trajectories/step-" in alarm
    assert "ALARM" in after[-2] or any("ALARM" in line for line in after if "step " in line)
    assert "ALARM, see: rlvr runs show r" in out
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    (event,) = [e for e in events if e["event"] == "false_accepts_alarm"]
    assert event["level"] == "warning"
    assert event["answers"]
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert metrics[-1]["reward/mean"] > metrics[0]["reward/mean"] + 0.1  # it has learnt to


def test_runs_show_lists_the_false_accepts(bench: Any, site: Path, cheated: Any) -> None:
    """Problem, step, trajectory and reason of each, as text and as JSON."""
    run = cheated[0]
    text = bench.rlvr(site, "runs", "show", str(run))
    shown = json.loads(bench.rlvr(site, "runs", "show", str(run), "--json"))["trust"]

    assert shown["alarm_step"] is not None
    assert shown["false_accepts"]
    for opinion in shown["false_accepts"]:
        assert opinion["trajectory"] in text
        assert opinion["why"] in text
        name, _, line = opinion["trajectory"].rpartition(":")
        answer = json.loads((run / name).read_text().splitlines()[int(line) - 1])
        assert answer["outcome"]["score01"] == 1.0
    assert f"ALARM at step {shown['alarm_step']}" in text


@pytest.mark.thorough
def test_an_honest_run_of_the_same_length_raises_no_alarm(
    bench: Any, site: Path, tmp_path: Path
) -> None:
    """Its answers are drawn and confirmed as well, and nothing is said."""
    shown = bench.run(site, tmp_path / "r", "honest", steps=STEPS, seed=1, words=[SHARE])

    trust = shown["trust"]
    assert trust["trust/judged"] > 5
    assert trust["trust/rejected"] == 0
    assert trust["alarm_step"] is None
    assert "false_accepts_alarm" not in (tmp_path / "r" / "events.jsonl").read_text()
