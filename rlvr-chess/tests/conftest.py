"""Small data sets written by hand, and tasks over them. The engine's fixture comes with them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr import BuildContext
from rlvr_chess.config import ChessConfig
from rlvr_chess.task import ChessTask

Write = Callable[..., Path]
MakeTask = Callable[..., ChessTask]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file of lines (texts, or rows that become JSON); gives its path."""

    def written(name: str, *lines: str | dict[str, Any]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return path

    return written


@pytest.fixture
def make_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> MakeTask:
    """The task over a file or a folder, with options; tables are cached beside the test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def made(dataset: Path | None, **options: Any) -> ChessTask:
        return ChessTask(ChessConfig(**options), BuildContext(dataset=dataset))

    return made
