"""All trajectories of some files, in order, with the records that could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from rlvr import UnknownNameError
from rlvr_sad.sessions.prepare import prepare
from rlvr_sad.sessions.record import MAX_RECORD, Rejected
from rlvr_sad.trajectory import AgentTrajectory

log = structlog.get_logger(__name__)

SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj", ".yaml", ".yml", ".txt", ".log"})


def trajectories_of(
    paths: Sequence[Path], *, format_name: str = "", limit: int = MAX_RECORD
) -> Iterator[AgentTrajectory | Rejected]:
    """
    Trajectories and refusals of several files, in order.

    Raises:
        ConfigError: A file cannot be opened.
    """
    for found in prepare(paths, format_name=format_name, limit=limit):
        yield found if isinstance(found, Rejected) else found.trajectory


def files_of(paths: Sequence[Path]) -> list[Path]:
    """
    The files themselves; of a folder those that may hold trajectories, sorted; others are said.

    Raises:
        UnknownNameError: There is no such file, or a folder holds none.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            files = [p for p in sorted(path.rglob("*")) if p.is_file() and p.name[0] != "."]
            inside = [p for p in files if p.suffix.lower() in SUFFIXES]
            others = [str(p.relative_to(path)) for p in files if p.suffix.lower() not in SUFFIXES]
            if others:
                log.warning(
                    "files_passed_over",
                    folder=str(path),
                    files=len(others),
                    such_as=others[:3],
                    read=", ".join(sorted(SUFFIXES)),
                )
            if not inside:
                raise UnknownNameError(
                    f"trajectories in {path} were asked for.",
                    "it holds no file that could have any",
                    f"files end in {', '.join(sorted(SUFFIXES))}",
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UnknownNameError(
                f"{path} was to be read.", "there is no such file", "check the path"
            )
    return found
