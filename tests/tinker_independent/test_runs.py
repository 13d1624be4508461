"""Whole runs of ours on both servers: what learns, and what survives."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import Started, start_rlvr

from .conftest import free_port

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

RUN = ("run", "--plugin", "toy", "--algo", "grpo", "--backend", "tinker", "--model", "tinker:")
KEYS = ("sampler.max_tokens=4", "eval.samples=0", "tinker.rank=8", "parity.threshold=0.01")


def rewards(run: Path) -> list[float]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["reward/mean"] for line in lines if "reward/mean" in line]


@pytest.mark.thorough
def test_grpo_learns_on_our_server(
    toy_server: Any, run_rlvr: Callable[..., str], tmp_path: Path
) -> None:
    """Two letters, answered by their own: from chance to nearly always right."""
    keys = ("toy.letters=ab", "train.problems=2", "sampler.group_size=32", "train.lr=1e-2")
    words = (*RUN, "--steps", "16", "--out", str(tmp_path / "run"), *KEYS, *keys)
    run_rlvr(toy_server.environment, *words)
    found = rewards(tmp_path / "run")
    assert len(found) == 16
    assert found[0] < 0.3
    assert sum(found[-3:]) / 3 > 0.9


def test_grpo_learns_on_the_independent_server(
    independent: Mapping[str, str], run_rlvr: Callable[..., str], tmp_path: Path
) -> None:
    """One letter among 259 tokens; this server averages losses, which Adam does not notice."""
    keys = ("toy.letters=a", "toy.length=4", "train.problems=1", "sampler.group_size=16")
    more = (
        "train.lr=2e-2",
        "tinker.snapshots=false",
        "tinker.timeout_s=240",
        "tinker.context_length=2048",
    )
    words = (*RUN, "--steps", "30", "--out", str(tmp_path / "run"), *KEYS, *keys, *more)
    run_rlvr(dict(independent), *words)
    found = rewards(tmp_path / "run")
    assert found[0] < 0.2
    assert sum(found[-3:]) / 3 > 0.9


@pytest.mark.thorough
def test_run_survives_the_servers_death(
    serving: Callable[..., AbstractContextManager[Any]], toy_spec: str, tmp_path: Path
) -> None:
    """Killed between two steps and started again on its state, the server finds the run going."""
    port, state, run = free_port(), tmp_path / "state", tmp_path / "run"
    keys = ("toy.letters=ab", "train.problems=2", "sampler.group_size=8", "train.lr=1e-2")
    words = (*RUN, "--steps", "8", "--out", str(run), *KEYS, *keys, "tinker.timeout_s=240")
    with serving(toy_spec, state, port) as first:
        process = _start(first.environment, words)
        _wait_until(lambda: len(_steps(run)) >= 3, process)
        first.kill()
    with serving(toy_spec, state, port):
        said = "".join(process.communicate(timeout=500))
    assert process.returncode == 0, said[-4000:]
    assert _steps(run) == list(range(1, 9))


@pytest.mark.timeout(600)
def test_run_survives_the_independent_servers_death(
    testbed: Callable[..., AbstractContextManager[Any]], tmp_path: Path
) -> None:
    """The same of a server that somebody else wrote, with its engine, on its own database."""
    port, state, run = free_port(), tmp_path / "state", tmp_path / "run"
    state.mkdir()
    keys = ("toy.letters=a", "toy.length=4", "train.problems=1", "sampler.group_size=16")
    more = ("tinker.snapshots=false", "tinker.timeout_s=120", "tinker.context_length=2048")
    words = (*RUN, "--steps", "6", "--out", str(run), *KEYS, *keys, *more)
    with testbed(state, port) as first:
        process = _start(first.environment, words)
        _wait_until(lambda: len(_steps(run)) >= 3, process)
        first.kill()
    with testbed(state, port):
        said = "".join(process.communicate(timeout=500))
    assert process.returncode == 0, said[-4000:]
    assert "service_lost" in said
    assert _steps(run) == list(range(1, 7))


def _start(environment: Mapping[str, str], words: Sequence[str]) -> Started:
    return start_rlvr(*words, env={**os.environ, **environment})


def _steps(run: Path) -> list[int]:
    file = run / "metrics.jsonl"
    lines = file.read_text().splitlines() if file.is_file() else []
    found = [json.loads(line) for line in lines if line.endswith("}")]
    return [line["step"] for line in found if "reward/mean" in line]


def _wait_until(happened: Callable[[], bool], process: Started) -> None:
    while not happened():
        if process.poll() is not None:
            said = "".join(process.communicate())
            pytest.fail(f"the run ended before its server did:\n{said[-4000:]}")
        time.sleep(0.1)
