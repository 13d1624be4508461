"""Structured agent distillation by the command line, with tiny models."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import start_rlvr
from training_fixture import Bench, bench_in

from rlvr.testing.tools import shared_data

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
SPANS = ("reasoning", "action")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """Models and logs, once for all tests of this file."""
    return bench_in(tmp_path_factory.mktemp("bench"))


def ok(done: subprocess.CompletedProcess[str]) -> str:
    """All that a command said which succeeded."""
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout + done.stderr


def without_times(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Metrics without what a clock says."""
    clocks = ("time/", "rate/", "verify/cost_s", "pipeline/wait_s", "seconds")
    return [{k: v for k, v in r.items() if not k.startswith(clocks)} for r in records]


def test_the_student_comes_closer_to_the_teacher(bench: Bench) -> None:
    """By span type, in training and on held-out tasks; best and last checkpoint are kept."""
    said = ok(
        bench.train(
            "--steps 12 --out learn train.lr=1e-2 eval.every=4 checkpoint.every=4 train.problems=8"
        )
    )
    evaluations = [record["measures"] for record in bench.lines("learn", "eval.jsonl")]
    metrics = bench.lines("learn", "metrics.jsonl")

    assert "held out" in said
    assert [r["step"] for r in bench.lines("learn", "eval.jsonl")] == [0, 4, 8, 12]
    for kind in SPANS:
        for name in ("kl", "accuracy", "entropy", "overlap"):
            assert f"{name}/{kind}" in metrics[-1]
            assert f"eval/{name}/{kind}" in evaluations[-1]
        assert evaluations[-1][f"eval/kl/{kind}"] < 0.5 * evaluations[0][f"eval/kl/{kind}"]
    saved = sorted(p.name for p in (bench.folder / "learn" / "checkpoints").iterdir())
    assert saved == ["step-000008", "step-000012"]
    assert "best       step 12" in said
    record = json.loads((bench.folder / "learn" / "run.json").read_text())
    assert record["families_complete"]


def test_files_of_several_formats(bench: Bench) -> None:
    """A folder, and further files: every format is replayed, and said with its count."""
    said = ok(
        bench.train("--dataset logs,react.txt --out formats sad.files=chat.jsonl sad.workers=1")
    )

    for name in ("openai-tools (30)", "react-numbered (9)", "sharegpt (1)"):
        assert name in said
    assert bench.lines("formats", "metrics.jsonl")[-1]["data/trajectories"] == 4.0


@pytest.fixture(scope="module")
def kept(bench: Bench) -> str:
    """What the command said that kept the teacher's answers in the folder `kept`."""
    return ok(keep(bench, "kept", k=32))


def test_a_teacher_kept_in_files_says_the_same(bench: Bench, kept: str) -> None:
    """A run with `file:` learns what a run with the teacher itself learns, to float16."""
    assert "24 sequences asked about" in kept
    options = ("distill.top_k=32", "train.lr=1e-3", "--steps", 3)
    ok(bench.train("--out", "direct", *options))
    ok(bench.train("--out", "filed", "--teacher", "file:kept", *options))
    direct, filed = (bench.lines(name, "metrics.jsonl") for name in ("direct", "filed"))

    for one, other in zip(direct, filed, strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=0.05, abs=2e-4)
        assert other["kl/action"] == pytest.approx(one["kl/action"], rel=0.05, abs=2e-4)
    again = ok(keep(bench, "kept", k=32))
    assert "0 sequences asked about (0 positions), 24 were there" in again


def keep(bench: Bench, folder: str, k: int) -> subprocess.CompletedProcess[str]:
    """The teacher's answers to the chats, in a folder."""
    models = f"--teacher {bench.teacher} --model {bench.student}"
    return bench.rlvr(f"sad cache-teacher {models} --dataset chat.jsonl --k {k} --out {folder}")


@pytest.mark.usefixtures("kept")
def test_a_sequence_that_was_not_asked_about_ends_the_run(bench: Bench) -> None:
    """Other windows than the kept ones: the error names the command (exit 6)."""
    refused = bench.train(
        "--teacher file:kept --out missing distill.top_k=8 replay.max_tokens=40 eval.samples=0"
    )
    assert refused.returncode == 6, refused.stderr
    assert "rlvr sad cache-teacher --teacher gpt2:new" in refused.stderr
    assert "Traceback" not in refused.stderr

    too_many = bench.train("--teacher", "file:kept", "--out", "many", "distill.top_k=33")
    assert too_many.returncode == 2
    assert "at most 32" in too_many.stderr


def test_killed_and_resumed_is_as_if_never_killed(bench: Bench) -> None:
    """
    Kill -9 between two steps: the same metrics and weights to the bit, adaptive weights too.

    The straight run is in this process, whose seed of hashes is not that of the forked ones.
    """
    options = (
        "train.lr=1e-3 train.problems=4 checkpoint.every=2 eval.every=3 distill.weighting=adaptive "
        "--curriculum complexity curriculum.entropy=0 curriculum.ramp_steps=6"
    )
    ok(bench.train("--out straight --steps 8", options))
    models = f"--model {bench.student} --teacher {bench.teacher} --dataset chat.jsonl"
    words = bench.told("run --plugin sad --algo sad --out killed --steps 400", models, options)
    running = start_rlvr(*words, cwd=bench.folder, env=bench.environ())
    try:
        wait_for(bench.folder / "killed" / "checkpoints" / "step-000002")
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait(timeout=60)
    done = len(bench.lines("killed", "metrics.jsonl"))
    steps = max(8, done + 1)
    ok(bench.rlvr(f"run --resume killed --steps {steps}", forks=True))
    straight, killed = (bench.lines(name, "metrics.jsonl") for name in ("straight", "killed"))

    assert without_times(killed)[:8] == without_times(straight)
    if steps == 8:
        digests = [
            bench.folder / name / "checkpoints" / "step-000008" / "model" / "model.safetensors"
            for name in ("straight", "killed")
        ]
        assert digests[0].read_bytes() == digests[1].read_bytes()


def wait_for(path: Path, timeout_s: float = 200) -> None:
    """Until a folder is there."""
    end = time.monotonic() + timeout_s
    while not path.exists():
        assert time.monotonic() < end, path
        time.sleep(0.01)


def test_microbatches_and_minibatches_add_up(bench: Bench) -> None:
    """One step in micro-batches of 64 tokens is the step of the whole batch; minibatches train."""
    options = ("--steps", 1, "train.lr=1e-3", "distill.reduction=span", "eval.samples=0")
    ok(bench.train("--out", "whole1", *options))
    ok(bench.train("--out", "small1", *options, "torch.microbatch_tokens=64"))
    ok(bench.train("--out", "mini1", *options, "train.minibatches=2"))
    whole, small = (bench.lines(name, "metrics.jsonl")[0] for name in ("whole1", "small1"))

    for name in ("loss", "grad/norm", "kl/reasoning", "kl/action"):
        assert small[name] == pytest.approx(whole[name], rel=2e-4), name
    assert bench.lines("mini1", "metrics.jsonl")[0]["loss"] > 0


@pytest.mark.parametrize("preset", ["fast", "production", "research"])
def test_presets_run(bench: Bench, preset: str) -> None:
    """Each by itself; metrics by span where it has them; the option's origin is shown."""
    ok(bench.train("--preset", preset, "--out", f"preset-{preset}"))
    metrics = bench.lines(f"preset-{preset}", "metrics.jsonl")[-1]

    assert ("kl/action" in metrics) == (preset != "fast")
    assert metrics["loss"] >= 0


def test_hard_labels_of_the_same_trajectories(bench: Bench) -> None:
    """`--algo sft --sampler replay`: the baseline without a teacher."""
    ok(bench.train("--sampler", "replay", "--out", "sft", "--steps", 1, algo="sft"))

    assert bench.lines("sft", "metrics.jsonl")[0]["loss"] > 1.0


def test_an_adapter_learns(bench: Bench) -> None:
    """LoRA on a model of transformers, with its own chat template; only the adapter is kept."""
    pytest.importorskip("peft")
    template = (
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{% if m.role == 'assistant' %}<|endoftext|>{% endif %}\n{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    bench.tiny_llama("llama", template)
    ok(
        bench.train(
            "--model hf:llama --out lora --steps 4 torch.lora_rank=4 train.lr=1e-2 eval.every=4"
        )
    )
    first, last = (r["measures"]["eval/loss"] for r in bench.lines("lora", "eval.jsonl"))

    assert last < first
    trajectory = bench.lines("lora", "trajectories/step-000001.jsonl")[0]
    assert 0 < trajectory["recorded"]["learnt"] < trajectory["recorded"]["tokens"]


@pytest.mark.thorough
def test_the_shared_trajectories_are_learnt_from(bench: Bench) -> None:
    """All files of the data folder: 13 formats, windows where one is long, and nothing unsaid."""
    data = shared_data("trajectories", "gold_spans.jsonl").parent
    said = ok(
        bench.train(f"--dataset {data} --out shared eval.problems=8 train.problems=16 --steps 2")
    )

    for name in ("toolbench", "swe-agent", "openhands", "verifiers", "harmony", "alpaca"):
        assert f"{name} (" in said
    assert "long_trajectories" in said
    assert bench.lines("shared", "metrics.jsonl")[-1]["kl/action"] > 0


def test_on_policy_on_recorded_prompts(bench: Bench) -> None:
    """`--algo opd`: the student answers what stood before the model's first turn."""
    ok(
        bench.train(
            "--out opd --steps 1 sampler.max_tokens=8 sampler.group_size=2 eval.samples=0",
            algo="opd",
        )
    )
    (record,) = bench.lines("opd", "metrics.jsonl")

    assert record["data/trajectories"] == 8.0
