"""Compiles an answer before its harness is started: 10 ms instead of half a second."""

from __future__ import annotations

from typing import Literal

from attrs import evolve, field, frozen

from rlvr import VerifierError
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.messages import ToolMessage, read_messages
from rlvr_cvdp.sandbox import Limits, SandboxLease
from rlvr_cvdp.sandbox.records import waited
from rlvr_cvdp.verify.work import Work

_MOST_S = 20.0
"""Processor time of a compile before the harness; where it is not enough the harness decides."""

Stage = Literal["compiled", "parsed", "broken", "unknown"]


@frozen(kw_only=True)
class Gate:
    """
    How far the compiler came with the sources that the harness names.

    `decides` says that the harness would meet the same syntax error, so it need not be run.
    `lints` is Verilator's word where it was asked for; `messages` is what the compiler said;
    `work` says which stages may count.
    """

    stage: Stage = "unknown"
    decides: bool = False
    lints: bool | None = None
    message: str = ""
    messages: tuple[ToolMessage, ...] = ()
    work: Work = field(factory=Work)


async def try_compile(
    problem: CvdpProblem, slot: SandboxLease, limits: Limits, *, with_verilator: bool
) -> Gate:
    """
    Compile the tree in a slot as the first cocotb service would, with default parameters.

    Only a *syntax* error can decide: parameters that the harness sets may make or break an
    elaboration, but never the parse. Where the service's build is not plain, nothing decides, nor
    where a file to include is not found: the harness compiles in another folder.
    """
    service = next((s for s in problem.services if s.runs_cocotb and not s.tool), None)
    if service is None:
        return Gate()
    sources = service.environment.get("VERILOG_SOURCES", "").split()
    top = service.environment.get("TOPLEVEL", "")
    if not sources or not top:
        return Gate()
    compiler = ["/rlvr/real/iverilog", "-g2012", "-t", "null", "-s", top, *sources]
    rc, output = await _run(compiler, slot, limits)
    lints = None
    if with_verilator:
        lint = ["verilator", "--lint-only", "-Wno-lint", "-Wno-style", "-Wno-fatal", "--top-module"]
        lint_rc, _ = await _run([*lint, top, *sources], slot, limits)
        lints = lint_rc == 0
    if rc == 0:
        return Gate(stage="compiled", lints=lints)
    if rc is None:
        return Gate(lints=lints, message="its compilation does not end")
    line = next((line for line in output.splitlines() if "error" in line), output)
    said = Gate(lints=lints, message=line[:200], messages=read_messages(output))
    if "error(s) during elaboration" in output:
        return evolve(said, stage="parsed")
    says_syntax = any(word in output for word in ("syntax error", "I give up", "error:"))
    is_sure = service.has_plain_build and rc < 128 and "Include file" not in output
    return evolve(said, stage="broken", decides=is_sure and says_syntax)


async def _run(argv: list[str], slot: SandboxLease, limits: Limits) -> tuple[int | None, str]:
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/code/rundir"}
    limits = evolve(limits, cpu_s=min(limits.cpu_s, _MOST_S))
    finished = await slot.run(argv, environment=environment, limits=limits)
    if finished.stopped in ("idle", "wall"):
        raise VerifierError(f"its compilation, {waited(finished, limits)}")
    return finished.rc, finished.output
