"""The starter learns chess through the command line, within half a minute on one core."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rlvr.cli.main import main
from rlvr_chess.tables.file import SHIPPED

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

POSITIONS, STEPS = 8, 8
LEAST_GAIN = 0.08
"""Of the mean reward, which chance alone moves by about .03; seed 12 gains .19."""


def rewards(folder: Path) -> list[float]:
    """Mean reward on eight shipped positions before and after a short run on the same ones."""
    torch.set_num_threads(1)
    lines = gzip.decompress(SHIPPED.read_bytes()).splitlines(keepends=True)
    dataset = folder / "positions.jsonl"
    dataset.write_bytes(b"".join(lines[: 1 + POSITIONS]))  # the first names the engine
    code = main(
        [
            "run", "--plugin", "chess", "--algo", "grpo", "--steps", str(STEPS), "--seed", "12",
            "--out", str(folder / "run"), "--dataset", str(dataset), "chess.tasks=policy",
            "chess.holdout=0", f"train.problems={POSITIONS}", "train.lr=3e-4",
            "train.decay=constant", "eval.samples=16", "eval.split=all", "checkpoint.every=0",
            "verify.second_opinion=0", "torch.threads=1",
        ]
    )  # fmt: skip
    assert code == 0
    (kept,) = (folder / "run").glob("eval*.jsonl")
    return [json.loads(line)["reward_mean"] for line in kept.read_text("utf-8").splitlines()]


@pytest.mark.thorough
@pytest.mark.integration
@pytest.mark.timeout(600)
def test_the_starter_learns(tmp_path: Path) -> None:
    """GRPO earns more on the positions that it sees eight times; no engine is asked."""
    before, after = rewards(tmp_path)
    assert after - before > LEAST_GAIN
