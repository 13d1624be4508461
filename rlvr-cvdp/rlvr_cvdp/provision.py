"""Makes a managed stack: a virtual environment with pinned packages, built once."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from pathlib import Path

import structlog

from rlvr.errors import PrerequisiteError, explain
from rlvr_cvdp.stacks import PINS, Stack, managed_dir, managed_stack

log = structlog.get_logger()


def provision_stack(generation: int) -> Stack:
    """
    The managed stack of a generation, made now where it is not there; takes about ten seconds.

    Processes that ask at the same time wait for the one that builds. A build that breaks off
    leaves nothing that looks complete.

    Raises:
        PrerequisiteError: pip could not install it, or this Python has no shared library.
    """
    folder = managed_dir(generation)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = (folder.parent / f"{folder.name}.lock").open("w")
    except OSError as error:
        raise _failed(generation, f"cannot write {folder.parent}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stack = managed_stack(generation)
        if stack is None:
            log.info("cvdp_stack_started", generation=generation, folder=str(folder))
            _build(generation, folder)
            stack = managed_stack(generation)
        if stack is None:
            raise _failed(generation, "this Python has no shared libpython")
        return stack


def _build(generation: int, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", *PINS[generation]]
    base = getattr(sys, "_base_executable", sys.executable)
    for command in ([base, "-m", "venv", str(folder)], pip):
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=900)
        except subprocess.CalledProcessError as error:
            words = (error.stderr or error.stdout or "").strip().splitlines()
            raise _failed(generation, words[-1] if words else "no output") from None
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _failed(generation, str(error)) from None
    (folder / "complete").write_text("\n".join(PINS[generation]) + "\n")
    log.info("cvdp_stack_made", generation=generation, folder=str(folder))


def _failed(generation: int, found: str) -> PrerequisiteError:
    return PrerequisiteError(
        explain(
            f"the stack of cocotb generation {generation} could not be made "
            f"({', '.join(PINS[generation])}).",
            f"found: {found}",
            "try: rlvr cvdp setup   (needs a package index once)",
        )
    )
