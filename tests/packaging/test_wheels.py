"""Any subset of the distributions installs with plain pip and does its part."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlvr.testing import require_tool

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "rlvr-cvdp" / "rlvr_cvdp" / "starter" / "problems.jsonl"


@pytest.fixture(scope="module")
def venv(wheels: dict[str, Path], make_venv: Callable[..., Any]) -> Any:
    """Only `rlvr` and `rlvr-cvdp`, as a person who grades would install them."""
    return make_venv(str(wheels["rlvr"]), str(wheels["rlvr-cvdp"]))


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        ("rlvr", "rlvr"),
        ("rlvr-chess", "rlvr_chess"),
        ("rlvr-cvdp", "rlvr_cvdp"),
        ("rlvr-sad", "rlvr_sad"),
        ("rlvr-algos", "rlvr_algos"),
        ("rlvr-distill", "rlvr_distill"),
        ("rlvr-rtx4090", "rlvr_rtx4090"),
        ("rlvr-servers", "rlvr_servers"),
        ("rlvr-tinker", "rlvr_tinker"),
        ("rlvr-tinker-cookbook", "rlvr_tinker_cookbook"),
        ("rlvr-tinker-server", "rlvr_tinker_server"),
        ("rlvr-torch", "rlvr_torch"),
        ("rlvr-trackers", "rlvr_trackers"),
        ("rlvr-countdown", "rlvr_countdown"),
    ],
)
def test_wheel_holds_its_package_only(
    wheels: dict[str, Path], distribution: str, package: str
) -> None:
    """A wheel has its own package and metadata: no tests, no neighbours, nothing at the top."""
    names = zipfile.ZipFile(wheels[distribution]).namelist()

    tops = {name.split("/")[0] for name in names}

    assert {top for top in tops if not top.endswith(".dist-info")} == {package}
    assert not [name for name in names if "/tests/" in name or "__pycache__" in name]
    assert f"{package}/plugin.py" in names or f"{package}/builtin/plugin.py" in names


def test_wheel_of_the_plugin_brings_its_data(wheels: dict[str, Path]) -> None:
    """Data that a plugin reads at run time travels in its wheel."""
    chess = zipfile.ZipFile(wheels["rlvr-chess"])
    assert "rlvr_chess/starter/positions.jsonl.gz" in chess.namelist()
    assert "rlvr_chess/starter/model/model.safetensors" in chess.namelist()
    assert "rlvr_chess/selfplay/openings.txt" in chess.namelist()
    cvdp = zipfile.ZipFile(wheels["rlvr-cvdp"]).namelist()
    assert "rlvr_cvdp/starter/problems.jsonl" in cvdp
    assert {
        name for name in cvdp if name.startswith("rlvr_cvdp/starter/") and name[-3:] == ".py"
    } == {
        "rlvr_cvdp/starter/__init__.py",
        "rlvr_cvdp/starter/model_path.py",
    }  # what makes problems and models is not needed to use them
    assert "rlvr_countdown/puzzles.jsonl" in zipfile.ZipFile(wheels["rlvr-countdown"]).namelist()


def test_grading_needs_no_torch(venv: Any, tmp_path: Path) -> None:
    """With rlvr and rlvr-cvdp alone, neither torch nor the training plugins are there."""
    installed = venv.modules(tmp_path)

    assert {"rlvr", "rlvr-cvdp"} <= installed
    assert not installed & {"torch", "transformers", "rlvr-algos", "rlvr-torch"}


def test_help_works(venv: Any, tmp_path: Path) -> None:
    """The command exists and answers."""
    done = venv.run("rlvr", "--help", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert "rlvr run --plugin" in done.stdout


def test_score_grades_references(venv: Any, tmp_path: Path) -> None:
    """`rlvr score --golden` runs the real harnesses, and every reference earns the full reward."""
    for tool in ("iverilog", "vvp", "bwrap"):
        require_tool(tool)
    dataset = tmp_path / "three.jsonl"
    with STARTER.open(encoding="utf-8") as rows:
        dataset.write_text("".join(islice(rows, 3)), encoding="utf-8")

    done = venv.run(
        "rlvr", "score", "--plugin", "cvdp", "--dataset", str(dataset), "--golden",
        "--out", "verdicts.jsonl", "verify.store=off", cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert [v["reward"] for v in verdicts] == [1.0, 1.0, 1.0], verdicts
    assert all(v["tests_passed"] == v["tests_total"] > 0 for v in verdicts), verdicts


def test_run_names_what_to_install(venv: Any, tmp_path: Path) -> None:
    """`rlvr run` names every missing distribution at once and exits 3."""
    done = venv.run("rlvr", "run", "--plugin", "cvdp", "--algo", "grpo", cwd=tmp_path)

    assert done.returncode == 3, done.stderr
    assert "rlvr-algos" in done.stderr
    assert "rlvr-torch" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr
