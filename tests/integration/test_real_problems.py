"""The main command on the real CVDP problems: a few steps end to end, whatever the reward."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rlvr_process import run_rlvr

from rlvr.testing import require_tool, shared_data

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "dataset"),
    [
        ("gpt2:new?layers=1&heads=2&width=32&positions=512", "agentic_no_commercial.jsonl"),
        ("starter", "nonagentic_no_commercial.jsonl"),
    ],
    ids=["untrained bytes", "starter"],
)
def test_a_few_steps_on_real_problems(model: str, dataset: str, tmp_path: Path) -> None:
    """`rlvr run --plugin cvdp --algo grpo --dataset FILE` takes its steps and scores all."""
    for tool in ("iverilog", "bwrap"):
        require_tool(tool)
    words = ["--plugin", "cvdp", "--algo", "grpo", "--model", model, "--out", "r", "--json"]
    words += ["--dataset", str(shared_data("cvdp", dataset)), "--steps", "2"]
    words += ["train.problems=2", "sampler.group_size=2", "sampler.max_tokens=64"]
    words += ["eval.problems=2", "eval.samples=1"]
    own = {"OMP_NUM_THREADS": "1", "RLVR_CACHE_DIR": str(tmp_path / "cache")}
    done = run_rlvr("run", *words, cwd=tmp_path, env={**os.environ, **own}, timeout_s=540)

    assert done.returncode == 0, done.stderr
    metrics = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert [m["step"] for m in metrics] == [1, 2]
    assert all(m["verify/scored"] == 4 and m["verify/failed"] == 0 for m in metrics)
    assert json.loads((tmp_path / "r/run.json").read_text())["problems"] > 20
