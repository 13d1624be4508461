"""Read runs from disk, finished or not: what they wrote, and the model that they trained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.errors import CheckpointError, ConfigError, UnknownNameError
from rlvr.install import rlvr_command
from rlvr.records.json_lines import object_in, read_lines
from rlvr.records.manifest import MANIFEST, check
from rlvr.records.owner import is_running
from rlvr.records.run_directory import RunDir
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


@frozen
class Trained:
    """A model that a run trained; `checkpoint` is the folder's name, "" the last one."""

    run: Path
    checkpoint: str = ""


def trained_at(path: Path) -> Trained:
    """The model that a path names: `RUN`, or a checkpoint, `RUN/checkpoints/NAME[/model]`."""
    path = Path(os.path.expanduser(path))  # Path's raises where there is no such user
    if path.name == "model" and path.parent.parent.name == "checkpoints":
        path = path.parent
    if path.parent.name == "checkpoints":
        return Trained(path.parent.parent, path.name)
    return Trained(path)


def checkpoints_at(trained: Trained) -> list[Path]:
    """The folder of the checkpoint that is named, or of all that are there, by step."""
    folder = trained.run / "checkpoints"
    if trained.checkpoint:
        return [folder / trained.checkpoint]
    steps = {int(n): path for path in folder.glob("step-*") if (n := path.name[5:]).isdecimal()}
    return [steps[step] for step in sorted(steps)]


def is_run(model: str) -> bool:
    """Whether a model is named by the run that trained it: its directory, or a checkpoint in it."""
    return os.path.isfile(trained_at(Path(model)).run / "run.json")


def seen_from_here(run: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """
    A run's options, with relative paths that lead from here where they led from where it began.

    What does not exist below this folder is looked for below each that the run lies in. A path may
    follow a scheme, `gpt2:PATH`.
    """
    return {
        key: _led(run, value) if isinstance(value, str) else value for key, value in config.items()
    }


def _led(run: Path, value: str) -> str:
    scheme, colon, path = value.rpartition(":")
    if "/" not in path or os.path.isabs(path) or os.path.exists(path):
        return value
    there = next(
        (p / path for p in Path(os.path.realpath(run)).parents if (p / path).exists()), None
    )
    return value if there is None else f"{scheme}{colon}{there}"


def weights_of(model: str) -> str:
    """
    A model spec with a run replaced by the weights of its last checkpoint, or of the named one.

    That is `SCHEME:FOLDER`, by the scheme of the model that the run started from.

    Raises:
        CheckpointError: The run has no such checkpoint, or it cannot be trusted.
        ConfigError: Its `run.json` cannot be read, or names no scheme.
    """
    if not is_run(model):
        return model
    trained = trained_at(Path(model))
    record = RunDir.open(trained.run).read_run()
    saved = [place for place in checkpoints_at(trained) if os.path.lexists(place)]
    if not saved:
        raise without_checkpoint(trained)
    manifest = saved[-1] / MANIFEST
    kept_by = str(record["config"].get("run.checkpointer", "file")).rpartition("/")[2]
    if kept_by == "file" or manifest.is_file():  # others may keep no manifest
        there = manifest.stat() if manifest.is_file() else None
        _check_once(saved[-1], there and (there.st_dev, there.st_ino, there.st_mtime_ns))
    weights = saved[-1] / "model"
    scheme, colon, _ = str(record.get("model_spec") or record["config"]["run.model"]).partition(":")
    if not colon:
        raise ConfigError(
            f"the model of the run {trained.run} was asked for.",
            f"found: no kind of model in run.json, but {scheme!r}",
            f"write it with its kind: SCHEME:{weights}",
        )
    return f"{scheme}:{weights}"


@cache
def _check_once(checkpoint: Path, manifest: tuple[int, ...] | None) -> None:
    """Compare a checkpoint with its manifest, once in a process: its files may be large."""
    check(checkpoint)


def without_checkpoint(trained: Trained) -> CheckpointError:
    """The error of a run whose model was not saved, or of a checkpoint that is not there."""
    return CheckpointError(
        f"the model of the run {trained.run} was asked for.",
        f"found: no checkpoint {trained.checkpoint}".rstrip() + " of it",
        "name the run for its last one; checkpoint.keep keeps more"
        if trained.checkpoint
        else f"go on with the run: {rlvr_command('run', '--resume', str(trained.run))}",
    )


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
        f"no run {name!r}: no run.json there.",
        did_you_mean(Path(name).name, known),
        "try: rlvr runs list",
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
