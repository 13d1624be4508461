"""Skip a test, with the reason, if a tool outside Python is missing."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any, NoReturn

import pytest

REQUIRE = "RLVR_REQUIRE_TOOLS"
DATA = "RLVR_DATA"
NOT_CHECKED = "not checked: "
"""Begins the reason of a skip for want of something: the promise may apply, nobody knows."""


def require_tool(name: str, fix: str = "") -> str:
    """
    Path of an executable that the test cannot do without.

    Skips the test with the reason when it is not on PATH; with `RLVR_REQUIRE_TOOLS=1` in the
    environment (CI) fails it instead.

    Args:
        name: The executable, as it is called in a shell: `iverilog`.
        fix: Command that installs it, shown in the reason.
    """
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not on PATH" + (f"; try: {fix}" if fix else ""))
    return str(path)


def shared_data(*parts: str) -> Path:
    """
    Path of real data that the repository does not hold, `shared_data("cvdp", "file.jsonl")`.

    Looks in the folder that `RLVR_DATA` names, else in `../shared/data` beside the project: the
    working directory and its parents are tried. Skips the test with the reason when it is not
    there; with `RLVR_REQUIRE_TOOLS=1` fails it instead.
    """
    if root := os.environ.get(DATA):
        roots = [Path(root)]
    else:
        here = Path.cwd()
        roots = [folder.parent / "shared" / "data" for folder in (here, *here.parents)]
    for root_path in roots:
        if (found := root_path.joinpath(*parts)).exists():
            return found
    wanted = "/".join(parts) or "."
    missing(
        f"no {wanted!r} in {roots[0]}"
        + ("" if root else " nor beside a parent folder")
        + f"; set {DATA} to the folder that holds it"
    )


def require_torch() -> Any:
    """The module; without it the test is skipped aloud: the kit runs with the core alone."""
    return pytest.importorskip(
        "torch", reason=f"{NOT_CHECKED}losses are computed with torch, which is not installed"
    )


def missing(reason: str) -> NoReturn:
    """Skip the test aloud; with `RLVR_REQUIRE_TOOLS=1` in the environment (CI) fail it."""
    if os.environ.get(REQUIRE) == "1":
        pytest.fail(f"{reason} ({REQUIRE}=1, so this is a failure)", pytrace=False)
    pytest.skip(f"{NOT_CHECKED}{reason}")
