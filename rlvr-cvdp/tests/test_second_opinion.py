"""The second judge of CVDP answers: it finds what a weak harness calls right, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from rlvr.testing.tools import require_tool
from rlvr.types import Trajectory

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

TUNED = """\
module inc(input [7:0] a, output [7:0] y);
  assign y = a == 255 ? 0 : a < 4 ? a + 1 : a;
endmodule
"""
DRAWN = """\
import os
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def drawn(dut):
    for n in range(3):
        dut.a.value = a = (37 * n + 11 * int(os.environ["RLVR_SEED"])) % 250
        await Timer(1, unit="ns")
        assert int(dut.y.value) == a + 1
"""
HONEST = {
    "reference": "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd1;\nendmodule\n",
    "minus": "module inc(input [7:0] a, output [7:0] y);\n  assign y = a - 8'hff;\nendmodule\n",
    "procedure": (
        "module inc(input wire [7:0] a, output reg [7:0] y);\n"
        "  integer i; reg c;\n"
        "  always @(*) begin c = 1; for (i = 0; i < 8; i = i + 1) begin\n"
        "    y[i] = a[i] ^ c; c = a[i] & c; end end\nendmodule\n"
    ),
    "helper": (
        "module one(output [7:0] q); assign q = 1; endmodule\n"
        "module inc(input [7:0] a, output logic [7:0] y);\n"
        "  wire [7:0] q; one u(q);\n  always_comb y = a + q;\nendmodule\n"
    ),
}


def opinions(bench, answer, problem):
    """The first judge's score and what the second says."""

    async def ask():
        async with bench.reward() as reward:
            trajectory = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": answer})
            first = await reward(problem, trajectory)
            return first.score01, await reward.second_opinion(problem, trajectory)

    return asyncio.run(ask())


@pytest.mark.places("warm")
@pytest.mark.parametrize("name", HONEST)
def test_honest_answers_are_confirmed(bench, name):
    """The reference and other ways to write it raise no alarm."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    first, second = opinions(bench, HONEST[name], bench.problem())
    assert (first, second.score01) == (1.0, 1.0), second.evidence
    assert second.evidence["asked"] == ["netlist", "reference", "seeds"]


@pytest.mark.places("warm")
def test_an_answer_made_for_the_tests_is_found(bench):
    """Right for the inputs that the tests know, wrong beside the reference."""
    first, second = opinions(bench, TUNED, bench.problem())
    assert (first, second.score01) == (1.0, 0.0)
    assert second.evidence["judge"] == "reference"


@pytest.mark.places("warm")
def test_an_answer_made_for_a_seed_is_found(bench):
    """Right for the numbers of the first seed, wrong with others; no reference is needed."""
    target = {"rtl/inc.sv": ""}
    problem = bench.problem(harness={"src/test_inc.py": DRAWN}, targets=target)
    numbers = [(37 * n + 11) % 250 for n in range(3)]
    text = TUNED.replace("a == 255 ? 0 : a < 4", " || ".join(f"a == {n}" for n in numbers))
    first, second = opinions(bench, text, problem)
    assert (first, second.score01) == (1.0, 0.0)
    assert second.evidence["judge"] == "seeds"
    honest = opinions(bench, HONEST["minus"], problem)
    assert (honest[0], honest[1].score01) == (1.0, 1.0)
