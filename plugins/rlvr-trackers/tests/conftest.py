"""Logs as a command sets them up, and a folder for trackio."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlvr import log


@pytest.fixture(autouse=True)
def _shown() -> None:
    log.setup()


@pytest.fixture
def trackio_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where trackio writes in this process: it reads TRACKIO_DIR when it is imported."""
    pytest.importorskip("trackio", reason="trackio is not installed")
    for name, module in list(sys.modules.items()):
        if name.startswith("trackio") and hasattr(module, "TRACKIO_DIR"):
            monkeypatch.setattr(module, "TRACKIO_DIR", tmp_path / "kept")
    return tmp_path / "kept"
