"""Finds problems whose given sources the installed simulator cannot read: no answer can pass."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from rlvr_cvdp.paths import write_texts
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain.limited import run_limited
from rlvr_cvdp.toolchain.tools import find_tool, tool_version

_CPU_S = 20


def why_unreadable(problem: CvdpProblem) -> str:
    """The simulator's own words about a source that the answer does not write, "" for none."""
    iverilog = find_tool("iverilog")
    if iverilog is None:
        return ""
    for service in problem.services:
        names = [name for name in service.sources if name not in problem.targets]
        given = tuple((name, problem.context[name]) for name in names if name in problem.context)
        if given and service.has_plain_build:
            words = _syntax_error(iverilog, given)
            if words:
                return f"iverilog {tool_version(iverilog)} cannot read its given files: {words}"
    return ""


@functools.lru_cache(maxsize=512)
def _syntax_error(iverilog: Path, files: tuple[tuple[str, str], ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="rlvr-cvdp-read-") as folder:
        write_texts(Path(folder), dict(files))
        command: list[str | Path] = [iverilog, "-g2012", "-i", "-t", "null"]
        command += [name for name, _ in files]
        ran = run_limited(command, cwd=Path(folder), cpu_s=_CPU_S)
    wrong = [line for line in ran.output.splitlines() if "syntax error" in line]
    return wrong[0] if ran.rc and wrong else ""
