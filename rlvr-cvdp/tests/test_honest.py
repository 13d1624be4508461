"""Designs that only design, in whatever legal words: none is refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlvr_cvdp.toolchain.cocotb_stacks import running_stack

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

SUM = "assign y = a + 8'd1;"
DUMP = 'initial begin $dumpfile("{}"); $dumpvars(0, inc); end'
BENCH = """\
module tb;
  integer fd; reg [7:0] m [0:3];
  initial begin fd = $fopen("tb.txt"); $readmemh("m.hex", m); #10 $finish; end
endmodule
"""


@pytest.mark.places("warm")
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


IDIOMS = {
    "console number in a parameter": "localparam STDERR = 32'h8000_0002; "
    'initial $fdisplay(STDERR, "debug");',
    "console number in a variable": 'integer out = 1; initial begin #1 $fwrite(out, "x"); end',
    "console number in an array": "integer out [0:1]; initial begin out[0] = 1; "
    '$fdisplay(out[0], "x"); end',
    "console number as an argument": "task automatic say(input integer to); "
    '$fdisplay(to, "x"); endtask initial say(1);',
    "a register forced by its own test": "reg [7:0] q; initial begin #1 force q = 3; "
    "#1 release q; force q = a; #1 release q; end",
    "a register of a helper forced": "one u(); initial begin #1 force u.q = 3; #1 release u.q; "
    "end endmodule module one; reg [7:0] q = 1;",
    "a monitor of the console": 'initial $fmonitor(1, "%d", a);',
    "a monitor of a file": 'integer fd; initial begin fd = $fopen("x.log"); '
    '$fmonitor(fd, "%d %s", a + 1, "x"); $fmonitorh(fd, 1.5 * a); end',
    "dump name of this scope": 'string n; initial begin $sformat(n, "%m.vcd"); $dumpfile(n); '
    "$dumpvars; end",
    "log name in a parameter": 'parameter L = "run.log"; integer fd; initial begin '
    'fd = $fopen(L, "a"); $fdisplay(fd, "x"); $fclose(fd); end',
    "log and console": 'integer fd; initial begin fd = $fopen("x.log") | 1; '
    '$fdisplay(fd, "x"); end',
    "log file": 'integer fd; initial begin fd = $fopen("debug.log", "w"); '
    'if (fd) $fdisplay(fd, "a"); $fflush(fd); $fclose(fd); end',
    "null device": 'integer fd; initial begin fd = $fopen("/dev/null"); $fdisplay(fd, "a"); end',
    "flush": "initial begin $fflush; $fflush(1); end",
    "dump name in a parameter": 'parameter F = "dump.vcd"; '
    "initial begin $dumpfile(F); $dumpvars(0, inc); end",
    "dump name with a blank": DUMP.format("my dump.vcd"),
    "dump name without an ending": DUMP.format("waves"),
    "dump name in a string": 'string n; initial begin n = "x.vcd"; $dumpfile(n); $dumpvars; end',
    "dump name made of a number": "initial begin "
    '$dumpfile($sformatf("dump_%0d.vcd", 3)); $dumpvars; end',
    "dump behind a plusarg": 'string n; initial if ($value$plusargs("dump=%s", n)) begin '
    "$dumpfile(n); $dumpvars; end",
    "plusarg": 'initial if ($test$plusargs("debug")) $display("a is %d", a);',
    "plusarg in a declaration": 'reg debug = $test$plusargs("debug");',
    "plusarg in a wire": 'wire debug = $test$plusargs("debug"); always @(a) if (debug) $stop;',
    "plusarg with a value": "integer n; initial begin n = 5; "
    'if (!$value$plusargs("n=%d", n)) n = 3; end',
    "written memory": 'reg [7:0] m [0:1]; initial begin m[0] = 1; $writememh("m.hex", m); end',
    "time format": 'initial begin $timeformat(-9, 2, " ns", 10); $printtimescale; end',
    "random": "reg [7:0] r; initial r = $urandom_range(3) + $random + $urandom;",
    "severity tasks": 'initial begin $info("i"); $warning("w"); end',
    "monitor": 'initial begin $monitor("%t %d", $time, y); $monitoroff; $monitoron; end',
    "strobe": 'always @(a) $strobe("a=%h", a);',
    "words that sound bad": '// $fopen("results.xml"); force release $system `include\n'
    'wire forced = 0; initial $display("PASS $finish $fopen results.xml TESTS=1");',
    "procedural assign": "reg r; always @(a) if (a[0]) assign r = 1; else deassign r;",
    "text in memory": 'reg [8*8-1:0] s; initial begin $sformat(s, "%0d", 5); $swrite(s, "x"); end',
    "log name made of a number": "integer fd; initial begin "
    'fd = $fopen($sformatf("trace_%0d.bin", 3), "w"); if (fd) $fdisplay(fd, "x"); $fclose(fd); end',
    "log name without an ending": 'integer fd; initial begin fd = $fopen("trace", "w"); '
    '$fdisplay(fd, "x"); $fclose(fd); end',
    "console by its device": 'integer fd; initial begin fd = $fopen("/dev/stderr", "w"); '
    '$fdisplay(fd, "x"); end',
    "console number of a function": "function automatic integer to(); return 32'h8000_0001; "
    'endfunction initial $fdisplay(to(), "x");',
    "channel that nothing opened": 'initial $fdisplay(2, "x");',
    "table that may be missing": 'reg [7:0] m [0:3]; initial $readmemh("init.mem", m);',
    "state of a log": 'integer fd, e; reg [639:0] m; initial begin fd = $fopen("x.log", "w"); '
    "e = $ferror(fd, m); $fclose(fd); end",
    "scanned text": 'integer n, k; initial k = $sscanf("12", "%d", n);',
}


@pytest.mark.one_of(3)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", IDIOMS)
def test_an_honest_idiom_costs_nothing(bench, name):
    """Debugging that a simulator knows is not refused, whatever it would reach outside."""
    reward = bench.rtl(bench.right.replace(SUM, SUM + "\n" + IDIOMS[name] + "\n"))
    assert reward.score01 == 1.0, reward.evidence


@pytest.mark.parametrize("name", ["rtl/rom.hex", "rtl/data/rom.mem"])
def test_an_answer_may_read_the_problems_own_data(bench, name):
    """`$readmemh` of a file that the problem gives is the design's own business."""
    table = "".join(f"{(value + 1) % 256:02x}\n" for value in range(256))
    problem = bench.problem(context={name: table})
    body = f'reg [7:0] m [0:255]; initial $readmemh("/code/{name}", m); assign y = m[a];'
    assert bench.rtl(bench.right.replace(SUM, body), problem).score01 == 1.0
    other = body.replace(f"/code/{name}", "/code/src/test_inc.py")
    assert bench.rtl(bench.right.replace(SUM, other), problem).evidence["refused"]


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_testbench_beside_the_design_does_not_matter(bench):
    """What is never simulated may call what it likes."""
    assert bench.rtl(bench.right + BENCH).score01 == 1.0


@pytest.mark.parametrize("body", ["$display($past(a));", "$exit;", "$display($typename(a));"])
def test_what_the_simulator_lacks_is_wrong_but_no_cheat(bench, body):
    """A legal task that this simulator does not know keeps the credit for compiling."""
    reward = bench.rtl(bench.right.replace("endmodule", f"always @(a) {body}\nendmodule"))
    assert (reward.score01, reward.value) == (0.0, 0.5), reward.evidence


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_an_include_from_the_folder_of_the_build_is_found(bench):
    """The check before the harness compiles elsewhere: a file that it misses decides nothing."""
    problem = bench.problem(context={"rtl/one.vh": "`define ONE 8'd1\n"})
    design = '`include "../../rtl/one.vh"\n' + bench.right.replace("8'd1", "`ONE")
    assert bench.rtl(design, problem).score01 == 1.0


@pytest.mark.one_of(2)
@pytest.mark.places("fresh", "warm")
def test_a_python_that_was_called_by_a_winding_path_is_found(bench, monkeypatch):
    """`../.venv/bin/python -m rlvr` judges as any other call: paths in the sandbox are plain."""
    folder = Path(sys.executable).parent
    monkeypatch.setattr(sys, "executable", f"{folder}/../{folder.name}/python")
    stack = running_stack()
    assert stack is not None
    assert ".." not in stack.python.parts
    assert bench.rtl(bench.right).score01 == 1.0
