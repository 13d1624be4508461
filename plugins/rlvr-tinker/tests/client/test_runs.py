"""Whole runs against `rlvr tinker-server`, by the command line as a person uses it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rlvr_here import rlvr_here
from rlvr_process import Started, run_rlvr, start_rlvr
from server_process import Running, started

from rlvr.testing import require_tool
from rlvr_tinker.service.usage import read_ledger

from .conftest import ENV, Faults

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")

RUN = (
    *("run", "--task", "toy", "--algo", "grpo", "--backend", "tinker", "--out", "run"),
    *("sampler.max_tokens=6", "sampler.group_size=4", "train.problems=2", "train.lr=0.02"),
    *("tinker.rank=4", "verify.store=off"),
)
Rlvr = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(server: Running | None) -> dict[str, str]:
    """That of a person who set what the server printed."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("TINKER_")}
    return {**mine, **ENV, **(server.environment if server is not None else {})}


@pytest.fixture
def rlvr(tmp_path: Path) -> Rlvr:
    """Call `rlvr` in `tmp_path`, in a process of its own if it forks."""

    def call(
        *words: str, server: Running | None = None, forks: bool = False, **more: str
    ) -> subprocess.CompletedProcess[str]:
        env = {**environment(server), "RLVR_CACHE_DIR": str(tmp_path / "cache"), **more}
        if forks:
            return run_rlvr(*words, cwd=tmp_path, env=env, timeout_s=500)
        return rlvr_here(*words, cwd=tmp_path, env=env)

    return call


def start(folder: Path, server: Running, *words: str) -> Started:
    """Begin a command in `folder`."""
    env = {**environment(server), "RLVR_CACHE_DIR": str(folder / "cache")}
    return start_rlvr(*words, cwd=folder, env=env)


def metrics(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def numbers(run: Path) -> list[float]:
    """What of the metrics does not depend on the clock, step after step."""
    names = ("loss", "grad/norm", "reward/mean", "logprob/mean")
    return [step[name] for step in metrics(run) for name in names]


@pytest.fixture(scope="module")
def whole_run(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of three steps that nothing disturbed, in this process."""
    folder = tmp_path_factory.mktemp("whole")
    Faults(running.url).set()
    env = {**environment(running), "RLVR_CACHE_DIR": str(folder / "cache")}
    done = rlvr_here(*RUN, "--steps", "3", "checkpoint.every=1", cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    return folder / "run"


def test_a_run_leaves_what_a_local_one_leaves(whole_run: Path, rlvr: Rlvr) -> None:
    """Metrics of each step, checkpoints, and a count of tokens that the cost is made of."""
    steps = metrics(whole_run)
    usage = json.loads((whole_run / "tinker-usage.json").read_text())
    kept = sorted(path.name for path in (whole_run / "checkpoints").iterdir())

    assert [step["step"] for step in steps] == [1, 2, 3]
    assert all(step["grad/norm"] >= 0 and step["parity/max"] < 1e-4 for step in steps)
    assert kept == ["step-000002", "step-000003"]
    assert usage["sampled"] == sum(step["sampler/tokens"] for step in steps)
    assert usage["trained"] > usage["sampled"]
    done = rlvr("tinker", "cost", str(whole_run), "--json")
    assert json.loads(done.stdout)["tokens"]["sampled"] == usage["sampled"]


def test_a_killed_run_goes_on_as_if_it_had_not_been(
    whole_run: Path, running: Running, rlvr: Rlvr, tmp_path: Path
) -> None:
    """`kill -9` of the client in the middle, then --resume: the same losses to the end."""
    Faults(running.url).set()
    words = [*RUN, "--steps", "3", "checkpoint.every=1"]
    with start(tmp_path, running, *words) as process:
        until = time.monotonic() + 400
        while not list(tmp_path.glob("run/checkpoints/step-*")):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)

    done = rlvr("run", "--resume", "run", server=running)

    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "run") == pytest.approx(numbers(whole_run))


@pytest.mark.thorough
def test_the_bill_of_a_killed_run_counts_its_teacher_and_what_was_lost(
    running: Running, rlvr: Rlvr, tmp_path: Path
) -> None:
    """`--algo opd`, `kill -9`, a ledger cut short, --resume: the summary has it all, once."""
    Faults(running.url).set()
    run = tmp_path / "run"
    words = [("opd" if word == "grpo" else word) for word in RUN]
    words += ["--teacher", "tinker:tiny", "--steps", "3"]
    with start(tmp_path, running, *words) as process:
        until = time.monotonic() + 400
        while not (run / "metrics.jsonl").exists() or not metrics(run):
            assert process.poll() is None, "it ended by itself"
            assert time.monotonic() < until
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    before = {part.role: part for part in read_ledger(run)}
    assert before["teacher"].scored > 0
    with (run / "tinker-usage.jsonl").open("ab") as ledger:
        ledger.write(b'{"model": "tiny", "role": "teacher", "scor')

    done = rlvr("run", "--resume", "run", "--json", server=running)

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)["tinker"]
    after = {part["role"]: part["tokens"] for part in told["parts"]}
    for role, part in before.items():
        assert after[role]["scored"] > part.scored, role
    assert after["policy"]["sampled"] >= sum(step["sampler/tokens"] for step in metrics(run))
    assert told["tokens"]["scored"] == after["teacher"]["scored"] + after["policy"]["scored"]
    assert "teacher tiny" in done.stderr
    assert "1 line" in done.stderr or "lines=1" in done.stderr, done.stderr
    assert "tinker-usage.jsonl" in done.stderr


@contextlib.contextmanager
def at_port(model_dir: Path, state: Path, port: int, *more: str) -> Iterator[Running]:
    options = ("--threads", "1", "--name", "tiny", "--max-rank", "16", *more)
    with started(f"gpt2:{model_dir}", *options, state=state, port=port, env=ENV) as server:
        yield server


def test_a_killed_server_is_survived(whole_run: Path, model_dir: Path, tmp_path: Path) -> None:
    """The server dies in the middle of a step and comes back: the run ends as if it had not."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    state = tmp_path / "state"
    words = [*RUN, "--steps", "3", "checkpoint.every=1", "tinker.timeout_s=60"]
    with at_port(model_dir, state, port, "--faults") as server:
        Faults(server.url).set({"on": "optim_step", "do": "kill", "after": 2})
        with start(tmp_path, server, *words) as process:
            assert server.process.wait(400) == 137
            with at_port(model_dir, state, port):
                _, said = process.communicate(timeout=400)

    assert process.returncode == 0, said
    assert "service_lost" in said
    assert numbers(tmp_path / "run") == pytest.approx(numbers(whole_run))


@pytest.mark.parametrize(
    ("words", "env", "code", "texts"),
    [
        ((), {"TINKER_API_KEY": ""}, 4, ("TINKER_API_KEY",)),
        ((), {"TINKER_API_KEY": "sk-wrong"}, 4, ("tml-",)),
        ((), {"TINKER_BASE_URL": "http://127.0.0.1:9"}, 4, ("cannot be reached", "tinker-server")),
        (("--model", "tinker:tine"), {}, 2, ("did you mean: tiny",)),
        (("tinker.rank=99",), {}, 2, ("rank 99", "1..16")),
        (("sampler.temperature=0.7",), {}, 2, ("temperature",)),
        (("sampler.max_tokens=64",), {}, 2, ("sampler.max_tokens",)),
    ],
    ids=["no key", "wrong key", "no service", "unknown model", "rank", "temperature", "context"],
)
def test_bad_input_ends_before_anything_is_sampled(
    rlvr: Rlvr,
    running: Running,
    tmp_path: Path,
    words: tuple[str, ...],
    env: dict[str, str],
    code: int,
    texts: tuple[str, ...],
) -> None:
    """The exit code of the contract, three sentences, no traceback, and no sample."""
    Faults(running.url).set()

    done = rlvr(*RUN, "--steps", "1", *words, server=running, HOME=str(tmp_path), **env)

    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr
    assert Faults(running.url).requests("asample") == 0


def test_models_are_listed(rlvr: Rlvr, running: Running, tmp_path: Path) -> None:
    """What the service offers, for people and as JSON; without a key: exit 4."""
    Faults(running.url).set()

    plain = rlvr("tinker", "models", server=running, forks=True)
    found = rlvr("tinker", "models", "--json", server=running)
    keyless = rlvr("tinker", "models", "--url", running.url, HOME=str(tmp_path))
    nobody = rlvr("tinker", "models", "--url", "http://127.0.0.1:9", server=running)

    assert plain.returncode == found.returncode == 0, plain.stderr + found.stderr
    head, row = plain.stdout.splitlines()
    assert head.split() == ["MODEL", "CONTEXT", "TRAINABLE"]
    assert row.split() == ["tiny", "64", "yes"]
    listed = [{"name": "tiny", "context_length": 64, "is_trainable": True}]
    assert json.loads(found.stdout) == listed
    assert keyless.returncode == nobody.returncode == 4
    assert "TINKER_API_KEY" in keyless.stderr
    assert "cannot be reached" in nobody.stderr


def test_a_run_at_a_lagging_policy(rlvr: Rlvr, running: Running, tmp_path: Path) -> None:
    """Sampling goes on while training does: each batch with the weights it began with."""
    Faults(running.url).set()

    done = rlvr(*RUN, "--steps", "3", "--max-staleness", "2", server=running)

    assert done.returncode == 0, done.stderr
    assert len(metrics(tmp_path / "run")) == 3


@pytest.mark.thorough
def test_two_runs_at_one_server(
    whole_run: Path, running: Running, rlvr: Rlvr, tmp_path: Path
) -> None:
    """Each has a session of its own: neither changes the other."""
    Faults(running.url).set()
    words = [*RUN, "--steps", "3", "--seed", "2", "checkpoint.every=1"]
    with start(tmp_path, running, *words[:-1], "--out", "other") as other:
        done = rlvr(*RUN, "--steps", "3", "checkpoint.every=1", server=running)

    assert done.returncode == 0, done.stderr
    assert other.returncode == 0
    assert numbers(tmp_path / "run") == pytest.approx(numbers(whole_run))


@pytest.fixture(scope="module")
def cvdp_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """The server of the CVDP starter model."""
    pytest.importorskip("rlvr_cvdp", reason="rlvr-cvdp is not installed")
    for tool in ("iverilog", "vvp", "bwrap"):
        require_tool(tool)
    state = tmp_path_factory.mktemp("cvdp")
    options = ("--plugin", "cvdp", "--threads", "1")
    with started("starter", *options, state=state, env=ENV) as server:
        yield server


@pytest.mark.one_of(2)
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        (("opd", "--teacher", "tinker:"), ()),
        (("grpo",), ("run", "--resume", "run", "--steps", "2")),
    ],
    ids=["opd", "grpo"],
)
def test_cvdp_on_the_starter_model(
    cvdp_server: Running,
    rlvr: Rlvr,
    tmp_path: Path,
    algorithm: tuple[str, ...],
    more: tuple[str, ...],
) -> None:
    """
    The commands of the issue, a step or two: metrics, checkpoints and resume as locally.

    Nobody names a model: the server's only one is taken.
    """
    words = (
        *("run", "--plugin", "cvdp", "--backend", "tinker", "--out", "run", "--steps", "1"),
        *("train.problems=2", "sampler.group_size=2", "eval.samples=0", "sampler.max_tokens=48"),
        *("tinker.rank=4", "checkpoint.every=1", "verify.store=off", "--algo", *algorithm),
    )

    done = rlvr(*words, server=cvdp_server)
    assert done.returncode == 0, done.stderr
    if more:
        again = rlvr(*more, server=cvdp_server)
        assert again.returncode == 0, again.stderr

    steps = metrics(tmp_path / "run")
    assert [step["step"] for step in steps] == ([1, 2] if more else [1])
    assert not any(step["verify/failed"] for step in steps)
    assert steps[0]["parity/max"] < 1e-3
    if algorithm[0] == "opd":
        assert abs(steps[0]["teacher/kl"]) < 1e-4  # the student begins as its teacher
    last = tmp_path / "run" / "checkpoints" / f"step-{len(steps):06d}"
    assert (last / "model" / "tinker.json").is_file()


def test_the_starter_of_a_server_is_known_as_it(cvdp_server: Running, rlvr: Rlvr) -> None:
    """Nobody names a model or a preset: the server's only model is the starter, by both."""
    words = ("--plugin", "cvdp", "--backend", "tinker", "--algo", "grpo")

    shown = rlvr("config", "show", *words, server=cvdp_server)

    assert "tinker:cvdp-starter" in shown.stdout
    assert "preset starter" in shown.stdout
