"""Designs that only design, in whatever legal words: none is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlvr_cvdp.stacks import running_stack

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

SUM = "assign y = a + 8'd1;"
DUMP = 'initial begin $dumpfile("{}"); $dumpvars(0, inc); end'
BENCH = """\
module tb;
  integer fd; reg [7:0] m [0:3];
  initial begin fd = $fopen("tb.txt"); $readmemh("m.hex", m); #10 $finish; end
endmodule
"""


@pytest.mark.parametrize(
    "body",
    [
        "localparam W = $clog2(256); wire signed [W:0] s = $signed({1'b0, a}); assign y = s + 1;",
        SUM + ' always @(a) $display("%m %t PASS=1 FAIL=0", $time); initial $monitor("%d", y);',
        "function [7:0] f(input [7:0] x); f = x + 1; endfunction assign y = f(a);",
        "genvar i; wire [8:0] c; assign c[0] = 1; for (i = 0; i < 8; i = i + 1) begin : final_g\n"
        "assign y[i] = a[i] ^ c[i], c[i + 1] = a[i] & c[i]; end",
        SUM + ' always @* assert (y == a + 8\'d1 || $isunknown(a)) else $error("bad");',
        SUM + " wire [3:0] n = $countones(a); wire o = $onehot(a), u = $isunknown(a);",
        SUM + DUMP.format("dump.vcd"),
        SUM + DUMP.format("./dump.fst"),
        SUM + DUMP.format("/code/rundir/dump.vcd"),
        SUM + "`ifdef COCOTB_SIM\n" + DUMP.format("inc.vcd") + "\n`endif",
        "// the final $fopen block\nreg [7:0] final_state; wire force_x; " + SUM,
        SUM + ' final $display("done"); initial $fdisplay(32\'h8000_0002, "debug");',
        SUM + " real r; initial r = $ln(2.0) + $pow(2.0, 3.0) + $itor(3);",
        SUM + " int q[$]; initial begin q.push_back(1); q.delete(); end",
        SUM + " always @(a) if (a === 8'hxz) $finish;",
    ],
)
def test_a_right_design_is_right(bench, body):
    """Debug output, waves, assertions and names that sound like a cheat cost nothing."""
    design = bench.right.replace(SUM, body)
    assert design != bench.right
    reward = bench.rtl(design)
    assert reward.score01 == 1.0, reward.evidence


def test_a_testbench_beside_the_design_does_not_matter(bench):
    """What is never simulated may call what it likes."""
    assert bench.rtl(bench.right + BENCH).score01 == 1.0


@pytest.mark.parametrize("body", ["$display($past(a));", "$exit;", "$display($typename(a));"])
def test_what_the_simulator_lacks_is_wrong_but_no_cheat(bench, body):
    """A legal task that this simulator does not know keeps the credit for compiling."""
    reward = bench.rtl(bench.right.replace("endmodule", f"always @(a) {body}\nendmodule"))
    assert (reward.score01, reward.value) == (0.0, 0.5), reward.evidence


def test_an_include_from_the_folder_of_the_build_is_found(bench):
    """The check before the harness compiles elsewhere: a file that it misses decides nothing."""
    problem = bench.problem(context={"rtl/one.vh": "`define ONE 8'd1\n"})
    design = '`include "../../rtl/one.vh"\n' + bench.right.replace("8'd1", "`ONE")
    assert bench.rtl(design, problem).score01 == 1.0


@pytest.mark.places("fresh", "warm")
def test_a_python_that_was_called_by_a_winding_path_is_found(bench, monkeypatch):
    """`../.venv/bin/python -m rlvr` judges as any other call: paths in the sandbox are plain."""
    folder = Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", f"{folder}/../{folder.name}/python")
    stack = running_stack()
    assert stack is not None
    assert ".." not in stack.python.parts
    assert bench.rtl(bench.right).score01 == 1.0
