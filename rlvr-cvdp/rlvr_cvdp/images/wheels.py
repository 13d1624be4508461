"""The Python packages of the stacks as files, fetched by this machine's pip for another Python."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

from rlvr import PrerequisiteError
from rlvr_cvdp.images.recipe import BUILD_TOOLS, SOURCE_ONLY, pins

_GLIBC = ("manylinux2014", "manylinux_2_17", "manylinux_2_28")


def fetch_wheels(folder: Path, python: tuple[int, int]) -> None:
    """
    Fill a folder with all that the stacks of a root with this Python need.

    pip runs outside of the root, so that its index, proxy and certificate settings hold.

    Raises:
        PrerequisiteError: pip could not fetch them.
    """
    tag = f"cp{python[0]}{python[1]}"
    foreign = ["--only-binary=:all:", "--python-version", f"{python[0]}.{python[1]}"]
    foreign += ["--implementation", "cp", "--abi", tag, "--abi", "abi3", "--abi", "none"]
    for libc in _GLIBC:
        foreign += ["--platform", f"{libc}_{platform.machine()}"]
    foreign += ["--platform", "any"]
    for names in pins().values():
        binary = [name for name in names if name not in SOURCE_ONLY]
        _download(folder, [*foreign, *binary])
    _download(folder, [*foreign, *BUILD_TOOLS])
    _download(folder, ["--no-deps", "--no-binary=:all:", "--no-build-isolation", *SOURCE_ONLY])


def _download(folder: Path, words: list[str]) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    pip += ["--disable-pip-version-check", "--progress-bar", "off", "--dest", str(folder)]
    done = subprocess.run([*pip, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise PrerequisiteError(
            f"the Python packages of the stacks could not be fetched: {' '.join(words[-6:])}",
            f"found: {errors[-1] if errors else done.stderr.strip()[-300:]}",
            "needs a package index once; pip's own settings (PIP_INDEX_URL, PIP_CERT, "
            "pip config) are used",
        )
