"""
Text that tools may read differently, as hints for a person who reads the evidence.

Nothing is refused for it: no list of words is complete, and honest designs use such words. What
decides is the netlist (`counted`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rlvr_cvdp.problem import CvdpProblem

_HINTS = {
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


def hints(problem: CvdpProblem, files: Mapping[str, str]) -> list[str]:
    """What in an answer tools may read differently; empty where only simulation judges."""
    if not any(service.tool for service in problem.services):
        return []
    known = "\n".join(problem.context.values())
    found = [
        f"{reason}: {match[0]!r}"
        for text in files.values()
        for reason, pattern in _HINTS.items()
        for match in pattern.finditer(text)
        if match[0] not in known
    ]
    for text in files.values():
        words = dict.fromkeys(_TOOLS_OWN.findall(_BLANKED.sub(" ", text)))
        found += [f"uses what only one tool defines: {w!r}" for w in words if w not in known]
    return found
