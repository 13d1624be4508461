"""Proves two designs equal from power-up on: yosys, a miter and a SAT solver in a sandbox."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from attrs import evolve, frozen

from rlvr_cvdp.launch.scored_calls import Plan
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.paths import VERILOG
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox import Limits, SandboxLease

Outcome = Literal["proved", "bounded", "different", "undecided"]

PLAN = "src/.rlvr_netlist.json"
_STEPS, _SAT_S = 8, 10
_CPU_S = 20.0
"""Most that one run of yosys may take; the solver's own clock does not see what comes before it."""
_MITER = """\
read_rtlil /rlvr/out/gold.il
read_rtlil /rlvr/out/gate.il
miter -equiv -ignore_gold_x -make_outputs -flatten gold gate miter
hierarchy -top miter
clk2fflogic
opt_clean
write_rtlil /rlvr/out/miter.il
"""
_SAT = """\
read_rtlil /rlvr/out/miter.il
select miter
sat -verify -enable_undef -set-def-inputs -set-init-zero -timeout {seconds} -prove trigger 0 {how}
"""


@frozen(kw_only=True)
class Side:
    """One of two designs: its files, and how the scored call reads them."""

    files: Mapping[str, str]
    plan: Plan


@frozen
class Proof:
    """
    The result of comparing a given design with another.

    `different` covers another design that yosys cannot read or that has other ports, and one that
    is too hard for the solver where the given design against itself is not. `undecided` never
    depends on the other design alone.
    """

    finding: Outcome
    why: str


async def prove(
    problem: CvdpProblem, gold: Side, gate: Side, *, slot: SandboxLease, limits: Limits, python: str
) -> Proof:
    """
    Compare two designs by their outputs, from registers at 0 or at their declared values on.

    A step is a change of the inputs; clocks are inputs like any other. The given design may leave
    an output undefined (x); there the other design may give anything. "bounded" means no
    difference in the first 8 steps.

    Args:
        problem: The problem of both designs.
        gold: The given design.
        gate: The other one, as the score counted it.
        slot: An empty slot.
        limits: Of each run of yosys.
        python: A Python inside of it.

    Raises:
        VerifierError: The sandbox could not run.
    """
    limits = evolve(limits, cpu_s=min(limits.cpu_s, _CPU_S), wall_s=min(limits.wall_s, 5 * _CPU_S))
    if not await _write(problem, gold, "gold", slot, limits, python):
        return Proof("undecided", "yosys cannot read the given design")
    if not await _write(problem, gate, "gate", slot, limits, python):
        return Proof("different", "yosys cannot make a netlist of it")
    if await _yosys(slot, limits, _MITER) is None:
        return Proof("different", "its ports are not those of the given design")
    found = await _solve(slot, limits, f"-seq {_STEPS}")
    if found == "timeout":
        itself = evolve(gate, files=gold.files)
        if await _write(problem, itself, "gate", slot, limits, python):
            await _yosys(slot, limits, _MITER)
            if await _solve(slot, limits, f"-seq {_STEPS}") != "timeout":
                return Proof("different", "its equality to the given design could not be shown")
        return Proof("undecided", "the given design is too large for a proof")
    if found == "different":
        return Proof("different", "its netlist differs from the given design")
    if await _solve(slot, limits, f"-tempinduct -maxsteps {_STEPS} -seq 1") == "equal":
        return Proof("proved", "its netlist equals the given design in every state")
    return Proof("bounded", f"its netlist equals the given design for {_STEPS} steps")


async def _write(
    problem: CvdpProblem, side: Side, name: str, slot: SandboxLease, limits: Limits, python: str
) -> bool:
    """Make `/rlvr/out/NAME.il` of a design."""
    write_tree(slot.folder, problem, side.files)
    (slot.folder / "tree" / PLAN).write_text(side.plan.text(), encoding="utf-8")
    sources, top = simulated(problem)
    words = [*(["-s", top] if top else []), *sources]
    script = "/rlvr/python/rlvr_netlist.py"
    ran = await _run(slot, limits, [python, "-I", "-S", script, "--side", name, *words])
    return ran is not None and (slot.folder / "out" / f"{name}.il").is_file()


def simulated(problem: CvdpProblem) -> tuple[list[str], str]:
    """The sources and the top module that the harness's variables name."""
    for service in problem.services:
        sources = service.environment.get("VERILOG_SOURCES", "").split()
        top = service.environment.get("TOPLEVEL", "")
        if sources and top:
            return sources, top
    return [f"/code/{path}" for path in problem.targets if path.endswith(VERILOG)], ""


async def _solve(
    slot: SandboxLease, limits: Limits, how: str
) -> Literal["equal", "different", "timeout"]:
    output = await _yosys(slot, limits, _SAT.format(seconds=_SAT_S, how=how), any_end=True)
    text = output or ""
    if "timeout" in text.lower() or output is None or "memory exhausted" in text:
        return "timeout"
    if "SUCCESS!" in text and "proof did fail" not in text:
        return "equal"
    return "different" if "proof did fail" in text else "timeout"


async def _yosys(
    slot: SandboxLease, limits: Limits, script: str, *, any_end: bool = False
) -> str | None:
    place = slot.folder / "tree" / "src" / ".rlvr_proof.ys"
    place.write_text(script, encoding="utf-8")
    return await _run(
        slot, limits, ["/rlvr/real/yosys", "-Q", "-s", "/src/.rlvr_proof.ys"], any_end=any_end
    )


async def _run(
    slot: SandboxLease, limits: Limits, argv: list[str], *, any_end: bool = False
) -> str | None:
    """The output of a command, None if it failed or was stopped."""
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code/rundir"}
    ended = await slot.run(argv, environment=environment, limits=limits)
    if ended.rc is None or ended.rc > 128 or (ended.rc and not any_end):
        return None
    return ended.output
