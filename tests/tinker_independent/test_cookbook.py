"""tinker-cookbook's own loops, on our tasks and our server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed")

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]


def cookbook(environment: Mapping[str, str], log: Path, **fields: Any) -> list[dict[str, Any]]:
    """One of the cookbook's loops in a process of its own; gives its metrics, a line a step."""
    words = [
        f"{name}={value}" for name, value in {"log_path": log, "lora_rank": 8, **fields}.items()
    ]
    done = subprocess.run(
        [sys.executable, "-m", "rlvr_tinker_cookbook.train", *words],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=580,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    lines = [json.loads(line) for line in (log / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if "env/all/reward/total" in line]


def toy(server: Any, steps: int) -> dict[str, Any]:
    return {
        "plugin": "toy",
        "model_name": server.tokenizer,
        "options": "toy.letters=a",
        "batch_size": 2,
        "group_size": 32,
        "max_tokens": 4,
        "learning_rate": 5e-3,
        "steps": steps,
    }


@pytest.fixture(scope="session")
def taught(toy_server: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """The cookbook's RL run on the toy, made once: its metrics, and where it logged."""
    log = tmp_path_factory.mktemp("taught") / "log"
    return cookbook(toy_server.environment, log, **toy(toy_server, 16)), log


def test_rl_learns_our_toy(taught: tuple[Any, Path]) -> None:
    """`tinker_cookbook.rl.train` solves our toy task on our server."""
    found = [step["env/all/reward/total"] for step in taught[0]]
    assert len(found) == 16
    assert found[0] < 0.3
    assert sum(found[-3:]) / 3 > 0.9


def test_distillation_learns_from_a_teacher(
    taught: tuple[Any, Path], toy_server: Any, tmp_path: Path
) -> None:
    """`tinker_cookbook.distillation.train_on_policy`: the teacher's answers, from its logprobs."""
    saved = json.loads((taught[1] / "checkpoints.jsonl").read_text().splitlines()[-1])
    teacher = {"teacher": toy_server.tokenizer, "teacher_path": saved["sampler_path"]}
    steps = cookbook(toy_server.environment, tmp_path / "log", **toy(toy_server, 16), **teacher)
    kl = [step["teacher_kl"] for step in steps]
    assert len(kl) == 16
    assert sum(kl[-3:]) / 3 < 0.25 * kl[0]


@pytest.mark.parametrize(
    ("plugin", "distribution", "max_tokens", "tool"),
    [("cvdp", "rlvr_cvdp", 280, "iverilog"), ("chess", "rlvr_chess", 96, "")],
)
def test_rl_runs_on_our_domains(
    serve: Callable[..., Any],
    tmp_path: Path,
    plugin: str,
    distribution: str,
    max_tokens: int,
    tool: str,
) -> None:
    """A few steps on CVDP and chess: rewards are verdicts, and no verification failed to run."""
    starter = pytest.importorskip(f"{distribution}.starter.model_path", reason="not installed")
    if tool and shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    server = serve(starter.starter_model())
    steps = cookbook(
        server.environment,
        tmp_path / "log",
        plugin=plugin,
        model_name=server.tokenizer,
        batch_size=2,
        group_size=4,
        steps=2,
        learning_rate=1e-4,
        max_tokens=max_tokens,
    )
    assert len(steps) == 2
    for step in steps:
        assert step["env/all/failed"] == 0.0
        assert 0.0 <= step["env/all/solved"] <= 1.0
        assert abs(step["optim/kl_sample_train_v1"]) < 1e-3


def test_our_run_trains_on_the_cookbooks_environments(
    serve: Callable[..., Any], run_rlvr: Callable[..., str], tmp_path: Path
) -> None:
    """`--plugin cookbook --backend tinker`: its prompts to our server, its rewards to our run."""
    server = serve("gpt2:new?layers=1&width=32&positions=512")
    args = {
        "batch_size": 2,
        "model_name_for_tokenizer": server.tokenizer,
        "renderer_name": "role_colon",
        "n_batches": 2,
        "group_size": 1,
    }
    words = (
        *("run", "--plugin", "cookbook", "--algo", "grpo", "--backend", "tinker", "--steps", "2"),
        *("--out", str(tmp_path / "run"), "sampler.max_tokens=12", "sampler.group_size=4"),
        *("train.problems=2", "eval.samples=0", "tinker.rank=4"),
        "cookbook.builder=tinker_cookbook.recipes.math_rl.arithmetic_env:ArithmeticDatasetBuilder",
        "cookbook.args=" + ",".join(f"{name}={value}" for name, value in args.items()),
    )

    run_rlvr(server.environment, *words)

    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    steps = [line for line in map(json.loads, lines) if "reward/mean" in line]
    assert [step["step"] for step in steps] == [1, 2]
    for step in steps:
        # the environment pays for right sums, and takes a little for answers without a number
        assert -0.1 - 1e-6 <= step["reward/mean"] <= 1.0
        assert step["verify/failed"] == 0
        assert step["parity/max"] < 1e-3
    samples = (tmp_path / "run").rglob("*.jsonl")
    assert any("What is" in file.read_text() for file in samples)
