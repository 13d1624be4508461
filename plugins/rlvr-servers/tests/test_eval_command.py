"""`rlvr eval --model server:...` against a real HTTP server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlvr_here import rlvr_here
from rlvr_process import run_rlvr

from rlvr.testing import require_tool

pytestmark = pytest.mark.integration

Call = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def rlvr(tmp_path: Path) -> Call:
    """Call `rlvr` in `tmp_path` with a cache of its own, in a process of its own if it forks."""

    def call(*words: str, forks: bool = False, **env: str) -> subprocess.CompletedProcess[str]:
        own = {"RLVR_CACHE_DIR": str(tmp_path / "cache")}
        asked = run_rlvr if forks else rlvr_here
        return asked(*words, cwd=tmp_path, env={**os.environ, **own, **env})

    return call


def toy(request: dict[str, Any]) -> str:
    """The right answer of a toy problem: `a=` wants `aaaa`."""
    return str(request["messages"][0]["content"][0] * 4)


def test_a_server_is_evaluated_with_nothing_but_its_spec(
    rlvr: Call, server: Any, tmp_path: Path
) -> None:
    """Backend and sampler follow from the model; the samples can be evaluated again."""
    server.decide = lambda request, _n: server.Say(
        toy(request) if toy(request) < "c" else "x", finish="length"
    )
    done = rlvr(
        "eval", "--plugin", "toy", "--model", server.spec, "--samples", "3", "--out", "s.jsonl",
        "--json", RLVR_SERVER_KEY="sk-hidden", forks=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)

    assert (summary["n"], summary["problems"], summary["samples"], summary["cut"]) == (3, 4, 12, 12)
    assert summary["pass_at"]["1"] == 0.5
    assert summary["runs"] == [0.5, 0.5, 0.5]
    assert len(server.requests) == 12
    lines = (tmp_path / "s.jsonl").read_text()
    assert "sk-hidden" not in lines + done.stdout + done.stderr
    assert json.loads(lines.splitlines()[0])["policy_digest"] == "tiny"

    again = rlvr("eval", "--plugin", "toy", "--completions", "s.jsonl", "--json")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["runs"] == summary["runs"]


def test_what_the_server_did_not_answer_is_not_wrong(rlvr: Call, server: Any) -> None:
    """One problem of four fails for ever: three are judged, and too many failed: exit 5."""
    server.decide = lambda request, _n: (
        server.Say(status=500, body="dead") if toy(request) == "aaaa" else server.Say(toy(request))
    )
    words = [
        "eval", "--plugin", "toy", "--model", server.spec, "--samples", "2", "--json",
        "server.retries=0",
    ]  # fmt: skip

    done = rlvr(*words)
    summary = json.loads(done.stdout)

    assert done.returncode == 5
    assert "HTTP 500: dead" in done.stderr
    assert (summary["pass_at"]["1"], summary["failed"], summary["unjudged"]) == (1.0, 2, 1)
    assert rlvr(*words, "verify.max_failures=0.5").returncode == 0


def test_training_is_refused(rlvr: Call, server: Any, tmp_path: Path) -> None:
    """Exit 2, before a run directory is made or a request is sent."""
    done = rlvr("run", "--plugin", "toy", "--model", server.spec, "--out", "r")

    assert done.returncode == 2
    assert "it only samples" in done.stderr
    assert not (tmp_path / "r").exists()
    assert server.paths == []


def test_a_sampler_of_tokens_is_refused(rlvr: Call, server: Any) -> None:
    """Exit 2 with the sampler that goes with the backend."""
    done = rlvr("eval", "--plugin", "toy", "--model", server.spec, "--sampler", "group")

    assert done.returncode == 2
    assert "goes with sampler chat only" in done.stderr


def test_a_server_that_is_not_there_exits_4(rlvr: Call) -> None:
    """What to do is said: start it, or check the URL."""
    done = rlvr("eval", "--plugin", "toy", "--model", "server:http://127.0.0.1:9#m")

    assert done.returncode == 4
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr


def test_ctrl_c_does_not_wait_for_the_server(server: Any, tmp_path: Path) -> None:
    """A model that thinks for a minute does not hold up a person who has seen enough."""
    server.decide = lambda _request, _n: server.Say("b", delay_s=30.0)
    words = ["eval", "--plugin", "toy", "--model", server.spec]
    running = subprocess.Popen(
        [sys.executable, "-m", "rlvr.cli.main", *words],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not server.requests and time.monotonic() < deadline:
        assert running.poll() is None, "it ended before it asked"
        time.sleep(0.02)
    begun = time.monotonic()
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)

    assert running.returncode == 130
    assert time.monotonic() - begun < 20.0


def test_config_show_says_who_chose_the_backend(rlvr: Call) -> None:
    """The model did; nothing is sent for it."""
    model = "server:http://127.0.0.1:9#m"
    done = rlvr("config", "show", "--for", "eval", "--plugin", "toy", "--model", model, "--json")
    rows = {row["key"]: row for row in json.loads(done.stdout)}

    assert (rows["run.backend"]["value"], rows["run.backend"]["origin"]) == (
        "server",
        f"model {model}",
    )
    assert rows["server.concurrency"]["value"] == 16


def test_a_real_verilog_problem(rlvr: Call, server: Any, tmp_path: Path) -> None:
    """Two CVDP problems, one answered with its reference: by category and difficulty, judged."""
    for tool in ("iverilog", "vvp", "bwrap"):
        require_tool(tool)
    cvdp = pytest.importorskip("rlvr_cvdp", reason="rlvr-cvdp is not installed")
    starter = Path(cvdp.__file__).parent / "starter" / "problems.jsonl"
    rows = [json.loads(line) for line in starter.read_text("utf-8").splitlines()[:2]]
    right, wrong = rows
    right["categories"], wrong["categories"] = ["cid003", "easy"], ["cid016", "medium"]
    right.pop("split", None), wrong.pop("split", None)
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (code,) = right["output"]["context"].values()
    server.decide = lambda request, _n: server.Say(
        f"```verilog\n{code}```" if right["input"]["prompt"] in _prompt(request) else "no idea"
    )

    done = rlvr(
        "eval", "--plugin", "cvdp", "--dataset", "two.jsonl", "--model", server.spec,
        "--samples", "2", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    by = json.loads(done.stdout)["by"]

    assert {value: part["pass_at"]["1"] for value, part in by["category"].items()} == {
        "cid003": 1.0,
        "cid016": 0.0,
    }
    assert by["difficulty"]["easy"]["runs"] == [1.0, 1.0]


def _prompt(request: dict[str, Any]) -> str:
    return "\n".join(message["content"] for message in request["messages"])
