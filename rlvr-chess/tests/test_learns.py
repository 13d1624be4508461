"""The starter learns chess through the command line, within a minute or two on one core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

STEPS = 60
LEAST_GAIN = 0.01
"""Of the mean reward on 200 held-out problems; chance alone moves it by about .008 (estimated)."""


def rewards(folder: Path) -> list[float]:
    """Mean reward on held-out problems before and after a short run that is asked for moves."""
    torch.set_num_threads(1)
    code = main(
        [
            "run", "--plugin", "chess", "--algo", "grpo", "--steps", str(STEPS), "--seed", "12",
            "--out", str(folder / "run"), "chess.tasks=policy", "train.problems=12",
            "train.decay=constant", "eval.samples=16", "eval.problems=200", "checkpoint.every=0",
            "verify.second_opinion=0", "torch.threads=1",
        ]
    )  # fmt: skip
    assert code == 0
    (kept,) = (folder / "run").glob("eval*.jsonl")
    return [json.loads(line)["reward_mean"] for line in kept.read_text("utf-8").splitlines()]


@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_starter_learns(tmp_path: Path) -> None:
    """GRPO on fresh shipped positions earns more afterwards, on others; no engine is asked."""
    before, after = rewards(tmp_path)
    assert after - before > LEAST_GAIN
