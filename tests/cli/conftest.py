"""The command line in a process of its own, as a person uses it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

import pytest
from rlvr_process import run_rlvr

from rlvr.cli.main import main
from tests.conftest import LEAN, PluginSite

Done = subprocess.CompletedProcess[str]


class CallIn(Protocol):
    """Gives a way to call `rlvr` in a folder."""

    def __call__(self, folder: Path) -> Callable[..., Done]: ...


def _call_in(folder: Path) -> Callable[..., Done]:
    def call(*words: str, env: Mapping[str, str] | None = None, timeout_s: float = 240) -> Done:
        own = {"RLVR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
        variables = {**os.environ, **LEAN, **own, **(env or {})}
        return run_rlvr(*words, cwd=folder, env=variables, timeout_s=timeout_s)

    return call


@pytest.fixture
def rlvr(tmp_path: Path) -> Callable[..., Done]:
    """Call `rlvr` in `tmp_path` with a cache of its own; gives back code, output and errors."""
    return _call_in(tmp_path)


@pytest.fixture(scope="session")
def rlvr_in() -> CallIn:
    """The same in a folder of one's choice: for what several tests of a file look at."""
    return _call_in


@pytest.fixture(scope="session")
def one_step(rlvr_in: CallIn, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one step."""
    for name in ("rlvr_torch", "rlvr_algos"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    folder = tmp_path_factory.mktemp("one")
    done = rlvr_in(folder)("run", "--plugin", "toy", "--steps", "1", "--out", "r", "eval.samples=0")
    assert done.returncode == 0, done.stderr
    return folder / "r"


@pytest.fixture
def begun(one_step: Path, tmp_path: Path) -> Path:
    """`r` in this test's folder: a run of one step."""
    return Path(shutil.copytree(one_step, tmp_path / "r"))


@pytest.fixture
def rlvr_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Call `rlvr` in `tmp_path`, in this process; gives back its code and what it said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in LEAN.items():
        monkeypatch.setenv(name, value)

    def call(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        return code, *capfd.readouterr()

    return call


@pytest.fixture
def site_here(
    importable_site: PluginSite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> PluginSite:
    """A site on the import path of this process, which is in its empty folder to run in."""
    monkeypatch.chdir(importable_site.home)
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    for name, value in LEAN.items():
        monkeypatch.setenv(name, value)
    return importable_site


def toy_with_presets(**presets: dict[str, object]) -> str:
    """A plugin whose task `brief` is the toy with these presets."""
    return f"""
        from rlvr import TaskSpec, hookimpl

        RLVR_API = 1

        @hookimpl
        def rlvr_tasks():
            yield TaskSpec(
                name="brief", target="rlvr.builtin.toy:ToyTask", reward="toy", presets={presets!r}
            )
    """
