"""Runs a tool on a text of unknown origin: bounded time, memory and file size."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from attrs import frozen

_WALL_FACTOR = 3
_FILE_MB = 256


@frozen
class Ran:
    """How a tool ended; `rc` is None where its time ran out."""

    rc: int | None
    output: str


def run_limited(argv: Sequence[str | Path], *, cwd: Path, cpu_s: int, memory_mb: int = 2048) -> Ran:
    """Run a tool in its own process group; all of the group ends with it."""
    limits = f"ulimit -t {cpu_s}; ulimit -v {memory_mb * 1024}; ulimit -f {_FILE_MB * 1024}"
    with subprocess.Popen(
        ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", *map(str, argv)],
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
        env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "TMPDIR": str(cwd)},
    ) as process:
        rc = None
        try:
            output, _ = process.communicate(timeout=_WALL_FACTOR * cpu_s)
            rc = process.returncode
        except subprocess.TimeoutExpired:
            _end(process.pid)
            output, _ = process.communicate()
        finally:
            _end(process.pid)
    return Ran(rc, output)


def _end(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
