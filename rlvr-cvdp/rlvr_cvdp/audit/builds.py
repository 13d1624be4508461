"""The files and the top module that a harness compiles, and whether it sets parameters."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from rlvr_cvdp.paths import HDL, VERILOG, write_texts
from rlvr_cvdp.problem import CvdpProblem

_PLAIN = re.compile(r"[A-Za-z0-9_][\w.-]*(?:/[A-Za-z0-9_][\w.-]*)*")
_LITERAL_TOP = re.compile(r"toplevel\s*=\s*[\"'](\w+)[\"']")
_UNPACKED = r"[(,]\s*\*\*\w"
_SETS_PARAMETERS = re.compile(
    rf"\bparameters[\"']?\s*[=:\]]|\bdefparam\b|(?:^|[\s\"'=])-(?:P|G|pvalue)\s*[\w.{{]|{_UNPACKED}",
    re.MULTILINE,
)
_SETS_DEFINES = re.compile(
    rf"\bdefines[\"']?\s*[=:\]]|(?:^|[\s\"'=])-D\s*\w|{_UNPACKED}", re.MULTILINE
)


def sources(problem: CvdpProblem, files: Mapping[str, str]) -> tuple[str, ...]:
    """Paths of the files that are compiled, of the context and of an answer, in order."""
    every = {**problem.context, **files}
    named = [path for service in problem.services for path in service.sources]
    found = [path for path in dict.fromkeys(named) if path in every and path.endswith(VERILOG)]
    if found and any(path in problem.targets for path in found):
        return tuple(found)
    return tuple(path for path in every if path.startswith("rtl/") and path.endswith(VERILOG))


def top_module(problem: CvdpProblem) -> str:
    """The module that the harness simulates; "" where it has none or several."""
    tops = {service.top for service in problem.services} - {""}
    for text in problem.harness.values():
        tops.update(_LITERAL_TOP.findall(text))
    return tops.pop() if len(tops) == 1 else ""


def sets_parameters(problem: CvdpProblem) -> bool:
    """Whether the harness may give the top module other parameters than its own defaults."""
    return any(_SETS_PARAMETERS.search(text) for text in problem.harness.values())


def sets_defines(problem: CvdpProblem) -> bool:
    """Whether the harness may define macros for the compiler."""
    return any(_SETS_DEFINES.search(text) for text in problem.harness.values())


def is_plain(*paths: str) -> bool:
    """Whether paths are plain names: a path in a tool's script must not be a command."""
    return all(_PLAIN.fullmatch(path) for path in paths)


def write_sources(folder: Path, problem: CvdpProblem, files: Mapping[str, str]) -> None:
    """Write the Verilog files of the context and of an answer below `folder`."""
    every = {**problem.context, **files}
    write_texts(folder, {path: text for path, text in every.items() if path.endswith(HDL)})


def include_folders(problem: CvdpProblem, files: Mapping[str, str]) -> list[str]:
    """Folders where an include may be found."""
    paths = [path for path in {**problem.context, **files} if path.endswith(HDL)]
    return sorted({path.rpartition("/")[0] for path in paths})
