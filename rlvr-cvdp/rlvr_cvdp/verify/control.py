"""Control probes: whether what happened in a sandbox is the machine's doing or the answer's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import PurePosixPath
from typing import Any

from rlvr import VerifierError
from rlvr_cvdp.problem import CvdpProblem, Service

_MOST_KNOWN = 512
_TEST = """\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def adds_one(dut):
    dut.a.value = 41
    await Timer(1, "ns")
    assert int(dut.y.value) == 42
"""
_RUNNER = """\
import @RUNNER@ as runner

def test_control():
    simulator = runner.get_runner("icarus")
    simulator.build(verilog_sources=["/code/rtl/inc.sv"], hdl_toplevel="inc", always=True,
                    timescale=("1ns", "1ps"))
    simulator.test(hdl_toplevel="inc", test_module="test_inc")
"""
RIGHT = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd1;\nendmodule\n"


Judge = Callable[[CvdpProblem, Mapping[str, str]], Awaitable[Any]]
"""Gives the `Verdict` on an answer."""


class Control:
    """Known answers; one is judged after the verification of an answer was disturbed."""

    def __init__(self) -> None:
        self._right: dict[str, Mapping[str, str]] = {}

    def remember(self, problem: CvdpProblem, files: Mapping[str, str]) -> None:
        """Keep an answer that was right: the next one's control, where there is no reference."""
        if not problem.reference and len(self._right) < _MOST_KNOWN:
            self._right.setdefault(problem.digest(), dict(files))

    async def passes(self, problem: CvdpProblem, judge: Judge) -> bool:
        """
        Whether a known answer is judged as it should be, at this moment and in this sandbox.

        That is the problem's reference, or an answer that was right before. Where there is none, a
        problem of our own must be judged right, and the problem's harness must come to some
        verdict on an answer that does nothing.
        """
        known = problem.reference or self._right.get(problem.digest())
        try:
            verdict = await judge(problem, known or _nothing(problem))
            if known and verdict.is_right:
                return True
            own = own_problem(problem.generation)
            return bool((await judge(own, {"rtl/inc.sv": RIGHT})).is_right)
        except VerifierError:
            return False


def own_problem(generation: int) -> CvdpProblem:
    """A small problem for a generation of cocotb, which `module inc` with y = a + 1 solves."""
    module = "cocotb_tools.runner" if generation == 2 else "cocotb.runner"
    return CvdpProblem(
        id="control",
        category="cid003",
        difficulty="easy",
        prompt="",
        context={},
        targets=("rtl/inc.sv",),
        harness={
            "src/test_control.py": _RUNNER.replace("@RUNNER@", module),
            "src/test_inc.py": _TEST,
        },
        services=(Service(name="control", command=("pytest", "/src/test_control.py")),),
        generation=generation,
    )


def _nothing(problem: CvdpProblem) -> Mapping[str, str]:
    """What the targets held before an answer, or modules without ports."""
    return {
        path: problem.context.get(path) or f"module {PurePosixPath(path).stem};\nendmodule\n"
        for path in problem.targets
    }
