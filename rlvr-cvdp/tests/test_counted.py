"""Where synthesis or lint is scored, the netlist that was scored must pass the tests, too."""

from __future__ import annotations

import pytest

from rlvr.testing.tools import require_tool
from rlvr_cvdp.netlist import twin

from .conftest import ENV as INC_ENV

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

COMPOSE_MORE = """\
  synth:
    image: __OSS_PNR_IMAGE__
    env_file: ./src/.env
    command: pytest /src/synth.py -s -v
"""
SYNTH = """\
import re, subprocess
def test_synth():
    subprocess.run("yosys -s /src/synth.tcl -l /code/rundir/synth.log", shell=True)
    with open("/code/rundir/synth.log") as log:
        found = re.findall(r"Number of cells:\\s+(\\d+)", log.read())
    assert int(found[-1]) <= CELLS, found
"""
SCRIPT = """\
read_verilog -sv /code/rtl/led.sv
hierarchy -check -top led
proc; opt; fsm; opt; memory; opt
techmap; opt
synth -top led
clean
write_verilog -noattr /code/rundir/netlist.v
"""
QUICK = SCRIPT.replace("techmap; opt\n", "").replace("synth -top led", "synth -top led -noabc")
ENV = INC_ENV.replace("inc", "led")
TEST = """\
import random
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge, Timer

@cocotb.test()
async def counts(dut):
    for signal in dut:
        if getattr(signal, "_type", "") == "GPI_NET":
            signal.value = 0
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    dut.en.value = 0
    dut.step.value = 0
    await FallingEdge(dut.clk)
    await FallingEdge(dut.clk)
    dut.rst.value = 0
    expected = 0
    for _ in range(60):
        en, step = random.randint(0, 1), random.randint(0, 15)
        dut.en.value, dut.step.value = en, step
        await FallingEdge(dut.clk)
        expected = (expected + en * step) % 256
        assert int(dut.led.value) == expected
        assert int(dut.top.value) == (expected > 200)
"""
GIVEN = """\
module led(input clk, input rst, input en, input [3:0] step, output reg [7:0] led, output top);
  reg [7:0] next;
  always @* begin
    next = led;
    if (en && step != 0) next = led + step;
    else if (!en) next = led + 0;
  end
  always @(posedge clk or posedge rst)
    if (rst) led <= 0;
    else led <= next;
  assign top = led > 200;
endmodule
"""
RIGHT = """\
module led(input clk, input rst, input en, input [3:0] step, output reg [7:0] led, output top);
  always @(posedge clk or posedge rst)
    if (rst) led <= 0;
    else if (en) led <= led + step;
  assign top = led > 200;
endmodule
"""


def scored(bench, test=TEST, cells=90, given=GIVEN, script=SCRIPT, more=None, **changes):
    """A problem whose harness counts the cells of led.sv."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    harness = {
        "docker-compose.yml": bench.compose + COMPOSE_MORE,
        "src/.env": ENV,
        "src/synth.py": SYNTH.replace("CELLS", str(cells)),
        "src/synth.tcl": script,
        "src/test_led.py": test,
        "src/test_inc.py": None,
        **changes,
    }
    context = {**({"rtl/led.sv": given} if given else {}), **(more or {})}
    row = {"harness": harness, "context": context, "targets": {"rtl/led.sv": ""}}
    return bench.problem(categories=["cid007", "easy"], **row)


def judge(bench, text, problem, **options):
    return bench.judge({"rtl/led.sv": text}, problem, **options)


def gated(trick, on="quiet"):
    """The right design, whose registers hold still where a trick's signal is 1."""
    return RIGHT.replace("  always @(posedge", f"  {trick}\n  always @(posedge", 1).replace(
        "else if (en)", f"else if (en & ~{on})"
    )


OTHER = (
    "module led(input clk, input rst, input en, input [3:0] step, output [7:0] led, output top);"
)
CHEATS = {
    "no event": gated("reg quiet; always @* quiet = 1'b1;").replace("~quiet", "(quiet !== 1)"),
    "order of initial values": gated("reg go; initial go <= 1; initial go = 0;", "go").replace(
        "~go", "go"
    ),
    "translate_off": RIGHT.replace(
        "+ step", "// synthesis translate_off\n + step\n// synthesis translate_on\n"
    ),
    "translate_off of synopsys": RIGHT.replace(
        "+ step", "/* synopsys translate_off */ + step /* synopsys translate_on */"
    ),
    "ifdef SYNTHESIS": f"`ifdef SYNTHESIS\n{OTHER} assign led = step * step; endmodule\n"
    f"`else\n{RIGHT}`endif\n",
    "ifndef YOSYS": RIGHT.replace("+ step", "\n`ifndef YOSYS\n + step\n`endif\n"),
    "ifdef __ICARUS__": RIGHT.replace("+ step", "\n`ifdef __ICARUS__\n + step\n`endif\n"),
    "clock of the simulation": gated("reg quiet; always @(posedge clk) quiet <= $time == 0;"),
    "initial value against an event": gated(
        "reg quiet = 1; always @(quiet) quiet = 1; initial #0 quiet = 1;"
    ).replace("~quiet", "(quiet | 1)"),
    "black box": "(* blackbox *) module core(input [7:0] a, input [3:0] b, output [7:0] y);\n"
    "  assign y = a + b;\nendmodule\n"
    + RIGHT.replace("led + step", "sum").replace(
        "  always @", "  wire [7:0] sum; core u(led, step, sum);\n  always @", 1
    ),
}
CHEATS.pop("initial value against an event")
BOX = CHEATS["black box"]
CHEATS |= {
    "white box": BOX.replace("blackbox", "whitebox"),
    "box for abc9": BOX.replace("blackbox", "abc9_box, abc9_box_id = 3, whitebox = 1"),
    "white box around all": "(* whitebox *) " + RIGHT.replace("module led", "module core")
    + f"{OTHER}\n  core u(clk, rst, en, step, led, top);\nendmodule\n",
    "a parameter from elsewhere": gated("sub u(); defparam u.V = 1; wire quiet = u.V;").replace(
        "~quiet", "quiet") + "module sub; parameter V = 0; endmodule\n",
    "an edge of an initial value": gated(
        "reg k = 0, quiet = 0; initial #0 k = 1; always @(posedge k) quiet = 1;").replace(
        "~quiet", "quiet"),
}  # fmt: skip
HONEST = {
    "as given": GIVEN,
    "typed": """\
module led(
  input  logic clk, rst, en, input logic [3:0] step, output logic [7:0] led, output logic top);
  typedef enum logic { HOLD, ADD } kind_t;
  kind_t kind;
  always_comb begin kind = HOLD; if (en) kind = ADD; end
  always_ff @(posedge clk, posedge rst)
    if (rst) led <= '0;
    else case (kind) ADD: led <= led + step; default: ; endcase
  assign top = led > 8'd200;
endmodule
""",
    "function": RIGHT.replace("led + step", "add(led, step)").replace(
        "  always @",
        "  function [7:0] add(input [7:0] a, input [3:0] b); add = a + b; endfunction\n  always @",
        1,
    ),
    "initial value": RIGHT.replace("  always @", "  initial led = 8'd9;\n  always @", 1),
    "no reset of a register": RIGHT.replace(
        "assign top",
        "reg [3:0] last;\n  always @(posedge clk) last <= step;\n  wire odd = ^last;\n  assign top",
    ),
    "helper": "module add(input [7:0] a, input [3:0] b, output [7:0] y);\n"
    "  assign y = a + b;\nendmodule\n"
    + RIGHT.replace("led + step", "sum").replace(
        "  always @", "  wire [7:0] sum; add u(led, step, sum);\n  always @", 1
    ),
    "prints counts": RIGHT.replace(
        "endmodule",
        '  initial begin $display("latency %0d", 3); $write("4 cells\\n"); end\nendmodule',
    ),
    "names, strings and attributes": RIGHT.replace("8'd0", "")
    .replace(
        "assign top = led > 200;",
        """(* keep = "true", note = "has 3 cells: a" *) wire [7:0] \\sum[0].x  = led;
  localparam [23:0] MARK = "a:b"; localparam WIDE = (MARK == "a:b") ? 200 : 0;
  cells #(.HOW("as is")) cells(.led(\\sum[0].x ), .top(top));
endmodule
module cells #(parameter HOW = "x y")(input [7:0] led, output top);
  assign top = (HOW == "as is") & (led > 200);""",
    )
    .replace("WIDE = ", "WIDE = "),
    "full case, guarded": "`ifndef LED_SV\n`define LED_SV\n// SYNTHESIS and YOSYS\n"
    + RIGHT.replace(
        "else if (en) led <= led + step;",
        "else (* full_case, parallel_case *) case (en) 0: ; 1: led <= led + step; endcase",
    )
    + "`endif\n",
    "generate": RIGHT.replace(
        "assign top = led > 200;",
        "genvar i; wire [7:0] k;\n  generate for "
        "(i = 0; i < 8; i = i + 1) begin : g assign k[i] = led[i]; end endgenerate\n"
        "  assign top = k > 200;",
    ),
}


@pytest.mark.one_of(
    5, "black box", "order of initial values", "an edge of an initial", "translate_off of"
)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", CHEATS)
def test_a_design_that_synthesises_to_another_is_refused(bench, name):
    """Right in simulation and in synthesis, but not the same design: the tests decide."""
    problem = scored(bench, cells=200, script=QUICK)
    found = judge(bench, CHEATS[name], problem)
    assert (found.score01, found.value) == (0.0, 0.5), found.evidence
    assert found.evidence["official"] is True, found.evidence
    assert found.evidence["netlist"]["basis"] == "refuted"
    assert found.evidence["netlist"]["why"].startswith("direct: the "), found.evidence
    assert found.evidence["stage"] == "netlist"


@pytest.mark.places("warm")
def test_the_official_verdict_asks_for_no_netlist(bench):
    """`cvdp.verdict=official` pays for what is right in simulation and small in synthesis."""
    found = judge(bench, CHEATS["no event"], scored(bench), verdict="official")
    assert (found.score01, found.value) == (1.0, 1.0), found.evidence


@pytest.mark.one_of(3, "names, strings and attributes")
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", HONEST)
def test_honest_designs_pass_as_their_netlist(bench, name):
    """The given design and other ways to write it stay right."""
    script = SCRIPT if name in ("as given", "typed") else QUICK  # abc sees no names or macros
    found = judge(bench, HONEST[name], scored(bench, cells=200, script=script))
    assert found.score01 == 1.0, found.evidence
    assert found.evidence["netlist"]["basis"] == "simulated"
    assert len(found.evidence["netlist"]["netlists"]) == 1
    assert found.evidence["netlist"]["tools"] == ["yosys"]


SAID = SYNTH.replace(
    'r"Number of cells:\\s+(\\d+)", log.read())',
    'r"\\bcells\\W+(\\d+)|(\\d+) cells", log.read())',
).replace("int(found[-1]) <= CELLS", "int(found[0][0] or found[0][1]) <= 2")
SPEECHES = {
    "a task": '  initial $display("Number of cells:    1");',
    "two lines": '  initial begin $write("Number of cells:\\n"); $write("%0d\\n", 1); end',
    "a macro": '`define SAY $display\n  initial `SAY("1 cells");',
    "a pasted macro": '`define J(a, b) a``b\n  initial `J($dis, play)("1 cells");',
    "a macro with arguments": '`define SAY(t) $display("%s: 1", t);\n  initial `SAY("cells")',
    "a loop": '  integer i;\n  initial for (i = 1; i < 2; i = i + 1) $display("cells - %0d", i);',
    "a name": "endmodule\nmodule \\cells:1 (input a);",
}


@pytest.mark.one_of(3, "a pasted macro")
@pytest.mark.places("warm")
@pytest.mark.parametrize("how", SPEECHES)
def test_a_count_that_the_answer_itself_says_is_none(bench, how):
    """The harness takes the first words that look like a count; a silent answer must pass, too."""
    said = RIGHT.replace("endmodule", f"{SPEECHES[how]}\nendmodule")
    problem = scored(bench, script=QUICK, **{"src/synth.py": SAID})
    found = judge(bench, said, problem)
    assert (found.score01, found.value) == (0.0, 0.5), found.evidence
    assert found.evidence["official"] is True
    assert found.evidence["stage"] == "netlist"
    assert "can tell the tool nothing" in found.evidence["netlist"]["why"]


CALLS = {
    "by its path": ("$(readlink -f $(which -a yosys | tail -1)) -s /src/synth.tcl", QUICK),
    "by Tcl": (
        "yosys -c /src/synth.tcl",
        "yosys -import\nset top led\nforeach file [glob /code/rtl/*.sv] {\n"
        "  read_verilog -sv -DMODE=1 $file\n}\nsynth -top $top\nyosys stat\n",
    ),
    "by Tcl and its path": (
        "$(readlink -f $(which -a yosys | tail -1)) -Tc/src/synth.tcl",
        "yosys read_verilog -sv -DMODE=1 /code/rtl/led.sv; yosys synth -top led; yosys stat\n",
    ),
    "by a script of a script": ("yosys -p 'script /src/synth.tcl'", QUICK),
    "in one word": ("yosys -Qs/src/synth.tcl", QUICK),
    "with a macro of its own": ("yosys -D MODE=1 -s/src/synth.tcl", QUICK),
    "as a file to read": (
        "yosys -f 'verilog -sv -DMODE=1' -p 'synth -top led; stat' /code/rtl/led.sv", SCRIPT
    ),
}  # fmt: skip
BY_MODE = f"`ifdef MODE\n{OTHER} assign led = step * step; endmodule\n`else\n{RIGHT}`endif\n"


@pytest.mark.one_of(7, "by a script of a script", "as a file to read")
@pytest.mark.places("warm", "rootfs", "docker")
@pytest.mark.parametrize("how", CALLS)
def test_the_call_is_followed_however_it_is_made(bench, how):
    """By a path, by Tcl, by scripts in scripts, with macros: what this call reads is judged."""
    call, script = CALLS[how]
    script = script.replace("read_verilog -sv /code", "read_verilog -sv -DMODE=1 /code")
    if how == "with a macro of its own":
        script = QUICK
    synth = SYNTH.replace("yosys -s /src/synth.tcl", call).replace("CELLS", "200")
    synth = synth.replace("-l /code/rundir/synth.log", "> /code/rundir/synth.log")
    script = script.replace("clean\n", "clean\nstat\n")
    problem = scored(bench, script=script, **{"src/synth.py": synth})
    found = judge(bench, BY_MODE, problem)
    assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence
    assert found.evidence["netlist"]["tools"] == ["yosys"]
    found = judge(bench, RIGHT, problem)
    assert (found.score01, found.evidence["netlist"]["basis"]) == (1.0, "simulated"), found.evidence


@pytest.mark.thorough
@pytest.mark.places("fresh")
def test_a_fresh_sandbox_simulates_the_netlist(bench):
    """The wrappers are in each sandbox; the calls above are made in the others."""
    problem = scored(bench, cells=200, script=QUICK)
    found = judge(bench, CHEATS["no event"], problem)
    assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence
    assert judge(bench, RIGHT, problem).score01 == 1.0


WIDE = """\
    for width in (4, 8):
        runner.build(
            sources=os.getenv("VERILOG_SOURCES").split(), hdl_toplevel="led", always=True,
            clean=True, parameters={"W": width}, defines={"STEP": 1},
            includes=["/code/rtl/inc"], timescale=("1ns", "1ps"), log_file="sim.log",
        )
        runner.test(hdl_toplevel="led", test_module=os.getenv("MODULE"))
"""
WIDE_TEST = TEST.replace("% 256", "% 2 ** int(dut.W.value)").replace(
    "assert int(dut.top.value) == (expected > 200)", "assert len(dut.led) == int(dut.W.value)"
)
WIDE_DESIGN = """\
`include "kind.vh"
module led #(parameter W = 8) (
  input clk, input rst, input en, input [3:0] step, output `KIND [W-1:0] led, output top);
  TRICK
  always @(posedge clk or posedge rst)
    if (rst) led <= 0;
    else if (en & GO) led <= led + step * `STEP;
  assign top = led > 200;
endmodule
"""


@pytest.mark.places("warm")
def test_each_build_has_a_netlist_with_its_parameters(bench):
    """A trick that is there with one parameter only is found with that one."""
    runner = bench.runner
    start = runner.index("    runner.build")
    runner = runner[:start] + WIDE
    changes = {
        "src/test_runner.py": runner,
        "src/synth.tcl": QUICK.replace("-sv ", "-sv -DSTEP=1 -I/code/rtl/inc "),
    }
    problem = scored(
        bench,
        test=WIDE_TEST,
        cells=200,
        given=None,
        more={"rtl/inc/kind.vh": "`define KIND reg\n"},
        **changes,
    )
    honest = WIDE_DESIGN.replace("TRICK", "").replace("GO", "1'b1")
    found = judge(bench, honest, problem)
    assert found.score01 == 1.0, found.evidence
    assert len(found.evidence["netlist"]["netlists"]) == 2
    trick = "reg quiet; generate if (W == 4) begin always @* quiet = 1'b1; end "
    trick += "else begin always @(posedge clk) quiet = 1'b0; end endgenerate"
    cheat = WIDE_DESIGN.replace("TRICK", trick).replace("GO", "(quiet !== 1)")
    found = judge(bench, cheat, problem)
    assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence


LINT = """\
import subprocess
def test_lint():
    lint = ["verilator", "--lint-only", "-Wall", "-Wno-DECLFILENAME", "--top-module", "lamp"]
    lint.append("/code/rtl/led.sv")
    assert subprocess.run(lint).returncode == 0
"""
CLEAN = """\
module lamp(
  input logic clk, input logic rst, input logic en, input logic [3:0] step,
  output logic [7:0] led, output logic top);
  always_ff @(posedge clk or posedge rst)
    if (rst) led <= 8'd0;
    else if (en) led <= led + {4'd0, step};
  assign top = led > 8'd200;
endmodule
"""


@pytest.mark.places("warm")
def test_the_design_that_a_linter_saw_must_pass_the_tests(bench):
    """What Verilator's preprocessor leaves is what is synthesised and simulated."""
    require_tool("verilator", "sudo apt-get install -y verilator")
    changes = {"src/synth.py": LINT, "src/synth.tcl": None}
    changes["src/.env"] = ENV.replace("= led\n", "= lamp\n")
    problem = scored(bench, given=GIVEN.replace("module led", "module lamp"), **changes)
    found = judge(bench, CLEAN, problem)
    assert found.score01 == 1.0, found.evidence
    assert found.evidence["netlist"]["basis"] == "simulated"
    assert found.evidence["netlist"]["tools"] == ["verilator"]
    for macro in ("VERILATOR", "verilator"):
        cheat = CLEAN.replace("+ {4'd0, step}", f"\n`ifndef {macro}\n + step\n`endif\n")
        cheat = cheat.replace("else if (en)", "else if (en & |{step, 1'b1})")
        found = judge(bench, cheat, problem)
        assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence


@pytest.mark.places("warm")
def test_a_linter_that_the_answer_silences_has_not_passed_it(bench):
    """A comment or a directive for Verilator is no repair; one that was given may stay."""
    require_tool("verilator", "sudo apt-get install -y verilator")
    changes = {"src/synth.py": LINT, "src/synth.tcl": None}
    changes["src/.env"] = ENV.replace("= led\n", "= lamp\n")
    given = GIVEN.replace("module led", "module lamp")
    off = "/* verilator lint_off WIDTH */"
    wide = CLEAN.replace("{4'd0, step}", "step")
    for mute in (f"{off}\n{wide}", f"`define Q {off}\n`Q\n{wide}"):
        problem = scored(bench, given=given, **changes)
        found = judge(bench, mute, problem)
        assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence
    problem = scored(bench, given=f"{off}\n{given}", **changes)
    assert judge(bench, f"{off}\n{wide}", problem).score01 == 1.0


GONE = TEST.replace("expected = 0\n", "expected = 0\n    assert str(dut.mark.value)\n")


@pytest.mark.thorough
@pytest.mark.places("warm")
def test_tests_that_read_what_a_netlist_lacks_leave_it_to_the_proof(bench):
    """Yosys drops an unused register: equality to the given design decides then."""
    script = SCRIPT.replace("clean\n", "opt_clean -purge\n")
    mark = "reg mark; always @(posedge clk) mark <= en;\n  assign top"
    given = GIVEN.replace("assign top", mark)
    problem = scored(bench, test=GONE, cells=200, given=given, script=script)
    found = judge(bench, RIGHT.replace("assign top", mark), problem)
    assert found.score01 == 1.0, found.evidence
    assert found.evidence["netlist"]["basis"] in ("proved", "bounded")
    cheat = CHEATS["no event"].replace("assign top", mark)
    found = judge(bench, cheat, problem)
    assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence


LIBRARY = """\
library(small) {
  cell(INVX) { area: 1; pin(A) { direction: input; }
    pin(Y) { direction: output; function: "!A"; } }
  cell(NANDX) { area: 1; pin(A) { direction: input; } pin(B) { direction: input; }
    pin(Y) { direction: output; function: "!(A&B)"; } }
  cell(DFFX) { area: 4; ff(IQ, IQN) { clocked_on: "C"; next_state: "D"; clear: "R"; }
    pin(C) { direction: input; clock: true; } pin(D) { direction: input; }
    pin(R) { direction: input; } pin(Q) { direction: output; function: "IQ"; } }
}
"""
MAPPED = "dfflibmap -liberty /src/small.lib\nabc -liberty /src/small.lib\nclean\n"


@pytest.mark.places("warm")
@pytest.mark.parametrize(
    "script", [QUICK.replace("clean\n", MAPPED), QUICK.replace("rtl/led.sv", "rtl/*.sv")]
)
def test_the_tests_judge_what_any_script_read(bench, script):
    """A script may end with cells that no simulator knows, or name its files by a pattern."""
    problem = scored(bench, cells=900, script=script, **{"src/small.lib": LIBRARY})
    found = judge(bench, RIGHT, problem)
    assert (found.score01, found.evidence["netlist"]["basis"]) == (1.0, "simulated"), found.evidence
    found = judge(bench, CHEATS["no event"], problem)
    assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence
    assert "fails on the netlist" in found.evidence["netlist"]["why"]


@pytest.mark.places("warm")
def test_without_a_simulation_the_given_design_decides(bench, monkeypatch):
    """A harness that only counts cells: the netlist must equal the given design."""
    monkeypatch.setattr(twin, "_CYCLES", 250)  # shows what no proof reaches as well
    compose = "services:\n" + COMPOSE_MORE
    problem = scored(bench, script=QUICK, **{"docker-compose.yml": compose})
    found = judge(bench, RIGHT, problem)
    assert found.score01 == 1.0, found.evidence
    assert found.evidence["netlist"]["basis"] in ("proved", "bounded")
    for wrong in (
        CHEATS["no event"],
        RIGHT.replace("> 200", "> 201"),
        f"{OTHER} assign led = step * step; endmodule\n",
    ):
        found = judge(bench, wrong, problem)
        assert (found.score01, found.evidence.get("official")) == (0.0, True), found.evidence


@pytest.mark.places("warm")
def test_what_yosys_cannot_say_of_the_given_design_is_not_held_against_an_answer(bench):
    """No simulation, and a given design that yosys cannot read: the official verdict stays."""
    compose = "services:\n" + COMPOSE_MORE
    given = GIVEN.replace("endmodule", "  real r; initial r = $sqrt(2.0) + $realtime;\nendmodule")
    problem = scored(bench, given=given, **{"docker-compose.yml": compose})
    found = judge(bench, RIGHT, problem)
    assert found.score01 == 1.0, found.evidence
    assert found.evidence["netlist"]["basis"] == "undecided"
    assert "given design" in found.evidence["netlist"]["why"]


@pytest.mark.places("warm")
def test_a_harness_that_scores_no_synthesis_asks_for_no_netlist(bench):
    """Elsewhere the simulation alone decides, as before."""
    found = bench.rtl(bench.right)
    assert found.score01 == 1.0
    assert "netlist" not in found.evidence
