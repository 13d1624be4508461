"""Wheels of every distribution, and environments that hold only what is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECTS = [
    tomllib.loads(path.read_text("utf-8"))["project"] | {"folder": path.parent}
    for pattern in ("pyproject.toml", "plugins/*/pyproject.toml", "rlvr-*/pyproject.toml",
                    "examples/*/pyproject.toml")
    for path in sorted(ROOT.glob(pattern))
]  # fmt: skip
DISTRIBUTIONS: dict[str, Path] = {project["name"]: project["folder"] for project in PROJECTS}
# By its record: who asks a finder for pip gets no setuptools later, which compilers import.
PIP = Path(str(distribution("pip").locate_file("pip")))
"""The package; its runner runs it with another Python, which finds nothing else of this one."""


class Venv:
    """A virtual environment of its own; commands run in it see no other packages."""

    def __init__(self, path: Path, python: str = sys.executable) -> None:
        self.path = path
        subprocess.run([python, "-m", "venv", "--without-pip", path], check=True, timeout=240)

    def run(
        self, *command: str, cwd: Path, env: Mapping[str, str] | None = None, timeout_s: float = 300
    ) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment's `bin`, without the paths of the test's own Python."""
        program = self.path / "bin" / command[0]
        clean = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PYTHON", "PYTEST", "COVERAGE", "RLVR_PLUGINS"))
        }
        return subprocess.run(
            [str(program), *command[1:]],
            cwd=cwd,
            env={**clean, **(env or {})},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def install(self, *requirements: str, cwd: Path) -> None:
        """Install with the pip of this Python: to give each its own takes ten seconds."""
        done = subprocess.run(
            [str(self.path / "bin" / "python"), str(PIP / "__pip-runner__.py"), "install",
             "--quiet", "--no-input", "--no-compile", "--disable-pip-version-check", "--retries=0",
             *requirements],
            cwd=cwd, capture_output=True, text=True, timeout=540, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr

    def modules(self, cwd: Path) -> set[str]:
        """Names of the distributions that are installed, lower case."""
        code = (
            "from importlib.metadata import distributions\n"
            "print('\\n'.join(d.metadata['Name'].lower() for d in distributions()))"
        )
        return set(self.run("python", "-c", code, cwd=cwd).stdout.split())


def skip_without_index(folder: Path) -> None:
    """Skips, or fails on a build server, where no package index can be reached."""
    probe = subprocess.run(
        [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--retries=0",
         "--disable-pip-version-check", "--dest", str(folder), "attrs"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    if probe.returncode:
        reason = f"no package index can be reached: {probe.stderr.strip().splitlines()[-1]}"
        if os.environ.get("RLVR_REQUIRE_TOOLS") == "1":
            pytest.fail(f"{reason} (RLVR_REQUIRE_TOOLS=1, so this is a failure)", pytrace=False)
        pytest.skip(reason)


BUILD = """
import importlib, json, os, sys
for folder, backend in json.loads(sys.argv[2]).items():
    os.chdir(folder)  # as PEP 517 asks; pip would start three processes for each
    importlib.import_module(backend).build_wheel(sys.argv[1])
"""


def _backend(folder: Path) -> str:
    text = (folder / "pyproject.toml").read_text("utf-8")
    return str(tomllib.loads(text)["build-system"]["build-backend"])


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution, built from the working tree by its own build backend."""
    pytest.importorskip("hatchling", reason="wheels are built with hatchling")
    folder = tmp_path_factory.mktemp("wheels")
    folders = {str(at): _backend(at) for at in DISTRIBUTIONS.values()}
    built_by = [sys.executable, "-c", BUILD, str(folder), json.dumps(folders)]
    subprocess.run(built_by, check=True, timeout=540)
    built = {}
    for name in DISTRIBUTIONS:
        (built[name],) = folder.glob(f"{name.replace('-', '_')}-[0-9]*.whl")
    return built


BORROWED = (
    "editables",
    "hatchling",
    "rlvr[plot,testing]",
    "rlvr-torch",
    "rlvr-algos",
    "rlvr-trackers[tensorboard]",
)


@pytest.fixture(scope="session")
def borrowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    What a few distributions need, for PYTHONPATH: nothing is fetched.

    Of this environment's packages, without rlvr's and pip's; pip and each command of rlvr read the
    metadata of all that they find.
    """
    folder = tmp_path_factory.mktemp("borrowed")
    pending, seen, names = [*BORROWED], set[str](), set[str]()
    while pending:
        if (line := pending.pop()) not in seen and (need := Requirement(line)).name != "pip":
            seen.add(line)
            try:
                found = distribution(need.name)
            except PackageNotFoundError:  # an extra's that nobody installed
                continue
            if not need.name.startswith("rlvr"):
                names |= {file.parts[0] for file in found.files or ()}
            pending += [
                text for text in found.requires or ()
                if (marker := Requirement(text).marker) is None
                or any(marker.evaluate({"extra": extra}) for extra in ("", *need.extras))
            ]  # fmt: skip
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.name in names and not path.name.startswith("pip"):
            (folder / path.name).symlink_to(path)
    return folder


@pytest.fixture(scope="module")
def make_venv(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Venv]:
    """Make a venv with the given requirements and nothing else."""

    def make(*requirements: str, python: str = sys.executable) -> Venv:
        folder = tmp_path_factory.mktemp("env")
        venv = Venv(folder / "venv", python)
        try:
            venv.install(*requirements, cwd=folder)
        except AssertionError:
            skip_without_index(folder)
            raise
        return venv

    return make
