"""Trackio: local files, a server of one's own, or a Hugging Face Space."""

from __future__ import annotations

import json
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import BuildContext, RunInfo, option
from rlvr_trackers.tracker import ProjectOptions, Tracker, writable

_ELSEWHERE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


@frozen(kw_only=True)
class TrackioOptions(ProjectOptions):
    """Place of the run in trackio."""

    space: str = option("", "Hugging Face Space; empty: TRACKIO_SPACE_ID, else local files")
    url: str = option("", "Server of your own; empty: TRACKIO_SERVER_URL, else local files")


class Trackio(Tracker):
    """Logs to trackio. Local files lie in TRACKIO_DIR; `trackio show` draws them."""

    name = module = "trackio"
    advice = "check TRACKIO_DIR, or the Space and `hf auth login`"

    def __init__(self, config: Any, context: BuildContext) -> None:
        """Import trackio, which reads TRACKIO_DIR at its first import: as the run's first start."""
        asked = self._asked = os.environ.get("TRACKIO_DIR", "")
        if asked:
            os.environ["TRACKIO_DIR"] = os.path.abspath(os.path.expanduser(asked))
        if asked and context.run_dir is not None:
            with suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
                kept = (context.run_dir / "trackers" / "trackio.json").read_text(encoding="utf-8")
                os.environ["TRACKIO_DIR"] = json.loads(kept)["places"][asked]
        try:
            super().__init__(config, context)
        finally:
            if asked:
                os.environ["TRACKIO_DIR"] = asked

    def start(self, run: RunInfo, config: Mapping[str, Any], known: str) -> str:
        """Open a run. Trackio takes runs up by name, so the name ends in letters of its own."""
        options = self.options
        if not (options.space or options.url or any(map(os.environ.get, _ELSEWHERE))):
            now = str(writable(Path(os.path.abspath(self.library.utils.TRACKIO_DIR))))
            if self._asked and (kept := self.kept_place(self._asked, now)) != now:
                raise OSError(
                    f"the run's files lie in {kept}, and trackio writes to {now} in this process, "
                    "where it was imported before; resume the run in a process of its own"
                )
        own = f"{options.name or run.id}-{secrets.token_hex(3)}"
        self._name = known or own
        self._run = self.library.init(
            options.project,
            name=self._name,
            space_id=options.space or None,
            server_url=options.url or None,
            config=dict(config),
            resume="allow" if known else "never",  # killed before it sent anything, it is unknown
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return self._name

    def reached(self) -> int | None:
        """The step before the one with which trackio goes on; -1 if it has nothing of the run."""
        following: int | None = getattr(self._run, "_next_step", None)
        return None if following is None else following - 1

    def log(self, step: int, numbers: Mapping[str, float]) -> None:
        """Log numbers of a step. Trackio writes them later, in a thread."""
        self._check()
        self._run.log(dict(numbers), step=step)

    def table(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Log a `trackio.Table`."""
        data = [list(row.values()) for row in rows]
        table = self.library.Table(columns=list(rows[0]), data=data)
        self._run.log({"trajectories": table}, step=step)

    def finish(self, outcome: str) -> None:
        """Write the rest."""
        self._run.finish()
        self._check()
        if getattr(self._run, "_has_local_buffer", False):
            raise OSError(
                f"the server did not take all: trackio keeps the rest in "
                f"{self.library.utils.TRACKIO_DIR}, and sends it when it next logs to this project"
            )

    def place(self) -> str:
        """The server or Space, or the command that shows local files; and the run."""
        options = self.options
        local = f"trackio show --project {shlex.quote(options.project)}"
        if self._asked:
            local = f"TRACKIO_DIR={shlex.quote(self.kept_place(self._asked))} {local}"
        space = options.space or os.environ.get("TRACKIO_SPACE_ID")  # trackio prefers it
        server = options.url or os.environ.get("TRACKIO_SERVER_URL")
        return f"{space or server or local}  # run {self._name}"

    def _check(self) -> None:
        """Raise what trackio's thread only warned of, once, on standard error."""
        if any(key.startswith("write-") for key in getattr(self._run, "_warned_failures", ())):
            raise OSError("trackio could not write what it was told; its own warning says why")
