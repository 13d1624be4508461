"""The command line in a process of its own, as a person uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
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

    def call(*words: str, stdin: str = "", **environ: str) -> Done:
        argv, variables = command(tmp_path, *words, **environ)
        if not stdin:
            return run_rlvr(*argv[3:], cwd=tmp_path, env=variables)
        return subprocess.run(
            argv,
            cwd=tmp_path,
            env=variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )

    return call
