"""The command line in a process of its own, as a person uses it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Done = subprocess.CompletedProcess[str]


@pytest.fixture
def rlvr(tmp_path: Path) -> Callable[..., Done]:
    """Call `rlvr` in `tmp_path` with a cache of its own; gives back code, output and errors."""

    def call(*words: str, env: Mapping[str, str] | None = None, timeout_s: float = 240) -> Done:
        return subprocess.run(
            [sys.executable, "-m", "rlvr.cli.main", *words],
            cwd=tmp_path,
            env={
                **os.environ,
                "RLVR_CACHE_DIR": str(tmp_path / "cache"),
                "OMP_NUM_THREADS": "1",
                **(env or {}),
            },
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return call
