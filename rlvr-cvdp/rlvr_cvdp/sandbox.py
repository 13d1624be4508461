"""Runs one command in a bubblewrap sandbox: no network, no host files, everything limited."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import field, frozen

from rlvr.errors import PrerequisiteError, VerifierError, explain
from rlvr_cvdp.accounting import cpu_seconds, size_over
from rlvr_cvdp.stacks import Stack
from rlvr_cvdp.tools import require_tool
from rlvr_cvdp.workplace import inside_folder

_KEPT = 400_000
_SUMMARY = re.compile(rb"\*\* TESTS=(\d+) PASS=(\d+) FAIL=(\d+) SKIP=(\d+)")
_MEGABYTE = 1_000_000
_START = (
    "ulimit -c 0; ulimit -S -t {soft}; ulimit -H -t {hard}; ulimit -v {memory}; "
    'ulimit -f {blocks}; ulimit -p {processes}; : > /rlvr/out/started; exec "$@"'
)


@frozen(kw_only=True)
class Limits:
    """What a command may use; `cpu_s`, `memory_mb` and `file_mb` hold for each process."""

    wall_s: float
    cpu_s: float
    memory_mb: int
    processes: int
    file_mb: int
    disk_mb: int
    output_mb: int


@frozen(kw_only=True)
class Finished:
    """
    How a sandboxed command ended.

    Attributes:
        rc: Exit status; None where it was stopped from outside.
        stopped: "", or what it was stopped for: "time", "output", "disk".
        output: Beginning and end of what it wrote, at most 0.8 MB.
        summaries: cocotb's own summaries in it, each (tests, passed, failed, skipped).
        cpu_s: Processor time it had used when it was stopped for time.
    """

    rc: int | None
    stopped: str
    output: str = field(repr=False)
    summaries: tuple[tuple[int, int, int, int], ...]
    seconds: float
    cpu_s: float = 0.0


def sandbox_argv(
    argv: Sequence[str],
    *,
    folder: Path,
    stack: Stack,
    environment: Mapping[str, str],
    limits: Limits,
    working_dir: str = "/code/rundir",
    hidden: Sequence[Path] = (),
) -> list[str]:
    """
    The bubblewrap command line.

    `folder` holds the problem's tree in `tree`, notes in `out`, and the lists `answer` and
    `allowed` for the scan. Nothing else of this machine is visible but /usr, the stack and the
    tools; of these, `hidden` is covered up.
    """
    iverilog, vvp = require_tool("iverilog"), require_tool("vvp")
    inside = inside_folder(os.getpid(), "/rlvr/real/iverilog", "/rlvr/real/vvp", str(stack.python))
    tree, out = folder / "tree", folder / "out"
    mounts: list[str] = ["--ro-bind", "/usr", "/usr"]
    # Before the stack, which may itself lie below /tmp.
    mounts += ["--size", str(limits.disk_mb * _MEGABYTE), "--tmpfs", "/tmp"]
    for path in ("/etc/alternatives", "/etc/ld.so.cache"):
        mounts += ["--ro-bind-try", path, path]
    for name in ("bin", "sbin", "lib", "lib64"):
        mounts += ["--symlink", f"usr/{name}", f"/{name}"]
    folders = [*stack.prefixes]
    folders += [t.parent.parent for t in (iverilog, vvp) if not t.is_relative_to("/usr")]
    for prefix in dict.fromkeys(folders):
        if prefix.parts[1:2] in (("code",), ("src",), ("rundir",), ("rlvr",)):
            raise PrerequisiteError(
                explain(
                    f"the sandbox was to show {prefix}.",
                    "found: harnesses themselves use /code, /src and /rundir",
                    "put the Python environment somewhere else, in a home folder for example",
                )
            )
        mounts += ["--ro-bind", str(prefix), str(prefix)]
    for secret in hidden:
        for prefix in (*folders, Path("/usr")):
            if secret.is_relative_to(prefix.resolve()):
                place = prefix / secret.relative_to(prefix.resolve())
                cover = ["--tmpfs"] if secret.is_dir() else ["--ro-bind", str(inside / "empty")]
                mounts += [*cover, str(place)]
    for tool in (iverilog, vvp):
        mounts += ["--ro-bind", str(tool), f"/rlvr/real/{tool.name}"]
        mounts += ["--ro-bind", str(inside / "bin" / tool.name), str(tool)]
    mounts += ["--ro-bind", str(inside / "bin"), "/rlvr/bin"]
    mounts += ["--ro-bind", str(inside / "python"), "/rlvr/python"]
    mounts += ["--ro-bind", str(inside / "scan.py"), "/rlvr/scan.py"]
    for name in ("answer", "allowed"):
        mounts += ["--ro-bind", str(folder / name), f"/rlvr/{name}"]
    mounts += ["--bind", str(out), "/rlvr/out", "--proc", "/proc", "--dev", "/dev"]
    mounts += ["--bind", str(tree), "/code", "--ro-bind", str(tree / "src"), "/code/src"]
    mounts += ["--ro-bind", str(tree / "src"), "/src", "--size", str(limits.disk_mb * _MEGABYTE)]
    mounts += ["--tmpfs", "/rundir", "--dir", "/rundir/harness"]
    settings = [word for item in environment.items() for word in ("--setenv", *item)]
    start = _START.format(
        soft=max(1, round(limits.cpu_s)),
        hard=max(1, round(limits.cpu_s)) + 5,
        memory=limits.memory_mb * 1000,
        blocks=limits.file_mb * _MEGABYTE // 512,
        processes=limits.processes,
    )
    return [
        *(str(require_tool("bwrap")), "--unshare-all", "--die-with-parent", "--new-session"),
        *("--clearenv", *mounts, *settings, "--chdir", working_dir),
        *("/bin/sh", "-c", start, "rlvr", *argv),
    ]


async def run_sandboxed(command: Sequence[str], *, folder: Path, limits: Limits) -> Finished:
    """
    Run a command line of `sandbox_argv` to its end or to its limits.

    Cancelling it kills the sandbox and everything in it before the cancellation goes on.

    Raises:
        VerifierError: The sandbox could not start, or was ended by somebody else.
    """
    started = folder / "out" / "started"
    started.unlink(missing_ok=True)
    begun = time.monotonic()
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
    except OSError as error:
        raise VerifierError(f"the sandbox could not be started: {error}") from None
    collector = _Collector(limits.output_mb * _MEGABYTE)
    stopped, cpu_s = "", 0.0
    reading = asyncio.create_task(collector.read(process))
    try:
        stopped = await _watch(reading, folder, limits, begun)
        if stopped:
            cpu_s = cpu_seconds(process.pid)
    finally:
        _kill(process)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await _drain(process)
    if not started.exists() and not stopped:
        words = collector.text().strip() or f"exit status {process.returncode}"
        raise VerifierError(f"the sandbox could not start: {words[-500:]}")
    if not stopped and process.returncode is not None and process.returncode < 0:
        raise VerifierError(f"the sandbox was ended by signal {-process.returncode}")
    return Finished(
        rc=None if stopped else process.returncode,
        stopped=stopped,
        output=collector.text(),
        summaries=tuple(collector.summaries),
        seconds=time.monotonic() - begun,
        cpu_s=cpu_s,
    )


async def _watch(reading: asyncio.Task[bool], folder: Path, limits: Limits, begun: float) -> str:
    """Wait for the end; gives what the command must be stopped for, "" when it ended."""
    while True:
        left = begun + limits.wall_s - time.monotonic()
        if left <= 0:
            return "time"
        done, _ = await asyncio.wait({reading}, timeout=min(left, 0.5))
        if done:
            return "" if reading.result() else "output"
        if size_over(folder, limits.disk_mb * _MEGABYTE):
            return "disk"


def _kill(process: asyncio.subprocess.Process) -> None:
    """Bubblewrap's own death takes its PID namespace with it."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return


async def _drain(process: asyncio.subprocess.Process) -> None:
    """
    Wait for a process that has ended.

    What is left in its pipe is thrown away first: asyncio stops reading a pipe that nobody
    empties, and then never learns that the process is gone.
    """
    assert process.stdout is not None
    while await process.stdout.read(1 << 20):
        pass
    await process.wait()


class _Collector:
    """Keeps the beginning and the end of an output, and cocotb's summaries in all of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._head = bytearray()
        self._tail = bytearray()
        self._carry = b""
        self.summaries: list[tuple[int, int, int, int]] = []

    async def read(self, process: asyncio.subprocess.Process) -> bool:
        """Read to the end of the process; False where it wrote more than the limit."""
        assert process.stdout is not None
        total = 0
        while chunk := await process.stdout.read(1 << 16):
            total += len(chunk)
            if total > self._limit:
                return False
            self._keep(chunk)
        await process.wait()
        return True

    def _keep(self, chunk: bytes) -> None:
        room = _KEPT - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:] if room > 0 else chunk
        del self._tail[: max(0, len(self._tail) - _KEPT)]
        text = self._carry + chunk
        end = text.rfind(b"\n") + 1
        if len(self.summaries) < 10_000:
            for match in _SUMMARY.finditer(text[:end]):
                tests, passed, failed, skipped = (int(number) for number in match.groups())
                self.summaries.append((tests, passed, failed, skipped))
        self._carry = text[end:][-4096:]

    def text(self) -> str:
        """What was kept."""
        gap = b"\n[...]\n" if len(self._tail) >= _KEPT else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")
