"""The run directory: every file of a run and how it is written (docs/run-directory.md).

Whole files are written beside their place and renamed; lines are appended in one write.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs

from rlvr.errors import DISK_TROUBLE, CheckpointError, ConfigError, UnknownNameError
from rlvr.heartbeat import say
from rlvr.records.json_lines import object_in, read_lines
from rlvr.records.trajectories import trajectory_records
from rlvr.types import EvalReport, ScoredGroup

RECORDS = frozenset(
    {"run.json", "metrics.jsonl", "eval.jsonl", "trace.jsonl", "opinions.jsonl", "events.jsonl"}
    | {"trajectories", "trackers", "checkpoints", "curve.png", "traceback.txt", "owner.lock"}
)
"""Files and folders that a run writes: no command may put its results in their place."""

_ON_THE_SIDE = ("events.jsonl", "trace.jsonl")
"""Files that are worth nothing without a run."""


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace a file at once: readers see the old content or the new one, never a part."""
    path = Path(os.path.realpath(path))  # a link stays one, and leads to the new text
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_out(path: Path, content: str | bytes) -> None:
    """
    Write the results of a command to the file that `--out` names.

    Raises:
        CheckpointError: The disk is full or fails; a file that was there before is left as it was.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        raise CheckpointError(
            f"results were to be written to {path}.",
            f"found: {error.strerror}",
            "free space, or choose another disk with --out; verdicts are kept in the store",
        ) from error


def check_writable(path: Path) -> None:
    """
    Make sure, before the work is done, that a result file can be written.

    Raises:
        ConfigError: Its folder does not exist or may not be written, or what stands there is no
            regular file (a folder, a device): it could not be replaced at once.
    """
    if path.exists() and not path.is_file():
        raise ConfigError(
            f"results were to be written to {path}.",
            f"found: {'a folder' if path.is_dir() else 'no regular file'}",
            "choose another file with --out FILE",
        )
    target = Path(os.path.realpath(path))  # as `write_atomic`
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    asked = f"results were to be written to {path}."
    with _refusing(asked, "choose a file you may write with --out FILE"):
        beside.touch()
        beside.unlink()


@contextlib.contextmanager
def _refusing(asked: str, advice: str) -> Iterator[None]:
    """Tell what the operating system refuses as a mistake in the command's words."""
    try:
        yield
    except OSError as error:
        raise ConfigError(asked, f"found: {error.strerror or error}", advice) from error


@contextlib.contextmanager
def without_empty_parents(path: Path) -> Iterator[None]:
    """Remove in the end the folders above a path that were made within the block and are empty."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        yield
    finally:
        with contextlib.suppress(OSError):  # not empty, and so none of those above it
            for folder in missing:
                folder.rmdir()


class RunDir:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path) -> RunDir:
        """
        Make a fresh run directory, which the caller owns (`rlvr.records.owner`).

        Raises:
            ConfigError: It cannot be written, or holds a run already.
        """
        if (path / "run.json").exists():
            raise ConfigError(
                f"{path} holds a run already.",
                "found: run.json",
                f"continue it with --resume {shlex.quote(str(path))}, or choose another --out",
            )
        asked = f"the run directory {path} cannot be written."
        with _refusing(asked, "choose a folder you may write with --out DIR"):
            for folder in ("trajectories", "checkpoints"):
                (path / folder).mkdir(parents=True, exist_ok=True)
            probe = path / ".writable"
            probe.touch()
            probe.unlink()
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunDir:
        """
        An existing run directory.

        Raises:
            UnknownNameError: There is no run.json in it.
        """
        if not (path / "run.json").is_file():
            is_inside = (path.parent.parent / "run.json").is_file()
            raise UnknownNameError(
                f"no run at {path}.",
                "found: no run.json there",
                f"give the run itself: {path.parent.parent}"
                if is_inside
                else "list runs with: rlvr runs list",
            )
        return cls(path)

    def take_back(self) -> None:
        """Remove `run.json` of a run that was refused before it wrote anything besides."""
        with contextlib.suppress(OSError):
            folders = [self.path, self.path / "trajectories", self.path / "checkpoints"]
            names = {entry.name for folder in folders for entry in folder.iterdir()}
            if names <= {"run.json", "owner.lock", "trajectories", "checkpoints", *_ON_THE_SIDE}:
                (self.path / "run.json").unlink()

    def discard(self) -> None:
        """Remove the directory if no run has begun in it; files of others stay."""
        if (self.path / "run.json").exists():
            return
        for name in _ON_THE_SIDE:
            (self.path / name).unlink(missing_ok=True)
        for folder in (self.path / "trajectories", self.path / "checkpoints", self.path):
            with contextlib.suppress(OSError):  # not empty, so not ours alone
                folder.rmdir()

    @property
    def events_file(self) -> Path:
        """Structlog's JSON Lines."""
        return self.path / "events.jsonl"

    def read_run(self) -> dict[str, Any]:
        """
        The contents of `run.json`.

        Raises:
            ConfigError: It cannot be read, or lacks the options of the run.
        """
        path, do = self.path / "run.json", "choose another run: rlvr runs list"
        try:
            record = object_in(path)
            if not isinstance(record.get("config"), dict):
                raise ValueError('no object with "config"')
            if not any(str(key).startswith("run.") for key in record["config"]):
                raise ValueError('none of a run\'s options in "config"')
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read.", f"found: {error}", do) from error
        return record

    def write_run(self, record: Mapping[str, Any]) -> None:
        """Replace `run.json`."""
        write_atomic(self.path / "run.json", json.dumps(record, indent=2, sort_keys=False) + "\n")

    def update_run(self, **changes: Any) -> None:
        """Change some keys of `run.json`."""
        self.write_run({**self.read_run(), **changes})

    def append(self, name: str, *records: Mapping[str, Any]) -> None:
        """Append JSON lines to `name` in a single write."""
        lines = "".join(json.dumps(record) + "\n" for record in records)
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(lines)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        """The whole JSON lines of `name`; damaged ones are left out and named."""
        return read_lines(self.path / name, is_whole=True).named()

    def truncate_after(self, step: int) -> None:
        """Remove metrics, evaluations and trajectories past a step: the run writes them anew."""
        for name in ("trajectories", "checkpoints"):
            if not (self.path / name).is_dir():
                self._set_aside(name)
                (self.path / name).mkdir(parents=True)
        for name in ("metrics.jsonl", "eval.jsonl", "trace.jsonl", "opinions.jsonl"):
            found = read_lines(self.path / name, is_whole=True)
            kept = [r for r in found.named() if r["step"] <= step]
            if found.damage:
                self._set_aside(name)
            if (self.path / name).exists() or kept:
                write_atomic(self.path / name, "".join(json.dumps(r) + "\n" for r in kept))
        for path in self.trajectory_files():
            number = path.stem.rpartition("-")[2]
            if not number.isdecimal() or int(number) > step:
                self._set_aside(f"trajectories/{path.name}", keeps=not number.isdecimal())

    def _set_aside(self, name: str, *, keeps: bool = True) -> None:
        """Rename a damaged file, so that the run can write its own there; or remove it."""
        path = self.path / name
        if not keeps and path.is_file():
            path.unlink()
        elif path.exists() or path.is_symlink():
            numbers = ("", *(f"-{n}" for n in range(2, 1000)))
            names = (path.with_name(f"{path.name}.damaged{number}") for number in numbers)
            aside = next(name for name in names if not name.exists())
            path.rename(aside)
            say(f"rlvr: {path}: damaged; it is kept as {aside.name}")

    def write_trajectories(
        self, label: str, step: int, groups: Sequence[ScoredGroup], *, are_recorded: bool = False
    ) -> None:
        """
        Write `trajectories/LABEL-STEP.jsonl`: a line a trajectory, with its outcome.

        Trajectories that are recorded elsewhere are named only, without their content.
        """
        lines = [
            json.dumps(record) + "\n"
            for g in groups
            for record in trajectory_records(g, step, are_recorded=are_recorded)
        ]
        write_atomic(self.path / "trajectories" / f"{label}-{step:06d}.jsonl", "".join(lines))

    def trajectory_files(self) -> list[Path]:
        """The trajectory files, by name."""
        folder = self.path / "trajectories"
        with contextlib.suppress(FileNotFoundError):
            os.listdir(folder)  # a glob of what nobody may look into finds nothing, in silence
        return sorted(folder.glob("*-*.jsonl"))

    def append_eval(self, step: int, report: EvalReport) -> None:
        """Append one evaluation to `eval.jsonl`."""
        told = attrs.asdict(report, recurse=False)
        told |= {
            "pass1": None if report.measures else report.pass1,
            "problems": len(report.scores),
            "seconds": round(report.seconds, 3),
        }
        self.append("eval.jsonl", {"step": step, **told})

    def read_evals(self) -> dict[int, EvalReport]:
        """The evaluations in `eval.jsonl`, by step."""
        names = [field.name for field in attrs.fields(EvalReport)]
        found = {}
        for record in self.read_lines("eval.jsonl"):
            told = {name: record[name] for name in names if name in record}
            told["scores"] = {p: tuple(scores) for p, scores in record["scores"].items()}
            told["pass_at"] = {int(k): share for k, share in record["pass_at"].items()}
            found[record["step"]] = EvalReport(**told)
        return found


def now() -> str:
    """The time in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")
