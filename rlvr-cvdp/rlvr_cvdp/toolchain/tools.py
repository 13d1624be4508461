"""The programs outside Python that verification needs: where they are and which version."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

from rlvr import PrerequisiteError

_VERSION_FLAG = {"iverilog": "-V", "vvp": "-V", "verilator": "--version", "yosys": "-V"}
_PACKAGE = {"bwrap": "bubblewrap", "vvp": "iverilog"}


def install_command(name: str) -> str:
    """The command that installs a tool on Debian."""
    return f"sudo apt-get install -y {_PACKAGE.get(name, name)}"


def find_tool(name: str) -> Path | None:
    """The tool's real path on this machine's PATH, None where it is not installed."""
    found = shutil.which(name)
    return Path(found).resolve() if found else None


def require_tool(name: str) -> Path:
    """
    The tool's real path.

    Raises:
        PrerequisiteError: It is not on PATH; says what installs it.
    """
    path = find_tool(name)
    if path is None:
        raise PrerequisiteError(
            f"verifying CVDP problems needs {name}.",
            "found: no such program on PATH",
            f"try: {install_command(name)}",
        )
    return path


@functools.cache
def tool_version(path: Path) -> str:
    """First version number that the tool prints, "?" where it prints none."""
    flag = _VERSION_FLAG.get(path.name, "--version")
    try:
        answer = subprocess.run(
            [path, flag], capture_output=True, text=True, timeout=20, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    found = re.search(r"\d+\.\d+(?:\.\d+)?", answer.stdout + answer.stderr)
    return found[0] if found else "?"
