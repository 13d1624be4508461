"""Problems whose own, given sources the installed simulator cannot read: no answer could pass."""

from __future__ import annotations

import functools
import subprocess
import tempfile
from pathlib import Path

from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain.tools import find_tool, tool_version


def why_unreadable(problem: CvdpProblem) -> str:
    """The simulator's own words about a source that the answer does not write, "" for none."""
    iverilog = find_tool("iverilog")
    if iverilog is None:
        return ""
    for service in problem.services:
        names = [
            path.removeprefix("/code/")
            for path in service.environment.get("VERILOG_SOURCES", "").split()
        ]
        given = {n: problem.context[n] for n in names if n in problem.context}
        given = {name: text for name, text in given.items() if name not in problem.targets}
        if given and service.has_plain_build:
            words = _syntax_error(iverilog, tuple(given.items()))
            if words:
                return f"iverilog {tool_version(iverilog)} cannot read its given files: {words}"
    return ""


@functools.lru_cache(maxsize=512)
def _syntax_error(iverilog: Path, files: tuple[tuple[str, str], ...]) -> str:
    with tempfile.TemporaryDirectory(prefix="rlvr-cvdp-read-") as folder:
        for name, text in files:
            place = Path(folder, name)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8", errors="replace")
        command = [str(iverilog), "-g2012", "-i", "-t", "null", *(name for name, _ in files)]
        try:
            tried = subprocess.run(
                command,
                cwd=folder,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=20,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
    wrong = [line for line in tried.stderr.splitlines() if "syntax error" in line]
    return wrong[0] if tried.returncode and wrong else ""
