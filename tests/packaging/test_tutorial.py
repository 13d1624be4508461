"""The example plugin is a real third-party package: it needs what it declares, and no more."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.thorough, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "rlvr-countdown"


@pytest.fixture(scope="module")
def venv(wheels: dict[str, Path], make_venv: Callable[..., Any]) -> Any:
    """The example with its declared needs (and its `testing` extra), all from wheels."""
    return make_venv(f"{wheels['rlvr']}[testing]", f"{wheels['rlvr-countdown']}[testing]")


def test_its_own_tests_pass(venv: Any, tmp_path: Path) -> None:
    """The contract kit and the plugin's tests pass against the installed package."""
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    shutil.copy(EXAMPLE / "pyproject.toml", tmp_path)

    done = venv.run("python", "-m", "pytest", "-q", "-p", "no:cacheprovider", cwd=tmp_path)

    assert done.returncode == 0, done.stdout + done.stderr
    assert not venv.modules(tmp_path) & {"torch", "rlvr-cvdp", "rlvr-algos", "rlvr-torch"}


def test_it_is_listed(venv: Any, tmp_path: Path) -> None:
    """`rlvr plugins list` shows it as active, with its task and its reward."""
    done = venv.run("rlvr", "plugins", "list", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (listed,) = [p for p in json.loads(done.stdout) if p["name"] == "countdown"]
    assert listed["status"] == "active", listed
    assert listed["distribution"] == "rlvr-countdown"
    assert {"tasks", "rewards"} <= set(listed["offers"])


def test_it_scores(venv: Any, tmp_path: Path) -> None:
    """`rlvr score --golden` gives the full reward to every embedded puzzle."""
    done = venv.run(
        "rlvr", "score", "--plugin", "countdown", "--golden", "--out", "verdicts.jsonl",
        cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert len(verdicts) == 48
    assert {v["reward"] for v in verdicts} == {1.0}


def test_answers_earn_what_they_are_worth(venv: Any, tmp_path: Path) -> None:
    """The right answer earns 1; the one with a foreign number earns the format's share."""
    answers = tmp_path / "answers.jsonl"
    lines = [
        '{"id": "countdown-001", "completion": "Easy: <answer>(11 - 5) * 10</answer>"}',
        '{"id": "countdown-004", "completion": "<answer>4 * 13</answer>"}',
    ]
    answers.write_text("\n".join(lines) + "\n", encoding="utf-8")

    done = venv.run(
        "rlvr", "score", "--plugin", "countdown", "--completions", "answers.jsonl",
        "--out", "verdicts.jsonl", cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert [v["reward"] for v in verdicts] == [1.0, 0.1]


def test_training_with_it_names_what_to_install(venv: Any, tmp_path: Path) -> None:
    """Without an algorithm and a backend, `rlvr run` says which distributions bring them."""
    done = venv.run("rlvr", "run", "--plugin", "countdown", "--algo", "grpo", cwd=tmp_path)

    assert done.returncode == 3, done.stderr
    assert "rlvr-algos" in done.stderr
    assert "rlvr-torch" in done.stderr
