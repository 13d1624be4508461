"""Runs of the command line against doubles of servers; some in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlvr_here import rlvr_here
from rlvr_process import run_rlvr

pytestmark = pytest.mark.integration

Start = Callable[..., Any]
Call = Callable[..., "subprocess.CompletedProcess[str]"]
SMALL = ("train.problems=2", "sampler.group_size=2", "eval.samples=0", "servers.backoff_s=0.01")


@pytest.fixture
def rlvr(tmp_path: Path) -> Call:
    """Call `rlvr` in `tmp_path` with a cache of its own; no curve is drawn."""
    for name in ("rlvr_torch", "rlvr_algos", "transformers"):
        pytest.importorskip(name, reason=f"{name} is not installed")

    def call(*words: str, forks: bool = False) -> subprocess.CompletedProcess[str]:
        own = {"RLVR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        env = {**os.environ, **own, "HF_HUB_OFFLINE": "1", "RLVR_RUN__CALLBACKS": "none"}
        if forks:
            return run_rlvr(*words, cwd=tmp_path, env=env, timeout_s=240)
        return rlvr_here(*words, cwd=tmp_path, env=env)

    return call


@pytest.fixture
def drawn(rlvr: Call, toy_model: Path) -> Call:
    """Train the toy's model in `r` with the draws of a server."""
    trained = ("run", "--plugin", "toy", "--algo", "grpo", "--backend", "torch", "--out", "r")

    def call(kind: str, server: Any, *words: str) -> subprocess.CompletedProcess[str]:
        named = ("--model", f"gpt2:{toy_model}", "--sampler", kind, f"servers.url={server.url}")
        return rlvr(*trained, *named, "sampler.max_tokens=6", *words)

    return call


def rows(tmp_path: Path) -> list[dict[str, Any]]:
    text = (tmp_path / "r" / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("kind", ["vllm", "sglang", "echo"])
def test_a_served_teacher_teaches(
    rlvr: Call, double: Start, toy_model: Path, tmp_path: Path, kind: str
) -> None:
    """Each protocol by its model spec alone; the gap to the teacher is in the metrics."""
    server = double(kind, toy_model, most_k=0)
    words = ["run", "--plugin", "toy", "--algo", "opd", "--teacher", server.spec, "--steps", "3"]
    if kind == "echo":
        words.append(f"servers.tokenizer={toy_model}")

    done = rlvr(*words, "--out", "r", *SMALL)

    assert done.returncode == 0, done.stderr
    assert "teacher_probed" in done.stderr
    found = [row["teacher/kl"] for row in rows(tmp_path) if "teacher/kl" in row]
    assert len(found) == 3
    assert all(abs(kl) < 30 for kl in found)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["sglang", "vllm", "echo"])
def test_a_served_teacher_teaches_verilog(
    rlvr: Call, double: Start, tmp_path: Path, kind: str
) -> None:
    """The domain of the first users: verified rewards and a server's teacher in one run."""
    starter = pytest.importorskip("rlvr_cvdp.starter.model_path", reason="rlvr-cvdp is missing")
    folder = Path(starter.starter_model().removeprefix("gpt2:"))
    server = double(kind, folder, most_k=4)
    words = ["run", "--plugin", "cvdp", "--algo", "opd", "--teacher", server.spec, "--steps", "1"]
    if kind == "echo":
        words.append(f"servers.tokenizer={folder}")

    # one server's answers are read to their ends, the others' begin alike
    words += ["train.problems=1"] if kind == "vllm" else ["sampler.max_tokens=48"]

    done = rlvr(*words, "--out", "r", *SMALL[kind == "vllm" :], "opd.mode=both", "opd.top_k=4")

    assert done.returncode == 0, done.stderr
    assert "teacher_probed" in done.stderr
    (row,) = [row for row in rows(tmp_path) if "teacher/kl" in row]
    assert abs(row["teacher/kl"]) < 0.01  # the student is its own teacher
    assert row["verify/scored"] == (2.0 if kind == "vllm" else 4.0)
    assert row["loss/distill"] < 0.01


def test_a_served_teacher_tells_its_likeliest_tokens(
    rlvr: Call, double: Start, toy_model: Path, tmp_path: Path
) -> None:
    """opd.mode=both: the divergence to its 4 likeliest tokens and the rest falls."""
    server = double("sglang", toy_model, most_k=4)
    words = ["run", "--plugin", "toy", "--algo", "opd", "--teacher", server.spec, "--out", "r"]

    too_many = rlvr(*words, *SMALL, "opd.mode=both", "opd.top_k=5")
    assert too_many.returncode == 2
    assert "at most 4" in too_many.stderr

    done = rlvr(*words, *SMALL, "opd.mode=both", "opd.top_k=4", "--steps", "6", "train.lr=0.01")

    assert done.returncode == 0, done.stderr
    losses = [row["loss/distill"] for row in rows(tmp_path) if "loss/distill" in row]
    assert len(losses) == 6
    assert losses[-1] < losses[0]


def test_the_gap_is_that_to_the_same_teacher_on_this_machine(
    rlvr: Call, double: Start, toy_model: Path, tmp_path: Path
) -> None:
    """Equal seeds, one teacher here and there: the same numbers in every step."""
    server = double("vllm", toy_model, most_k=0)
    told = []
    for teacher in (server.spec, f"gpt2:{toy_model}"):
        done = rlvr(
            "run", "--plugin", "toy", "--algo", "opd", "--teacher", teacher, "--steps", "3",
            "--out", "r", *(SMALL if teacher == server.spec else SMALL[:3]),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told.append([row["teacher/kl"] for row in rows(tmp_path) if "teacher/kl" in row])
        (tmp_path / "r").rename(tmp_path / f"r{len(told)}")

    assert told[0] == pytest.approx(told[1], abs=1e-3)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", ["sglang", "vllm"])
def test_a_teacher_that_dies_ends_the_run_and_it_resumes(
    rlvr: Call, double: Start, toy_model: Path, tmp_path: Path, kind: str
) -> None:
    """Exit 6 with the last good checkpoint named; with the server back the run goes on."""
    server = double(kind, toy_model, most_k=0)
    path = {"vllm": "/v1/completions", "sglang": "/generate"}[kind]
    asked: list[int] = []

    def fault(where: str, request: dict[str, Any], _number: int) -> Any:
        is_question = request.get("prompt_logprobs") == 0 or (
            "top_logprobs_num" in request and request["logprob_start_len"] > 0
        )
        if where == path and is_question:
            asked.append(1)
        return "die" if len(asked) > 14 else None

    server.faults = fault
    words = [
        "run", "--plugin", "toy", "--algo", "opd", "--teacher", server.spec, "--steps", "8",
        "--out", "r", *SMALL, "servers.retries=1", "checkpoint.every=1",
    ]  # fmt: skip

    died = rlvr(*words, forks=kind == "vllm")

    assert died.returncode == 6, died.stderr
    assert "did not answer" in died.stderr
    assert "step-" in died.stderr
    assert "Traceback" not in died.stderr
    done_before = len([row for row in rows(tmp_path) if "teacher/kl" in row])
    assert 0 < done_before < 8

    server.faults = lambda *_: None
    resumed = rlvr("run", "--resume", "r", forks=kind == "vllm")

    assert resumed.returncode == 0, resumed.stderr
    assert [row["step"] for row in rows(tmp_path) if "teacher/kl" in row] == list(range(1, 9))


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_run_draws_through_a_server(
    drawn: Call, double: Start, toy_model: Path, tmp_path: Path, kind: str
) -> None:
    """The server gets each step's weights; the mismatch check finds no gap to the trainer."""
    server = double(kind, toy_model)

    done = drawn(kind, server, "--steps", "3", *SMALL)

    assert done.returncode == 0, done.stderr
    gaps = [row["parity/max"] for row in rows(tmp_path) if "parity/max" in row]
    assert len(gaps) == 3
    assert max(gaps) < 1e-3
    assert len(server.loaded) >= 4  # its own, and one a step
    left = list((tmp_path / "r" / "served-weights").iterdir())
    assert len(left) == 1


def test_a_server_that_keeps_its_weights_ends_the_run(
    drawn: Call, double: Start, toy_model: Path, tmp_path: Path
) -> None:
    """It says yes to each weight sync. Exit 6, and what to look for, below any gap in nats."""
    server = double("vllm", toy_model)
    server.faults = lambda path, _request, _number: (
        (200, {"results": [None]}) if path == "/collective_rpc" else None
    )

    options = ("train.lr=1e-4", "parity.threshold=1", "train.problems=4", "eval.samples=0")
    done = drawn("vllm", server, "--steps", "4", *options)

    assert done.returncode == 6, done.stderr
    assert "the sampler was to hold the weights of now" in done.stderr
    assert "weight sync that did not arrive" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.one_of(2)
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_a_server_draws_where_steps_overlap(
    drawn: Call, double: Start, toy_model: Path, tmp_path: Path, kind: str
) -> None:
    """`--max-staleness 1`: it gets each version's weights beside training, and no gap is found."""
    server = double(kind, toy_model)

    sliced = f"servers.slice_tokens={2 if kind == 'vllm' else 0}"
    done = drawn(kind, server, "--max-staleness", "1", "--steps", "5", *SMALL, sliced)

    assert done.returncode == 0, done.stderr
    found = rows(tmp_path)
    assert max(row["parity/max"] for row in found if "parity/max" in row) < 1e-3
    assert any(row.get("pipeline/staleness/max") for row in found)
    assert len(server.loaded) >= 3  # its own, and newer ones while the run trained
    assert len(list((tmp_path / "r" / "served-weights").iterdir())) == 1


def test_an_ambiguous_token_is_a_failed_rollout_of_an_evaluation(
    rlvr: Call, double: Start, toy_model: Path
) -> None:
    """One of eight is lost: counted as failed, the seven others judged, exit 0."""
    server = double("echo", toy_model)
    left = [1]

    def spoil(found: Any) -> Any:
        found["choices"][0]["logprobs"]["tokens"][0] = "\N{REPLACEMENT CHARACTER}"
        return found

    def fault(path: str, request: dict[str, Any], _number: int) -> Any:
        return spoil if request.get("max_tokens", 0) > 1 and left and left.pop() else None

    server.faults = fault
    done = rlvr(
        "eval", "--plugin", "toy", "--model", server.spec.replace("server:", "openai:"),
        "--samples", "2", "--json", "sampler.max_tokens=4", f"servers.tokenizer={toy_model}",
        forks=True,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "could be several ids" in done.stderr
    assert json.loads(done.stdout)["failed"] == 1


def test_an_openai_sampler_is_refused_in_a_run(rlvr: Call, double: Start, toy_model: Path) -> None:
    """Exit 2 with the reason and what to use."""
    server = double("echo", toy_model)

    done = rlvr(
        "run", "--plugin", "toy", "--algo", "grpo", "--sampler", "openai", "--out", "r", *SMALL,
        f"servers.url={server.url}",
    )  # fmt: skip

    assert done.returncode == 2
    assert "no way to take new weights" in done.stderr


@pytest.mark.parametrize("kind", ["vllm", "sglang", "echo"])
def test_a_served_model_is_evaluated_token_by_token(
    rlvr: Call, double: Start, toy_model: Path, kind: str
) -> None:
    """`rlvr eval --model vllm:URL`: backend and sampler follow from the model."""
    server = double(kind, toy_model)
    spec = server.spec.replace("server:", "openai:")
    options = [f"servers.tokenizer={toy_model}"] if kind == "echo" else []

    done = rlvr(
        "eval", "--plugin", "toy", "--model", spec, "--samples", "2", "--json",
        "sampler.max_tokens=4", *options,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == 8


def test_a_served_teacher_that_is_not_there_exits_4(rlvr: Call) -> None:
    """Before anything is sampled; what to do is said."""
    done = rlvr(
        "run", "--plugin", "toy", "--algo", "opd", "--teacher", "sglang:http://127.0.0.1:9#m",
        "--out", "r", *SMALL[:3],
    )  # fmt: skip

    assert done.returncode == 4
    assert "SGLang server at http://127.0.0.1:9/v1 cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
