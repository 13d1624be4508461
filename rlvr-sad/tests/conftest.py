"""Files written by tests, and readers of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr_sad.sessions.prepare import trajectories_of
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.trajectory import AgentTrajectory

Write = Callable[..., Path]
Read = Callable[[Path], tuple[list[AgentTrajectory], list[Rejected]]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file: bytes and text as they are, other values as JSON; gives its path."""

    def written(name: str, content: Any) -> Path:
        path = tmp_path / name
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            path.write_text(text, encoding="utf-8", newline="")
        return path

    return written


@pytest.fixture
def read() -> Read:
    """All trajectories of a file, and all refused records."""

    def both(path: Path) -> tuple[list[AgentTrajectory], list[Rejected]]:
        found = list(trajectories_of([path]))
        return (
            [one for one in found if isinstance(one, AgentTrajectory)],
            [one for one in found if isinstance(one, Rejected)],
        )

    return both
