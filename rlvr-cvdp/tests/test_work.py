"""Shaped reward is paid for work: the module, something new, the ports; stubs are counted."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from attrs import evolve

from rlvr import ScoredGroup, Trajectory
from rlvr.testing.tools import require_tool
from rlvr.training.metrics import of_groups
from rlvr_cvdp.hdl import names
from rlvr_cvdp.hdl.names import code
from rlvr_cvdp.netlist import same
from rlvr_cvdp.verify import designs, work

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

WRONG = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a ^ 3;\nendmodule\n"
GIVEN = """\
module inc(input [7:0] a, output [7:0] y);
  wire [7:0] t = a;
  assign y = t; // to be done
endmodule
"""
STUB = "module inc(input [7:0] a, output [7:0] y); assign y = 0; endmodule\n"

NEW = {
    "a lone macro": ("`define x\n", 0.0),
    "an include guard": ("`ifndef INC\n`define INC\n`endif\n", 0.0),
    "a module of another name": ("module foo(input [7:0] a, output [7:0] y); endmodule\n", 0.0),
    "comments": ("// module inc(input [7:0] a, output [7:0] y); endmodule\n", 0.0),
    "a condition that is off": (f"`ifdef NOPE\n{WRONG}`endif\n", 0.0),
    "a condition inside of one": (f"`ifndef A\n`ifdef B\n{WRONG}`endif\n`endif\n", 0.0),
    "its name in a string": ('`define S "module inc"\n', 0.0),
    "a macro that nobody uses": ("`define M module inc; endmodule\n", 0.0),
    "a package": ("package inc_pkg; endpackage\n", 0.0),
    "an interface of its name": ("interface inc(input [7:0] a, output [7:0] y); endinterface\n", 0),
    "no ports": ("module inc; endmodule\n", 0.1),
    "one port": ("module inc(input [7:0] a); endmodule\n", 0.1),
    "ports of another case": ("module inc(input [7:0] A, output [7:0] Y); endmodule\n", 0.1),
    "a slip": (WRONG.replace("assign", "asign ="), 0.1),
    "ports named in the body": ("module inc; reg [7:0] a, y; endmodule\n", 0.3),
    "no such part": (WRONG.replace("endmodule", "part p(); endmodule"), 0.3),
    "turned round": ("module inc(output [7:0] a, input [7:0] y); assign a = y; endmodule\n", 0.3),
    "a narrow port": (WRONG.replace("[7:0] y", "[3:0] y"), 0.3),
    "a macro that calls itself": (f"`define A `A\n{WRONG.replace('^ 3', '^ `A 3')}", 0.1),
    "macros that call each other": (f"`define A `B\n`define B `A\n{WRONG}`A\n", 0.1),
    "a file that is not there": (f'`include "nothing.vh"\n{WRONG}', 0.1),
    "a header alone": ("extern module inc(input [7:0] a, output [7:0] y);\n", 0.0),
    "an array as a port": (
        "module inc(input [7:0] a, output wire y [7:0]); assign y[0] = a[0]; endmodule\n",
        0.3,
    ),
    "an array as an input": ("module inc(input a [7:0], output [7:0] y); endmodule\n", 0.3),
    "an escaped name": (WRONG.replace("inc(", "\\inc ("), 0.5),
    "wrong": (WRONG, 0.5),
    "a macro for the keyword": (f"`define M module\n{WRONG.replace('module', '`M', 1)}", 0.5),
    "a condition that is on": (f"`ifndef NOPE\n{WRONG}`endif\n", 0.5),
    "a helper first": (f"module one; endmodule\n{WRONG}", 0.5),
}
AGAIN = {
    "as given": GIVEN,
    "other blanks": GIVEN.replace("  ", "\t\t").replace("\n", "\r\n"),
    "other comments": "/* new */\n" + GIVEN.replace("// to be done", "// done"),
    "other names": GIVEN.replace(" t ", " tmp ").replace("= t;", "= tmp;"),
    "escaped names": GIVEN.replace(" t ", " \\t  ").replace("= t;", "= \\t ;"),
    "unused names": GIVEN.replace("endmodule", "  wire z; localparam Z = 3;\nendmodule"),
    "another module": GIVEN + "module other(input q); endmodule\n",
    "attributes": "(* keep *) " + GIVEN,
    "brackets": GIVEN.replace("y = t", "y = ((t))"),
    "an empty block": GIVEN.replace("endmodule", "generate begin end endgenerate endmodule"),
    "macros": "`define T t\n" + GIVEN.replace("y = t", "y = `T"),
    "no use of a condition": "`ifdef X\nwire q;\n`endif\n" + GIVEN,
    "a time unit": "`default_nettype wire\n" + GIVEN,
}

INSIDE = {
    "an empty process": "initial begin end",
    "a process that never runs": "always @(a) if (1'b0) $display(a);",
    "an unused process": "reg [7:0] u; always @* u = a * 3;",
    "an unused function": "function [7:0] f(input [7:0] x); f = x + 1; endfunction",
    "an unused task": "task v; begin end endtask",
    "a print": 'initial $display("inc");',
    "a parameter": "parameter SIZE = 3;",
    "a condition that is off": "generate if (0) begin wire [7:0] g = a + 1; end endgenerate",
    "an unused loop": "genvar i; generate for (i = 0; i < 8; i = i + 1) begin : l wire w = a[i]; "
    "end endgenerate",
    "a state that nobody reads": "reg [7:0] n = 0; always @(posedge a[0]) n <= n + 1;",
}
SAME = {name: GIVEN.replace("endmodule", f"{text}\nendmodule") for name, text in INSIDE.items()}
SAME |= {
    "an unused instance": f"module one(output q); assign q = 1; endmodule\n"
    f"{GIVEN.replace('endmodule', 'wire q; one u(q); endmodule')}",
    "an unknown instance": GIVEN.replace("endmodule", "nothing u(a);\nendmodule"),
    **{
        f"{text} of it": GIVEN.replace("= t;", f"= {text};")
        for text in (
            *("t + 8'd0", "t | 8'd0", "~~t", "t * 1", "t ^ 8'd0", "-(-t)", "{t[7:4], t[3:0]}"),
            *("a[0] ? t : t", "t & (t | a)", "(t >> 1) * 2 + t[0]", "$unsigned(t)", "t ^ a ^ a"),
        )
    },
    "a delay": GIVEN.replace("assign", "assign #1"),
    "another order": "module inc(input [7:0] a, output [7:0] y);\n"
    "  assign y = t; wire [7:0] t; assign t = a;\nendmodule\n",
    "a process in place of it": "module inc(input [7:0] a, output reg [7:0] y);\n"
    "  always @* y = a;\nendmodule\n",
    "a loop in place of it": "module inc(input [7:0] a, output logic [7:0] y);\n"
    "  always_comb for (int i = 0; i < 8; i++) y[i] = a[i];\nendmodule\n",
    "a port with a default": GIVEN.replace("(input", "(input more = 1'b0, input"),
    "a port that nobody asked for": GIVEN.replace("(input", "(output more, input"),
    "a word of one tool": GIVEN.replace(
        "assign y", "`ifdef __ICARUS__\nassign y = t;\n`else\nassign y = 1;\n`endif\n//"
    ),
    "translate off": GIVEN.replace(
        "assign", "assign y = 0; // synthesis translate_off\nassign", 1
    ).replace("assign y = 0; ", ""),
    "one word for another": GIVEN.replace("wire [7:0] t = a;", "logic [0:7] t; assign t = a;"),
}
COUNTER = """\
module inc(input clk, input rst_n, input [7:0] a, output reg [7:0] y);
  parameter WIDTH = 8;
  reg [3:0] memory [0:7];
  always @(posedge clk or negedge rst_n)
    if (!rst_n) y <= 0; else y <= y + a + memory[a[2:0]];
  always @(posedge clk) memory[a[5:3]] <= a[3:0];
endmodule
"""
COUNTED = {
    "as given": COUNTER,
    "other names": COUNTER.replace("memory", "table_q"),
    "an inner register": COUNTER.replace("output reg", "output")
    .replace("reg [3:0]", "reg [7:0] q; assign y = q; reg [3:0]")
    .replace("y <=", "q <=")
    .replace("<= y", "<= q"),
    "turned": COUNTER.replace("y + a +", "a + y +").replace(  # tried are twice 8, and one more
        "y <= 0;", "y <= WIDTH == 10 || WIDTH == 17 || WIDTH == 24;"
    ),
    "an if for an if": COUNTER.replace(
        "if (!rst_n) y <= 0; else y <= y + a + memory[a[2:0]];",
        "begin if (rst_n) y <= y + (memory[a[2:0]] + a); else y <= 8'h00; end",
    ),
    "a register more": COUNTER.replace(
        "endmodule", "reg [7:0] n; always @(posedge clk) n <= n + 1;\nendmodule"
    ),
    "a first value": COUNTER.replace("endmodule", "initial y = 0;\nendmodule"),
    "attributes": COUNTER.replace("always", "(* full_case, keep *) always"),
}
CHANGED = {
    "a bit": COUNTER.replace("y <= 0;", "y <= 1;"),
    "another edge": COUNTER.replace("posedge clk or", "negedge clk or"),
    "a synchronous reset": COUNTER.replace(" or negedge rst_n", ""),
    "no memory": COUNTER.replace(" + memory[a[2:0]]", ""),
    "another place": COUNTER.replace("a[5:3]", "a[6:4]"),
    "a late difference": COUNTER.replace(
        "y <= y + a", "y <= (y == 8'hfe && a == 8'h01) ? 8'd0 : y + a"
    ),
    "a wider parameter": COUNTER.replace("y <= 0;", "y <= WIDTH - 8;"),
    "a latch": COUNTER.replace(
        "endmodule", "reg q; always @* if (clk) q = a[0]; endmodule"
    ).replace("+ memory", "+ q + memory"),
    "a state of more steps": COUNTER.replace(
        "endmodule",
        "reg [9:0] n; always @(posedge clk or negedge rst_n) "
        "if (!rst_n) n <= 0; else n <= n + 1; endmodule",
    ).replace("+ memory", "+ (n == 10'd1000) + memory"),
    "the wrong sign": COUNTER.replace("y + a", "y - a"),
}
LARGE = """\
module inc(input clk, input [11:0] a, input [31:0] d, output reg [31:0] y);
  reg [31:0] memory [0:4095]; reg [63:0] p; integer i;
  always @(posedge clk) begin
    for (i = 0; i < 32; i = i + 1) if (d[i]) memory[a ^ i] <= d * p[31:0] + i;
    p <= p * d + {p[31:0], p[63:32]}; y <= memory[a] * p[63:32];
  end
endmodule
"""
LARGER = {
    "an empty process": (LARGE.replace("endmodule", "initial begin end\nendmodule"), 0.0),
    "another name": (LARGE.replace("p <=", "q <=").replace("p[", "q[").replace("p *", "q *")
                     .replace("[63:0] p;", "[63:0] q;"), 0.0),
    "a bit": (LARGE.replace("+ {p[31:0]", "- {p[31:0]"), 0.5),
}  # fmt: skip
CLOCKED = """\
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def never(dut):
    dut.clk.value = dut.rst_n.value = dut.a.value = 0
    await Timer(1, unit="ns")
    assert False, int(dut.y.value)
"""


@pytest.mark.one_of(3, "an array as a port")
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", NEW)
def test_a_stage_is_paid_for_what_an_answer_did(bench, name):
    """Format wants the module, syntax its ports' names, compilation the ports."""
    text, value = NEW[name]
    reward = bench.rtl(text)
    assert reward.value == value, reward.evidence
    assert max(reward.components.values()) == value


@pytest.mark.one_of(3)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", AGAIN)
def test_the_given_design_again_is_no_work(bench, name):
    """Blanks, comments, names and what changes nothing do not make a new answer."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    reward = bench.rtl(AGAIN[name], problem)
    assert reward.value == 0.0, reward.evidence
    shared = bench.rtl(AGAIN[name], problem, tests="share")
    assert shared.value == 0.0, shared.evidence


@pytest.mark.places("warm")
@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("wire", "  wire /* a */", True),
        ("t", "\\\\else ", True),
        ("t", "a", False),
        ("wire", "reg", False),
        ("8", "9", False),
    ],
)
def test_a_given_design_that_does_not_compile_is_known_by_its_text(bench, old, new, is_same):
    """Names mean nothing in it, all else does."""
    given = "module inc(input [7:0] a, output [7:0] y); wire [8:0] t = ; assign y = t; endmodule"
    text = re.sub(rf"\b{old}\b", new, given)
    problem = bench.problem(context={"rtl/inc.sv": given}).payload
    assert work._is_given(problem, "rtl/inc.sv", text, text, code(text)) is is_same


@pytest.mark.one_of(4)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", SAME)
def test_another_text_of_the_same_circuit_is_no_work(bench, name):
    """What yosys shows to do the same as the given design is paid nothing."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    assert bench.rtl(SAME[name], problem).value == 0.0, SAME[name]


@pytest.mark.places("warm")
def test_files_that_end_within_a_line_are_compared(bench):
    """The preprocessor puts files together without a line end between them."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/one.sv")
    one = "module one #(parameter N = 1) (output q); assign q = 1; endmodule"
    context = {"rtl/inc.sv": GIVEN.rstrip() + " : inc", "rtl/one.sv": one}
    problem = bench.problem(context=context, harness={"src/.env": env})
    text = GIVEN.replace("= t;", "= ~~t;").rstrip() + " : inc"
    assert bench.rtl(text, problem).value == 0.0


@pytest.mark.one_of(3, "a late difference", "turned", "no memory")
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", [*COUNTED, *CHANGED])
def test_a_circuit_with_a_state_is_compared_in_every_state(bench, name):
    """Registers and memories of other names are the same; a difference at any time counts."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    problem = bench.problem(
        context={"rtl/inc.sv": COUNTER}, harness={"src/test_inc.py": CLOCKED},
        targets={"rtl/inc.sv": ""},
    )  # fmt: skip
    value = 0.0 if name in COUNTED else 0.5
    assert bench.rtl({**COUNTED, **CHANGED}[name], problem).value == value


@pytest.mark.places("warm")
@pytest.mark.parametrize("name", LARGER)
def test_what_is_too_large_for_a_solver_is_compared_but_for_names(bench, name):
    """Multipliers and a memory of 128 kbit: no solver ends there, the netlists are alike."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    test = CLOCKED.replace("dut.clk.value = dut.rst_n.value = dut.a.value", "dut.a.value")
    problem = bench.problem(
        context={"rtl/inc.sv": LARGE}, harness={"src/test_inc.py": test}, targets={"rtl/inc.sv": ""}
    )
    text, value = LARGER[name]
    assert bench.rtl(text, problem).value == value


LOOP = """\
module inc(input [7:0] a, output reg [7:0] y);
  integer i;
  always @* begin y = a; for (i = 0; i < 100000; i = i + 1) y = y + 1; end
endmodule
"""


@pytest.mark.thorough
@pytest.mark.places("warm")
def test_a_long_loop_of_constants_costs_few_seconds(bench, monkeypatch):
    """Yosys unrolls it: each tool has four seconds, however long a verification may take."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    asked = []

    async def counted(argv, slot, limits):
        asked.append((argv[0], limits))
        return await runs(argv, slot, evolve(limits, cpu_s=0.5))

    runs = same.runs
    assert (same._CPU_S, same._WALL_S) == (4.0, 10.0)
    for module in (same, designs):  # one compares the two, one asks whether it is a stub
        monkeypatch.setattr(module, "runs", counted)
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    assert bench.rtl(LOOP, problem).value == 0.5
    assert [name for name, _ in asked].count("/rlvr/real/yosys") == 2


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_changed_design_counts(bench):
    """Beside the given design a wrong one is paid for its stages, and a right one in full."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})
    assert bench.rtl(WRONG, problem).value == 0.5
    assert bench.rtl(bench.right, problem).value == 1.0
    assert bench.rtl("`define x\n", problem).value == 0.0


@pytest.mark.places("warm")
@pytest.mark.parametrize(
    ("files", "value"),
    [
        ({"rtl/inc.sv": WRONG}, 0.0),
        ({"rtl/inc.sv": WRONG, "rtl/defs.vh": "// nothing\n"}, 0.0),
        ({"rtl/defs.vh": "`define N 3\n"}, 0.0),
        ({"rtl/inc.sv": WRONG, "rtl/defs.vh": "`define N 3\n"}, 0.5),
        ({"rtl/inc.sv": WRONG.rstrip(), "rtl/defs.vh": "`define N 3"}, 0.5),
    ],
)
def test_every_file_to_write_must_be_there(bench, files, value):
    """Of several targets none may be missing or empty; a header needs no module."""
    problem = bench.problem(targets={"rtl/inc.sv": "", "rtl/defs.vh": ""})
    assert bench.judge(files, problem).value == value


@pytest.mark.places("warm")
def test_files_without_a_last_line_end_count(bench):
    """Several files go through the preprocessor together, each for itself."""
    env = bench.env.replace("/code/rtl/inc.sv", "/code/rtl/inc.sv /code/rtl/one.sv")
    targets = {"rtl/inc.sv": "", "rtl/one.sv": ""}
    problem = bench.problem(harness={"src/.env": env}, targets=targets)
    one = "module one(input a); endmodule"
    assert bench.judge({"rtl/inc.sv": WRONG.rstrip(), "rtl/one.sv": one}, problem).value == 0.5
    assert bench.judge({"rtl/inc.sv": WRONG.rstrip(), "rtl/one.sv": "// one"}, problem).value == 0.0


@pytest.mark.places("warm")
@pytest.mark.parametrize("given", ["", GIVEN], ids=["new", "beside a given file"])
def test_each_text_is_read_as_tokens_once(bench, monkeypatch, given):
    """An answer may be a megabyte long: no text of it is split into tokens again."""
    read = Counter()
    monkeypatch.setattr(names, "code", reading := lambda text: read.update([text]) or code(text))
    monkeypatch.setattr(work, "code", reading)
    problem = bench.problem(context={"rtl/inc.sv": given} if given else {})

    assert bench.rtl(WRONG, problem).value == 0.5
    assert any("a ^ 3" in text for text in read)
    assert {text: count for text, count in read.items() if count > 1 and "a ^ 3" in text} == {}


@pytest.mark.places("warm")
def test_stubs_are_counted_and_may_be_paid_less(bench):
    """A stub compiles: `cvdp.stub_stage` says what that is worth, a metric how many there are."""
    problem = bench.problem()
    for stub in (STUB, STUB.replace("assign y = 0;", ""), STUB.replace("= 0", "= a & 0")):
        assert bench.rtl(stub, problem).value == 0.5
        assert bench.rtl(stub, problem, stub_stage="format").value == 0.1
    answers = (STUB, WRONG, bench.right)
    rewards = [bench.rtl(text, problem, stub_stage="syntax") for text in answers]
    assert [reward.value for reward in rewards] == [0.3, 0.5, 1.0]
    trajectories = tuple(Trajectory.from_text(problem.id, "x") for _ in answers)
    group = ScoredGroup(problem=problem, trajectories=trajectories, outcomes=tuple(rewards))
    assert of_groups([group])["reward/stub_share"] == pytest.approx(1 / 3)


@pytest.mark.places("warm")
def test_the_proxy_pays_for_work_too(bench):
    """Early training by the compiler alone pays neither an empty module nor the given one."""
    problem = bench.problem(context={"rtl/inc.sv": GIVEN})

    async def ask(text):
        reward = await bench.judged.opened(bench.reward(proxy="compile", proxy_steps=1))
        judge = reward.at_step(0, {})
        answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": text})
        return (await judge(problem, answer)).value

    assert bench.judged.run(ask(GIVEN)) == 0.0
    assert bench.judged.run(ask("module inc; endmodule\n")) == 0.1
    assert bench.judged.run(ask(WRONG)) == 0.5
