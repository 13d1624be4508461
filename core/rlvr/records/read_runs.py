"""Read runs from disk for `rlvr runs`, finished or not: damaged lines are named and left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.errors import ConfigError, UnknownNameError
from rlvr.records.json_lines import object_in, read_lines
from rlvr.records.owner import is_running
from rlvr.suggest import did_you_mean

DEFAULT_DIRECTORY = "runs"
STOPPED = "stopped"
"""Status of a run that was killed, or whose machine went down: it could not write how it ended."""


@frozen(kw_only=True)
class RunRecord:
    """
    The files of a run so far.

    Attributes:
        path: Its directory.
        record: `run.json`; its `status` is "stopped" where that says "running" and no process runs.
        metrics: The objects of `metrics.jsonl`, one a finished step.
        evaluations: The objects of `eval.jsonl`.
        opinions: Second opinions on answers called right, the objects of `opinions.jsonl`.
    """

    path: Path
    record: dict[str, Any]
    metrics: list[dict[str, Any]]
    evaluations: list[dict[str, Any]]
    opinions: list[dict[str, Any]] = field(factory=list)

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
        f"no run {name!r}: no run.json there.", did_you_mean(name, known), "try: rlvr runs list"
    )


def read_run(path: Path) -> RunRecord:
    """
    All that a run has written; unreadable lines are named on standard error.

    Raises:
        ConfigError: Its `run.json` cannot be read.
    """
    try:
        record = object_in(path / "run.json")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path / 'run.json'} cannot be read", f"found: {error}") from error
    if record.get("status") == "running" and not is_running(path, record.get("pid")):
        record = {**record, "status": STOPPED}
    return RunRecord(
        path=path,
        record=record,
        metrics=read_lines(path / "metrics.jsonl").named(),
        evaluations=read_lines(path / "eval.jsonl").named(),
        opinions=read_lines(path / "opinions.jsonl").named(),
    )
