"""
Whether a mutant is the same hardware as the reference, where yosys can prove it.

Both are read, their flip-flops are cut open, and a SAT solver shows that outputs, next states,
clocks and asynchronous resets are the same functions of inputs and present states. Registers that
have the same name, the same power-up value and the same next state in every state hold the same
value for ever, so this is a proof by induction. It is never weaker than that:

- power-up values (`reg q = 0;`, `initial`) must agree bit by bit;
- both two-valued and with x: an x of one that is no x of the other is a difference;
- latches, memories too large to be registers, tristates, assertions, delays, and what yosys
  cannot read are undecided;
- a design whose parameters or macros the harness may set is undecided: equal at the defaults says
  nothing about other values;
- `=` and `<=` exchanged in one of several clocked processes is undecided, since the simulator's
  order of processes is not hardware's.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from rlvr_cvdp.audit.builds import (
    include_folders,
    is_plain,
    sets_defines,
    sets_parameters,
    sources,
    top_module,
    write_sources,
)
from rlvr_cvdp.audit.netlist import read_netlist
from rlvr_cvdp.audit.syntax import is_raced
from rlvr_cvdp.hdl.names import code
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.toolchain.limited import Ran, run_limited
from rlvr_cvdp.toolchain.tools import find_tool

Finding = Literal["equivalent", "different", "undecided"]

_CPU_S = 20
_SAT_S = 8
_SIMULATED = (
    "wait fork force release deassign real realtime disable $random $urandom $urandom_range "
    "$time $realtime $stime $readmemh $readmemb $fopen $plusargs"
)
_TIMED = frozenset(_SIMULATED.split())
_HIGH_Z = re.compile(r"'[sS]?[bBoOdDhH]?\s*[0-9a-fA-FxX?_]*[zZ]")
_BEFORE_DELAYS = ("begin", "else", "end", "always", "initial", "forever", "assign", "do", "default")
_READ = """\
read_verilog -sv -defer {includes} {paths}
hierarchy -check -top {top}
proc
flatten
memory_map
opt_clean
write_json {name}.json
design -reset
"""
_PROVE = """\
read_json gold_cut.json
read_json gate_cut.json
miter -equiv -flatten gold gate miter
sat -verify -prove trigger 0 -timeout {seconds} miter
sat -verify -enable_undef -set-def-inputs -prove trigger 0 -timeout {seconds} miter
"""


def compare(
    problem: CvdpProblem, reference: Mapping[str, str], mutant: Mapping[str, str]
) -> Finding:
    """
    Compare two sets of files that differ in one place, by yosys.

    "different" means that some input in some state tells them apart, which that state need not
    ever be reached for; only "equivalent" is a proof about the harness.
    """
    yosys, top = find_tool("yosys"), top_module(problem)
    paths = sources(problem, reference)
    every = {**problem.context, **reference}
    words = [token.text for path in paths for token in code(every[path])]
    others = [every[path] for path in paths if path not in reference]
    if not is_plain(top, *paths, *include_folders(problem, reference)):
        return "undecided"
    if yosys is None or not top or _is_timed(words) or is_raced(reference, mutant, others):
        return "undecided"
    if sets_defines(problem) and any("`if" in every[path] for path in paths):
        return "undecided"
    with tempfile.TemporaryDirectory(prefix="rlvr-cvdp-equal-") as name:
        folder = Path(name)
        script = ""
        for side, files in (("gold", reference), ("gate", mutant)):
            write_sources(folder / side, problem, files)
            script += _READ.format(
                includes=" ".join(f"-I{side}/{part}" for part in include_folders(problem, files)),
                paths=" ".join(f"{side}/{path}" for path in paths),
                top=top,
                name=side,
            )
        if _run(yosys, folder, script).rc != 0:
            return "undecided"
        gold, gate = (read_netlist(folder / f"{side}.json", side) for side in ("gold", "gate"))
        if gold.cut is None or gate.cut is None or gold.registers.keys() != gate.registers.keys():
            return "undecided"
        if gold.has_parameters and sets_parameters(problem):
            return "undecided"
        if gold.power_up != gate.power_up or gold.registers != gate.registers:
            return "different"
        for side, netlist in (("gold", gold), ("gate", gate)):
            (folder / f"{side}_cut.json").write_text(json.dumps(netlist.cut), encoding="utf-8")
        ran = _run(yosys, folder, _PROVE.format(seconds=_SAT_S))
    if ran.rc == 0:
        return "equivalent"
    failed = "proof did fail" in ran.output and "timed out" not in ran.output.lower()
    return "different" if failed else "undecided"


def _run(yosys: Path, folder: Path, script: str) -> Ran:
    (folder / "script.ys").write_text(script, encoding="utf-8")
    return run_limited([yosys, "-Q", "-s", "script.ys"], cwd=folder, cpu_s=_CPU_S)


def _is_timed(words: list[str]) -> bool:
    """Whether a text uses delays, z or random numbers, which only a simulator has."""
    if _TIMED.intersection(words):
        return True
    no_wildcards = not {"casez", "casex"}.intersection(words)
    if any(
        "'" in word and (_HIGH_Z.search(word) or ("?" in word and no_wildcards)) for word in words
    ):
        return True
    for i, word in enumerate(words[1:-1], start=1):
        # `name #(` gives parameters to an instance, a module or a class; every other # is a delay
        is_named = re.match(r"[A-Za-z_\\]", words[i - 1]) and words[i - 1] not in _BEFORE_DELAYS
        if word == "#" and not (is_named and words[i + 1] == "("):
            return True
    return False
