"""The command line as a person uses it, in a process of its own where a test asks for one."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_here import rlvr_here
from rlvr_process import run_rlvr

Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]


def command(folder: Path, *words: str, **environ: str) -> tuple[list[str], dict[str, str]]:
    """Words and environment of `rlvr ...` with a cache of its own in `folder`, one thread."""
    own = {"RLVR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RLVR_")}
    return [sys.executable, "-m", "rlvr.cli.main", *words], {**kept, **own, **environ}


@pytest.fixture
def rlvr(tmp_path: Path) -> Call:
    """Call `rlvr` in `tmp_path`; keywords are added to its environment."""

    def call(*words: str, forks: bool = False, **environ: str) -> Done:
        argv, variables = command(tmp_path, *words, **environ)
        asked = run_rlvr if forks else rlvr_here
        return asked(*argv[3:], cwd=tmp_path, env=variables)

    return call
