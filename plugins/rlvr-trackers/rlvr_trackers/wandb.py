"""Weights & Biases, online or offline."""

from __future__ import annotations

import os
import secrets
import shlex
import struct
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog
from attrs import frozen

from rlvr import RunInfo, option
from rlvr_trackers.entries import public
from rlvr_trackers.tracker import ProjectOptions, Tracker, writable

log = structlog.get_logger(__name__)

_BLOCK = 32768


@frozen(kw_only=True)
class WandbOptions(ProjectOptions):
    """Place of the run in Weights & Biases."""

    entity: str = option("", "Team or user; empty: the account's default")
    mode: str = option(
        "auto",
        "Send at once, or keep files for `wandb sync`; auto: WANDB_MODE, else online",
        choices=("auto", "online", "offline"),
    )
    folder: str = option("", "Folder of its local files; empty: WANDB_DIR, else RUN/trackers")


class Wandb(Tracker):
    """
    Logs to Weights & Biases; the key comes from `wandb login` or WANDB_API_KEY.

    The command line, the terminal's text, git and code are not sent: they may hold secrets.
    """

    name = module = "wandb"
    reports = ("WANDB_ERROR_REPORTING", "false")
    advice = "check the network, `wandb login` and wandb.folder, or set wandb.mode=offline"

    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Open a run; a resumed one has the id of before (offline: a second folder of that id)."""
        options = self.options
        settings = self.library.Settings(
            console="off",
            silent=True,
            disable_code=True,
            disable_git=True,
            init_timeout=options.timeout_s,
            finish_timeout=options.timeout_s,
            x_disable_meta=True,
        )
        before = os.environ.get("WANDB_SERVICE")
        asked = options.folder or os.environ.get("WANDB_DIR")
        kept = run.directory / "trackers" if not asked else Path(self.kept_place(asked))
        self._folder = writable(kept)
        self._run = self.library.init(
            project=options.project,
            entity=options.entity or None,
            name=options.name or run.id,
            id=known or secrets.token_hex(8),
            dir=str(self._folder),
            mode=None if options.mode == "auto" else options.mode,
            resume="allow",
            reinit="create_new",
            settings=settings,
        )
        if before is None:  # wandb sets it for child processes; a callback leaves no trace
            os.environ.pop("WANDB_SERVICE", None)
        self._run.config.update(dict(config), allow_val_change=True)
        return str(self._run.id)

    def reached(self) -> int | None:
        """The server's last step, or that of the offline files."""
        if not self._run.offline:
            return int(self._run.step) - 1
        try:
            return _last_step(self._folder, str(self._run.id))
        except Exception as error:  # the files are wandb's own affair: a version may change them
            do = "compare its last steps with those of metrics.jsonl"
            log.warning("wandb_files_not_read", reason=public("reason", error), do=do)
            return None

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Add to the step's row, which is sent when the next step begins."""
        self._run.log(dict(numbers), step=step)

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log a `wandb.Table`."""
        data = [list(row.values()) for row in rows]
        table = self.library.Table(columns=list(rows[0]), data=data, allow_mixed_types=True)
        self._run.log({"trajectories": table}, step=step)

    def finish(self, outcome: str) -> None:
        """Send the rest."""
        self._run.finish(exit_code=int(outcome != "done"))

    def place(self) -> str:
        """The run's page, or the command that sends the files of an offline one."""
        offline = f"wandb sync {shlex.quote(str(Path(self._run.dir).parent))}"
        return offline if self._run.offline else str(self._run.url or "")


def _last_step(folder: Path, run: str) -> int:
    """
    The highest step in a run's offline files: records in LevelDB's log format, after 7 bytes.

    wandb 0.31 has no reader of them that Python could call.
    """
    record = import_module("wandb.proto.wandb_internal_pb2").Record
    last = -1
    for file in folder.glob(f"wandb/offline-run-*-{run}/run-{run}.wandb"):
        data, at, pieces = file.read_bytes(), 7, b""
        while at + 7 <= len(data):
            left = _BLOCK - at % _BLOCK
            if left < 7:
                at += left
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            if not kind or at + 7 + length > len(data):
                break  # the process was killed while it wrote
            pieces += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # the whole record, or its last piece
                items = record.FromString(pieces).history.item
                steps = [int(i.value_json) for i in items if "_step" in (i.key, *i.nested_key)]
                last, pieces = max(last, *steps, -1), b""
    return last
