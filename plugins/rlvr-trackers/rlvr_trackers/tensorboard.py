"""TensorBoard: event files in a folder."""

from __future__ import annotations

import itertools
import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import RunInfo, option
from rlvr_trackers.tracker import Tracker, TrackerOptions


@frozen(kw_only=True)
class TensorBoardOptions(TrackerOptions):
    """Place of the event files."""

    folder: str = option("", "Folder of runs, each in one of its own; empty: RUN/trackers")


class TensorBoard(Tracker):
    """Writes event files: `tensorboard --logdir runs` finds them. A resumed run adds a file."""

    name = "tensorboard"
    module = "tensorboard.summary.writer.record_writer"
    advice = "free space, or set tensorboard.folder to a place that can be written"

    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Begin an event file in the run's folder, which is its id."""
        folder = run.directory / "trackers" / "tensorboard"
        if wanted := self.options.folder:
            wanted = os.path.expanduser(wanted)
            folder = Path(known) if known else _unused(Path(wanted).absolute() / run.id)
        folder.mkdir(parents=True, exist_ok=True)
        # without TensorBoard's own writer: its thread would print a traceback where a disk is full
        name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.rlvr.{os.getpid()}"
        self._events = folder / name
        self._proto = import_module("tensorboard.compat.proto.event_pb2")
        self._write(0, file_version="brain.Event:2")
        if not known:
            self._text(0, "config", _block(config))
        return str(folder)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """One scalar a number."""
        values = [{"tag": tag, "simple_value": value} for tag, value in numbers.items()]
        self._write(step, summary={"value": values})

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """One text: a block of JSON a trajectory."""
        self._text(step, "trajectories", "\n\n".join(map(_block, rows)))

    def finish(self, outcome: str) -> None:
        """Nothing is left to write."""

    def place(self) -> str:
        """The command that shows the run alone."""
        return f"tensorboard --logdir {shlex.quote(str(self._events.parent))}"

    def _text(self, step: int, tag: str, text: str) -> None:
        tensor = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": {}}
        value = {"tag": tag, "tensor": tensor, "metadata": {"plugin_data": {"plugin_name": "text"}}}
        self._write(step, summary={"value": [value]})

    def _write(self, step: int, **event: Any) -> None:
        record = self._proto.Event(wall_time=time.time(), step=step, **event)
        with self._events.open("ab") as file:  # so that none stays open after a failure
            self.library.RecordWriter(file).write(record.SerializeToString())


def _block(values: Mapping[str, Any]) -> str:
    """A block of JSON, which Markdown shows as it is."""
    return f"```\n{json.dumps(values, indent=1, ensure_ascii=False)}\n```"


def _unused(folder: Path) -> Path:
    """The folder, or with a number where another run of that name has taken it."""
    others = (folder.with_name(f"{folder.name}-{number}") for number in itertools.count(2))
    return next(place for place in itertools.chain([folder], others) if not place.exists())
