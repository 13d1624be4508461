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
    "hides code from synthesis": re.compile(r"\btranslate_o(?:ff|n)\b", re.IGNORECASE),
    "silences the linter": re.compile(
        r"\bverilator\s+(?:lint|tracing)_\w*|`verilator_config|\bverilint\b", re.IGNORECASE
    ),
    "makes a module a black box": re.compile(
        r"(?:\(\*(?:[^*]|\*(?!\))){0,300}?|`define[^\n]{0,300}?)(?:blackbox|whitebox|via_celltype)\b"
    ),
}


def two_faced(problem: CvdpProblem, files: Mapping[str, str]) -> list[str]:
    """What in an answer treats tools differently; empty where no service but simulation judges."""
    if not any(service.tool for service in problem.services):
        return []
    known = "\n".join(problem.context.values())
    return [
        f"{reason}: {match[0]!r}"
        for text in files.values()
        for reason, pattern in _CHEATS.items()
        for match in pattern.finditer(text)
        if match[0] not in known
    ]
