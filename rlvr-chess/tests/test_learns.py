"""The starter learns chess through the command line, within a minute or two on one core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

STEPS = 40
LOOKS = (24, 32, 40)
"""Steps after which the gain is looked at: processors round differently, and some learn later."""
LEAST_GAIN = 0.02
"""Of the mean reward, in one of the looks. On an AMD EPYC the gains were .015, .025 and .027."""


def metrics(folder: Path) -> list[dict[str, float]]:
    """The metrics of each step of a short run that is asked for moves only."""
    torch.set_num_threads(1)
    code = main(
        [
            "run", "--plugin", "chess", "--algo", "grpo", "--steps", str(STEPS), "--seed", "12",
            "--out", str(folder / "run"), "chess.tasks=policy", "train.problems=24",
            "train.decay=constant", "eval.samples=0", "checkpoint.every=0", "torch.threads=1",
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
def test_the_starter_learns(tmp_path: Path) -> None:
    """GRPO on fresh shipped positions earns more at the end than at first; no engine is asked."""
    steps = metrics(tmp_path)
    assert max(gain(steps[:count]) for count in LOOKS) > LEAST_GAIN
