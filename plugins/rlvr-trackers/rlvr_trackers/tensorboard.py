"""TensorBoard: event files in a folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import RunInfo, option
from rlvr_trackers.tracker import Tracker, TrackerOptions


@frozen(kw_only=True)
class TensorBoardOptions(TrackerOptions):
    """Where event files go."""

    folder: str = option("", "Folder of runs, each in one of its own; empty: RUN/trackers")


class TensorBoard(Tracker):
    """Writes event files: `tensorboard --logdir runs` finds them. A resumed run adds a file."""

    name = "tensorboard"
    module = "tensorboard.summary.writer.record_writer"
    advice = "free space, or set tensorboard.folder to a place that can be written"

    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Open an event file in the run's folder, which is its id."""
        wanted = self.options.folder
        folder = Path(wanted) / run.id if wanted else run.directory / "trackers" / "tensorboard"
        folder.mkdir(parents=True, exist_ok=True)
        # without TensorBoard's own writer: its thread would print a traceback where a disk is full
        name = f"events.out.tfevents.{time.time_ns() // 10**9:010d}.rlvr.{os.getpid()}"
        self._events = (folder / name).open("ab")
        self._writer = self.library.RecordWriter(self._events)
        self._proto = import_module("tensorboard.compat.proto.event_pb2")
        self._write(0, file_version="brain.Event:2")
        if not known:
            rows = [f"| {key} | {json.dumps(value)} |" for key, value in config.items()]
            self._text(0, "config", "\n".join(["| option | value |", "| --- | --- |", *rows]))
        return str(folder)

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """One scalar a number."""
        values = [{"tag": tag, "simple_value": value} for tag, value in numbers.items()]
        self._write(step, summary={"value": values})

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """One text: a block of JSON a trajectory."""
        blocks = [f"```\n{json.dumps(row, indent=1, ensure_ascii=False)}\n```" for row in rows]
        self._text(step, "trajectories", "\n\n".join(blocks))

    def finish(self, outcome: str) -> None:
        """Close the file."""
        self._events.close()

    def _text(self, step: int, tag: str, text: str) -> None:
        tensor = {"dtype": "DT_STRING", "string_val": [text.encode()], "tensor_shape": {}}
        value = {"tag": tag, "tensor": tensor, "metadata": {"plugin_data": {"plugin_name": "text"}}}
        self._write(step, summary={"value": [value]})

    def _write(self, step: int, **event: Any) -> None:
        record = self._proto.Event(wall_time=time.time(), step=step, **event)
        try:
            self._writer.write(record.SerializeToString())
            self._events.flush()
        except OSError:
            with suppress(OSError):  # what is left does not fit either; it is closed all the same
                self._events.close()
            raise
