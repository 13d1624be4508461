"""A run whose sampling overlaps training learns, and its rollouts go on over weight updates."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr.cli.main import main

torch = pytest.importorskip("torch", reason="the local backend speaks torch; pip install torch")
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")


@pytest.mark.integration
@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("count", "length"), [(8, 12), (50, 4)], ids=["some steps", "until it is learnt"]
)
def test_it_learns_from_partial_rollouts(tmp_path: Path, count: int, length: int) -> None:
    """
    With staleness 1 and a slice of one token: versions mix, bounds hold; 50 steps learn the toy.

    In few steps the answers are long, lest all of them end before the update on a loaded machine.

    While a step's data are at the teacher, the rollouts of the next step begin; then comes the
    update.
    """
    torch.set_num_threads(1)
    code = main(
        [
            "run", "--plugin", "toy", "--algo", "opd", "--steps", str(count), "--seed", "1",
            "--teacher", "starter", "advantage.kl_penalty_coef=0.05",
            "--max-staleness", "1", "--out", str(tmp_path / "run"), "torch.slice_tokens=1",
            "checkpoint.every=0", "eval.samples=0", "train.problems=8", "train.lr=0.01",
            f"sampler.max_tokens={length}",
        ]
    )  # fmt: skip
    assert code == 0

    steps = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert max(step["pipeline/staleness/max"] for step in steps) == 1.0
    assert max(step["parity/max"] for step in steps) < 1e-4
    assert count < 50 or sum(step["reward/mean"] for step in steps[-10:]) / 10 > 0.8
    mixed = [
        record
        for path in sorted((tmp_path / "run/trajectories").glob("step-*.jsonl"))
        for line in path.read_text().splitlines()
        if len((record := json.loads(line)).get("policy_versions", [])) > 1
    ]
    assert mixed, "no rollout went on over an update"
    for record in mixed:
        assert record["policy_version"] == record["policy_versions"][0]
        assert record["policy_versions"] == sorted(record["policy_versions"])
        assert record["policy_versions"][0] >= record["step"] - 2
