"""The starter learns chess through the command line, within a minute or two."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

STEPS = 16


def metrics(folder: Path, tasks: str) -> list[dict[str, float]]:
    """The metrics of each step of a short run on one of the two tasks."""
    torch.set_num_threads(1)
    code = main(
        [
            "run", "--plugin", "chess", "--algo", "grpo", "--steps", str(STEPS), "--seed", "1",
            "--out", str(folder / "run"), f"chess.tasks={tasks}", "train.problems=8",
            "eval.samples=0", "checkpoint.every=0", "verify.store=off",
        ]
    )  # fmt: skip
    assert code == 0
    lines = (folder / "run" / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def gain(steps: list[dict[str, float]]) -> float:
    """Mean reward of the last quarter of the steps minus that of the first."""
    rewards = [step["reward/mean"] for step in steps]
    part = len(rewards) // 4
    return (sum(rewards[-part:]) - sum(rewards[:part])) / part


@pytest.mark.integration
@pytest.mark.parametrize("tasks", ["environment", "policy"])
def test_the_starter_learns(tasks: str, tmp_path: Path) -> None:
    """GRPO on the shipped positions earns more after 16 steps than at first, on either task."""
    assert gain(metrics(tmp_path, tasks)) > 0.05
