"""Text that would show one design to the simulator and another to the linter or synthesizer.

Services that run Verilator or Yosys judge the same files as the simulation. An answer could hide
its logic from them with conditional compilation or with comments that only they obey; what the
problem's own context already does stays allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlvr_cvdp.problem import CvdpProblem

_CHEATS = {
    "asks which tool reads it": re.compile(
        r"`(?:ifdef|ifndef|elsif)\s+(?:SYNTH(?:ESIS)?|SIM(?:ULATION)?|LINT|FORMAL|SYSTEMVERILOG"
        r"|SV_COV_\w+|coverage_block_off|\w*(?:YOSYS|VERILATOR|ICARUS|IVERILOG|COCOTB)\w*)\b",
        re.IGNORECASE,
    ),
    "prints what a synthesizer counts": re.compile(r'"[^"\n]*\bNumber of \w', re.IGNORECASE),
    "hides code from synthesis": re.compile(r"\btranslate_o(?:ff|n)\b", re.IGNORECASE),
    "silences the linter": re.compile(
        r"\bverilator\s+(?:lint|tracing)_\w*|`verilator_config|\bverilint\b", re.IGNORECASE
    ),
    "makes a module a black box": re.compile(
        r"(?:\(\*(?:[^*]|\*(?!\))){0,300}?|`define[^\n]{0,300}?)(?:blackbox|whitebox|via_celltype)\b"
    ),
}
_BLANKED = re.compile(r""""(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|\\\S+""", re.DOTALL)
_TOOLS_OWN = re.compile(
    r"(?<![\w$.])(?:YOSYS|SYNTHESIS|VERILATOR|__ICARUS\w*|COCOTB_SIM|SV_COV_\w+)\b"
    r"|`(?:FORMAL|SYSTEMVERILOG|verilator3?|coverage_block_off)\b"
)
"""Macros that one tool defines and another takes for nothing, where no comment or string is."""

_PLAIN_NAME = r'''"(?!/)(?:(?!\.\.)[^"\n])*"'''
_ODD_FILE = re.compile(
    rf"`include\b(?!\s*{_PLAIN_NAME})|\$s?readmem\w*\s*\((?!\s*{_PLAIN_NAME})"
    r"|`define\b(?:\\\r?\n|[^\n])*\binclude\b"
)


def may_wait(text: str) -> bool:
    """
    Whether a text could make a tool that reads it wait for ever.

    It could where it names a file that need not lie in the problem's tree: a pipe, of which a
    process has several under /proc and /dev.
    """
    return bool(_ODD_FILE.search(text))


def two_faced(problem: CvdpProblem, files: Mapping[str, str]) -> list[str]:
    """What in an answer treats tools differently; empty where no service but simulation judges."""
    if not any(service.tool for service in problem.services):
        return []
    known = "\n".join(problem.context.values())
    found = [
        f"{reason}: {match[0]!r}"
        for text in files.values()
        for reason, pattern in _CHEATS.items()
        for match in pattern.finditer(text)
        if match[0] not in known
    ]
    for text in files.values():
        words = dict.fromkeys(_TOOLS_OWN.findall(_BLANKED.sub(" ", text)))
        found += [f"uses what only one tool defines: {w!r}" for w in words if w not in known]
    return found
