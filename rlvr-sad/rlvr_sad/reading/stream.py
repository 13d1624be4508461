"""All trajectories of some files, in order, with the records that could not be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from rlvr.errors import ConfigError, UnknownNameError, explain
from rlvr_sad.reading.files import records_of
from rlvr_sad.reading.raw import MAX_RECORD, Raw, Rejected
from rlvr_sad.reading.read import Outcome, is_claimed, read_record
from rlvr_sad.trajectory import AgentTrajectory

log = structlog.get_logger(__name__)

SUFFIXES = frozenset({".json", ".jsonl", ".ndjson", ".traj", ".yaml", ".yml", ".txt", ".log"})


def outcomes_of(path: Path, *, format_name: str = "", limit: int = MAX_RECORD) -> Iterator[Outcome]:
    """
    What became of each record of a file, in order.

    Raises:
        ConfigError: The file cannot be opened.
    """
    for found in raws_of(path, limit=limit):
        if isinstance(found, Rejected):
            yield Outcome(rejected=found)
        else:
            yield read_record(found, str(path), format_name)


def raws_of(path: Path, *, limit: int = MAX_RECORD) -> Iterator[Raw | Rejected]:
    """
    The records of a file as they stand in it.

    Raises:
        ConfigError: The file cannot be opened.
    """
    try:
        yield from records_of(path, is_claimed, limit=limit)
    except OSError as error:
        raise ConfigError(
            explain(f"{path} was to be read.", f"found: {error.strerror}", "give a readable file")
        ) from error


def trajectories_of(
    paths: Sequence[Path], *, format_name: str = "", limit: int = MAX_RECORD
) -> Iterator[AgentTrajectory | Rejected]:
    """Trajectories and refusals of several files, in order."""
    for path in paths:
        for outcome in outcomes_of(path, format_name=format_name, limit=limit):
            if outcome.rejected is not None:
                yield outcome.rejected
            yield from outcome.trajectories


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
            if others := [
                str(p.relative_to(path)) for p in files if p.suffix.lower() not in SUFFIXES
            ]:
                log.warning(
                    "files_passed_over",
                    folder=str(path),
                    files=len(others),
                    such_as=others[:3],
                    read=", ".join(sorted(SUFFIXES)),
                )
            if not inside:
                raise UnknownNameError(
                    explain(
                        f"trajectories in {path} were asked for.",
                        "it holds no file that could have any",
                        f"files end in {', '.join(sorted(SUFFIXES))}",
                    )
                )
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UnknownNameError(
                explain(f"{path} was to be read.", "there is no such file", "check the path")
            )
    return found
