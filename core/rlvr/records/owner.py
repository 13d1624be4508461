"""One owner of a run directory: the process that may write into it.

The owner holds the lock of the directory (`rlvr.records.lock`) until it ends, however it ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rlvr.errors import ConfigError
from rlvr.heartbeat import say
from rlvr.records.lock import LOCK, LONGEST_RECORD, Lock, is_free, record_in
from rlvr.records.run_directory import RECORDS, check_writable, now

PATIENCE = 40
"""Tries, 50 ms apart, while the holder of the lock is not known to live: an owner that has not yet
written its record, or a child of a dead owner, which has the lock until its program has begun."""


_READ = {"completions", "dataset", "report", "against", "config"}
"""Arguments that name what a command reads."""


class RunOwnedError(ConfigError):
    """Another process owns the run directory."""


@contextmanager
def owned(directory: Path, *, makes: bool = False) -> Iterator[dict[str, Any]]:
    """
    Own a run directory while the block runs; the directory of an owner that died is taken over.

    Yields facts to log about an owner that died; {} if there was none.

    Args:
        directory: Where the run is, or will be.
        makes: Make the folder where there is none. It is removed again if it is empty at the end.

    Raises:
        RunOwnedError: Another process owns it; it is named.
        ConfigError: The lock file cannot be written, or is no regular file.
    """
    lock, found = _take(directory, makes=makes)
    try:
        yield {} if found is None else _taken_over(directory, found)
    finally:
        lock.release()


@contextmanager
def writing_to(path: Path | str | None, reads: Mapping[str, Any] | None = None) -> Iterator[None]:
    """
    Make sure that a result file can be written, and do as `apart_from_runs` with it.

    Args:
        path: Of the result.
        reads: The command's arguments: what they name would be lost if it were the result as well.

    Raises:
        RunOwnedError: It lies in a run directory that another process owns.
        ConfigError: It cannot be written there, or is a run's own record, or what is read.
    """
    if path:
        check_writable(Path(path))
        if name := _read_as(path, reads or {}):
            raise ConfigError(
                f"results were to be written to {path}.",
                f"found: it is what {name} names, which would be lost",
                "choose another file with --out FILE",
            )
    with apart_from_runs(Path(path)) if path else contextlib.nullcontext():
        yield


def _read_as(path: Path | str, reads: Mapping[str, Any]) -> str:
    """The argument that names the same file, "" where none does."""
    for name in sorted(_READ & reads.keys()):
        with contextlib.suppress(OSError, TypeError, ValueError):  # it names no file
            if os.path.samefile(path, reads[name]):
                return name
    return ""


def check_named(path: Path) -> None:
    """
    Reject `-` as the place of results: elsewhere that means standard output.

    Raises:
        ConfigError: Says so.
    """
    if str(path) == "-":
        raise ConfigError(
            "results were to be written to -.",
            "found: no name of a file or a folder",
            "choose one with --out; what a command prints without --out can be redirected",
        )


@contextmanager
def apart_from_runs(path: Path) -> Iterator[None]:
    """
    Own the run directory that `path` is or lies in, if any; reject a path of the run's own files.

    Args:
        path: The file or folder that a command is about to write.

    Raises:
        RunOwnedError: It lies in a run directory that another process owns.
        ConfigError: It is what the run itself has written, or will, or `-`.
    """
    check_named(path)
    place = Path(os.path.realpath(path))  # a link leads to what would be written; resolve() loops
    run = next((p for p in (place, *place.parents) if _is_run(p)), None)
    with owned(run) if run is not None else contextlib.nullcontext():
        if run is not None:
            inside = place.relative_to(run).parts
            if not inside or inside[0].casefold() in RECORDS:
                what = "a record of " if inside else ""
                raise ConfigError(
                    f"{path} was to be written.",
                    f"found: it is {what}the run {run}, which only its run writes",
                    "choose another place with --out",
                )
        yield


def is_running(directory: Path, pid: object) -> bool:
    """
    Whether the process that wrote "running" into a run's `run.json` still owns the directory.

    Args:
        directory: Of the run; nothing is written there.
        pid: The process id in `run.json`: `rlvr rescore` of a run that was killed has its lock too.
    """
    is_unlocked = is_free(directory)
    found: dict[str, Any] | None = None
    with contextlib.suppress(OSError), (directory / LOCK).open("rb") as file:
        found = record_in(file.read(LONGEST_RECORD))
    if is_unlocked is None:  # no locks on this file system: only this machine's processes are seen
        if found is None:
            return False
        is_restarted = found.get("boot") != _boot() and found.get("host") == socket.gethostname()
        return not is_restarted and not _is_dead(found)
    return not is_unlocked and pid in (None, (found or {}).get("pid", pid))


def _is_run(folder: Path) -> bool:
    if not (folder / "run.json").is_file():
        return (folder / LOCK).is_file()  # a run that begins
    return (folder / "trajectories").is_dir() or (folder / LOCK).is_file()


def _take(directory: Path, *, makes: bool) -> tuple[Lock, dict[str, Any] | None]:
    """The lock, and the record of the owner before."""
    found: dict[str, Any] | None = None
    try:
        for _ in range(PATIENCE):
            if makes:
                directory.mkdir(parents=True, exist_ok=True)
            with contextlib.ExitStack() as undo:
                try:
                    lock = Lock(directory)
                    undo.callback(lock.drop)
                    is_taken = lock.is_taken()
                except FileNotFoundError:  # the last owner removed its empty folder just now
                    if not makes:
                        raise
                    continue
                found = lock.read()
                if is_taken:
                    if lock.is_local:
                        _check_elsewhere(directory, found)
                    undo.callback(lock.release)  # a full disk leaves no empty lock file
                    lock.write(_record(directory))
                    undo.pop_all()
                    return lock, found
            if found and not _is_dead(found):
                break
            time.sleep(0.05)
    except OSError as error:
        raise ConfigError(
            f"the run directory {directory} cannot be written.",
            f"found: {error.strerror or error} ({error.filename or directory / LOCK})",
            "choose a folder you may write with --out DIR",
        ) from error
    raise RunOwnedError(
        f"the run directory {directory} was to be written.",
        f"found: {_named(found)} is still at it",
        "wait for it, stop it with Ctrl-C, or write elsewhere with --out",
    )


def _check_elsewhere(directory: Path, found: dict[str, Any] | None) -> None:
    """Reject a directory owned on another machine: its owner may work, as locks are not shared."""
    is_here = not found or found.get("host") == socket.gethostname()
    if not is_here and not _is_copy(directory, found):
        raise RunOwnedError(
            f"the run directory {directory} was to be written.",
            f"found: {_named(found)} did not release it, and its file system has no locks that "
            "would tell whether that process is alive",
            f"make sure that it has ended, then remove {directory / LOCK}",
        )


def _is_dead(found: dict[str, Any]) -> bool:
    pid = found.get("pid")
    if found.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:  # it lives, and is another user's
        pass
    return False


def _record(directory: Path) -> dict[str, Any]:
    there = directory.stat()
    return {
        "host": socket.gethostname(),
        "boot": _boot(),
        "pid": os.getpid(),
        "device": there.st_dev,
        "inode": there.st_ino,
        "since": now(),
        "command": " ".join(["rlvr", *sys.argv[1:]])[:200],
    }


def _boot() -> str:
    """The id of this start of the machine; "" where there is none to read."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def _is_copy(directory: Path, found: dict[str, Any] | None) -> bool:
    """Whether the lock names another directory than the one that it is in."""
    told, there = found or {}, directory.stat()
    if "inode" not in told or told["inode"] != there.st_ino:
        return "inode" in told
    # devices have other numbers after a restart, and on another machine
    return told.get("boot") == _boot() and told.get("device") != there.st_dev


def _taken_over(directory: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Report on standard error that a dead owner's directory is taken over; return who it was."""
    is_here, is_same_start = found.get("host") == socket.gethostname(), found.get("boot") == _boot()
    if _is_copy(directory, found):
        why = "a copy"
        text = f"is a copy of a directory that {_named(found)} owned; the copy has no owner, and "
        text += "this process takes it"
    else:
        why = "the machine was restarted" if is_here and not is_same_start else "its lock is free"
        text = f"was left by {_named(found)}, which ended without releasing it ({why}); this "
        text += "process takes it over"
    say(f"rlvr: {directory} {text}")
    return {key: found.get(key) for key in ("host", "pid", "boot", "since")} | {"why": why}


def _named(found: dict[str, Any] | None) -> str:
    """The owner in words; a record that is not ours names nobody."""
    told = found or {}
    pid, host, since, command = (told.get(key) for key in ("pid", "host", "since", "command"))
    if not isinstance(pid, int) or not isinstance(host, str):
        return "a process that its lock file does not name"
    words = f"process {pid} on {host[:64]}"
    words += f" ({str(command)[:200]})" if command else ""
    words += f" since {str(since)[:32]}" if since else ""
    return "".join(c if c.isprintable() else "?" for c in words)
