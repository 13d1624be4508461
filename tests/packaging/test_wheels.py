"""Any subset of the distributions installs with plain pip and does its part."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from collections.abc import Callable
from email import message_from_bytes
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from rlvr.testing import require_tool
from tests.packaging.conftest import Venv

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
STARTER = ROOT / "rlvr-cvdp" / "rlvr_cvdp" / "starter" / "problems.jsonl"


@pytest.fixture(scope="module")
def venv(wheels: dict[str, Path], make_venv: Callable[..., Any]) -> Any:
    """Only `rlvr` and `rlvr-cvdp`, as a person who grades would install them."""
    return make_venv(str(wheels["rlvr"]), str(wheels["rlvr-cvdp"]))


def test_wheels_hold_their_package_only(wheels: dict[str, Path]) -> None:
    """A wheel has its own package and metadata: no tests, no neighbours, nothing at the top."""
    for distribution, wheel in wheels.items():
        package = distribution.replace("-", "_")
        names = zipfile.ZipFile(wheel).namelist()
        tops = {name.split("/")[0] for name in names}
        assert {top for top in tops if not top.endswith(".dist-info")} == {package}
        assert not [name for name in names if "/tests/" in name or "__pycache__" in name], wheel
        assert f"{package}/plugin.py" in names or f"{package}/builtin/plugin.py" in names, wheel


def test_wheels_say_what_they_are(wheels: dict[str, Path]) -> None:
    """Licence, `py.typed`, classifiers, links: each has them; those of the examples need none."""
    texts = {"Apache-2.0": ROOT / "LICENSE", "GPL-3.0-or-later": ROOT / "rlvr-chess" / "LICENSE"}
    examples = {path.name for path in (ROOT / "examples").iterdir()}
    for distribution, wheel in wheels.items():
        if distribution in examples:
            continue
        archive = zipfile.ZipFile(wheel)
        info = f"{distribution.replace('-', '_')}-0.1.0.dist-info"
        about = message_from_bytes(archive.read(f"{info}/METADATA"))
        licence = archive.read(f"{info}/licenses/LICENSE")
        assert licence == texts[about["License-Expression"]].read_bytes(), distribution
        assert f"{distribution.replace('-', '_')}/py.typed" in archive.namelist()
        classifiers = about.get_all("Classifier", [])
        assert "Typing :: Typed" in classifiers, distribution
        assert "Programming Language :: Python :: 3.11" in classifiers, distribution
        assert about["Requires-Python"] == ">=3.11", distribution
        links = about.get_all("Project-URL", [])
        assert links, f"{distribution} links to nothing"
        assert all(", https://" in link for link in links), distribution
        assert about.get_payload(), f"{distribution} has no description"


def test_all_wheels_work_in_one_clean_environment(
    wheels: dict[str, Path], borrowed: Path, tmp_path: Path
) -> None:
    """Together they install without an index, and every plugin is active."""
    venv, site = Venv(tmp_path / "venv"), {"PYTHONPATH": str(borrowed)}
    venv.install("--no-deps", "--no-index", *map(str, wheels.values()), cwd=tmp_path)

    version = venv.run("rlvr", "--version", cwd=tmp_path, env=site)
    listed = venv.run("rlvr", "plugins", "list", "--json", cwd=tmp_path, env=site)

    assert version.stdout == "rlvr 0.1.0\n", version.stderr
    assert listed.returncode == 0, listed.stderr
    plugins = json.loads(listed.stdout)
    assert {p["distribution"] for p in plugins} == set(wheels)
    assert {p["status"] for p in plugins} == {"active"}, listed.stdout


def _interpreter(version: str) -> str:
    """Path of that Python; skips aloud, on a build server too, where the machine has none."""
    code = "import ensurepip, sys, venv; print(sys.executable)"
    environ = {**os.environ, "PYENV_VERSION": version}  # so that a shim of pyenv's is that one
    try:
        command = [f"python{version}", "-c", code]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    except FileNotFoundError:
        pytest.skip(f"python{version} is not on PATH, so nothing was shown of it")
    if done.returncode:
        pytest.skip(f"python{version} makes no environments: {done.stderr.strip()}")
    return done.stdout.strip()


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_another_python_will_do(
    version: str, wheels: dict[str, Path], make_venv: Callable[..., Any], tmp_path: Path
) -> None:
    """With what the core alone needs, every plugin is active, and one keeps its contracts."""
    venv = make_venv(f"{wheels['rlvr']}[testing]", python=_interpreter(version))
    (site,) = venv.path.glob("lib/*/site-packages")
    for name, wheel in wheels.items():
        if name != "rlvr":
            zipfile.ZipFile(wheel).extractall(site)  # which pip does for all of them above
    strict = {"PYTHONWARNINGS": "error"}  # what this Python is about to lose

    is_it = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != '{version}')"
    assert venv.run("python", "-c", is_it, cwd=tmp_path).returncode == 0
    listed = venv.run("rlvr", "plugins", "list", "--json", cwd=tmp_path, env=strict)
    assert {p["status"] for p in json.loads(listed.stdout)} == {"active"}, listed.stdout
    checked = venv.run("rlvr", "plugins", "check", "countdown", cwd=tmp_path, env=strict)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    scored = venv.run("rlvr", "score", "--plugin", "toy", "--golden", cwd=tmp_path, env=strict)
    assert scored.returncode == 0, scored.stderr
    assert "torch" not in venv.modules(tmp_path)


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


def test_score_grades_a_reference(venv: Any, tmp_path: Path) -> None:
    """`rlvr score --golden` runs the real harness, and the reference earns the full reward."""
    for tool in ("iverilog", "vvp", "bwrap"):
        require_tool(tool)
    dataset = tmp_path / "one.jsonl"
    with STARTER.open(encoding="utf-8") as rows:
        dataset.write_text("".join(islice(rows, 1)), encoding="utf-8")

    done = venv.run(
        "rlvr", "score", "--plugin", "cvdp", "--dataset", str(dataset), "--golden",
        "--out", "verdicts.jsonl", "verify.store=off", cwd=tmp_path,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    verdicts = [json.loads(line) for line in (tmp_path / "verdicts.jsonl").read_text().splitlines()]
    assert [v["reward"] for v in verdicts] == [1.0], verdicts
    assert all(v["tests_passed"] == v["tests_total"] > 0 for v in verdicts), verdicts


def test_run_names_what_to_install(venv: Any, tmp_path: Path) -> None:
    """`rlvr run` names every missing distribution at once and exits 3."""
    done = venv.run("rlvr", "run", "--plugin", "cvdp", "--algo", "grpo", cwd=tmp_path)

    assert done.returncode == 3, done.stderr
    assert "rlvr-algos" in done.stderr
    assert "rlvr-torch" in done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr
