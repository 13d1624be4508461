"""The commands of the house, one of them in a process of its own."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from rlvr_here import rlvr_here
from rlvr_process import run_rlvr

pytest.importorskip("rlvr_torch", reason="models of the house run on rlvr-torch")

pytestmark = pytest.mark.integration


def rlvr(*words: str, forks: bool = False) -> subprocess.CompletedProcess[str]:
    done = run_rlvr(*words, timeout_s=600) if forks else rlvr_here(*words, cwd=Path.cwd())
    assert done.returncode == 0, done.stderr
    return done


def test_the_student_is_evaluated() -> None:
    """`rlvr eval` gives pass@1 by the reward, and the figures of the house."""
    words = ["--task", "house", "house.test=4", "eval.samples=1", "--json"]
    told = json.loads(rlvr("eval", *words, forks=True).stdout)
    found = told["figures"]
    assert found["house/success"]["n"] == 4
    assert 0.0 <= found["house/cot_match"]["value"] <= 1.0
    assert found["house/reasoning_tokens"]["value"] > 0


def test_the_teacher_solves_what_is_held_out(tmp_path: Path) -> None:
    """The shipped teacher reaches most of 24 held-out goals, and writes what `rlvr sad` reads."""
    out = tmp_path / "teacher.jsonl"
    words = ["--out", str(out), "--problems", "24", "--split", "test", "--temperature", "0"]
    told = json.loads(rlvr("household", "play", *words, "--json").stdout)
    assert told["house/success"] >= 0.8
    assert told["house/cot_match"] >= 0.8
    records = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(records) == told["written"] == round(24 * told["house/success"])
    assert {record["reward"] for record in records} == {1.0}
    spans = rlvr("sad", "spans", str(out), "--json").stdout.splitlines()
    assert len(spans) == len(records)


def test_the_student_is_at_least_four_times_smaller() -> None:
    """Parameters of teacher and student, counted in the files that ship."""
    from safetensors import safe_open

    sizes = {}
    for name in ("teacher", "student"):
        path = Path(rlvr("household", "models", name).stdout.strip().removeprefix("gpt2:"))
        with safe_open(path / "model.safetensors", "np") as file:  # type: ignore[no-untyped-call]
            sizes[name] = sum(file.get_tensor(key).size for key in file.keys())  # noqa: SIM118
    assert sizes["teacher"] >= 4 * sizes["student"]


def test_the_student_learns_from_its_own_episodes(tmp_path: Path) -> None:
    """On-policy SAD: both kinds of span differ from the teacher; from itself, at no token."""
    models = {
        name: rlvr("household", "models", name).stdout.strip() for name in ("student", "teacher")
    }
    found = {}
    for teacher in models:
        out = tmp_path / teacher
        words = ["--task", "house", "--algo", "opd", "--model", models["student"]]
        words += ["opd.mode=supervised", "opd.reduction=span", "opd.loss=forward_kl"]
        words += [f"advantage.teacher={models[teacher]}", "advantage.reward_coef=0"]
        words += ["--steps", "1", "train.problems=8", "sampler.group_size=1", "house.steps=3"]
        rlvr("run", *words, "eval.every=0", "eval.samples=0", "-qq", "--out", str(out))
        (found[teacher],) = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())

    for kind in ("reasoning", "action"):
        assert found["student"][f"kl/{kind}"] == pytest.approx(0, abs=1e-6)
        assert found["teacher"][f"kl/{kind}"] > 0.01
        assert found["teacher"][f"share/{kind}"] > 0
