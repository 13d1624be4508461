"""Runs on disk, finished or not, as `rlvr runs` reads them: damage costs a line, not the run."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.errors import ConfigError, UnknownNameError, explain
from rlvr.nearest import did_you_mean

DEFAULT_DIRECTORY = "runs"


@frozen(kw_only=True)
class Recorded:
    """
    What a run has written so far.

    Attributes:
        path: Its directory.
        record: `run.json`.
        metrics: The objects of `metrics.jsonl`, one a finished step.
        evaluations: Those of `eval.jsonl`.
    """

    path: Path
    record: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]

    @property
    def id(self) -> str:
        """The run's name."""
        return str(self.record.get("id", self.path.name))


def locate(name: str) -> Path:
    """
    The directory of a run, by its path or by its name below `runs/`.

    Raises:
        UnknownNameError: There is no `run.json` in either.
    """
    for path in (Path(name), Path(DEFAULT_DIRECTORY) / name):
        if (path / "run.json").is_file():
            return path
    known = [path.parent.name for path in Path(DEFAULT_DIRECTORY).glob("*/run.json")]
    raise UnknownNameError(
        explain(
            f"no run {name!r}: no run.json there.", did_you_mean(name, known), "try: rlvr runs list"
        )
    )


def read_run(path: Path) -> Recorded:
    """
    All that a run has written; unreadable lines are named on standard error.

    Raises:
        ConfigError: Its `run.json` cannot be read.
    """
    return Recorded(
        path=path,
        record=_read_record(path),
        metrics=_read_lines(path / "metrics.jsonl"),
        evaluations=_read_lines(path / "eval.jsonl"),
    )


def _read_record(path: Path) -> dict[str, Any]:
    try:
        record = json.loads((path / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(
            explain(f"{path / 'run.json'} cannot be read", f"found: {error}")
        ) from error
    if not isinstance(record, dict):
        raise ConfigError(f"{path / 'run.json'} holds no object")
    return record


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    records = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if isinstance(record, dict):
            records.append(record)
        else:
            print(f"rlvr: {path}: line {number} is no JSON object", file=sys.stderr)
    return records
