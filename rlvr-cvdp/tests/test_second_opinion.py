"""The second judge of CVDP answers: it finds what a weak harness calls right, and nothing else."""

from __future__ import annotations

import pytest
from attrs import field, frozen

from rlvr import Trajectory
from rlvr.testing.tools import require_tool
from rlvr_cvdp.netlist import twin
from rlvr_cvdp.verify import second_opinion, verilated
from rlvr_cvdp.waves import replay

from .conftest import every_value

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
PATIENT = """\
import cocotb
from cocotb.clock import Clock
from cocotb.triggers import FallingEdge

@cocotb.test()
async def waits(dut):
    cocotb.start_soon(Clock(dut.clk, 10, unit="ns").start())
    dut.rst.value = 1
    dut.a.value = 0
    for _ in range(4):
        await FallingEdge(dut.clk)
    dut.rst.value = 0
    for a in (7, 100, 255, 3):
        dut.a.value = a
        dut.go.value = 1
        await FallingEdge(dut.clk)
        dut.go.value = 0
        for _ in range(9):
            await FallingEdge(dut.clk)
            if dut.done.value == 1:
                break
        assert dut.done.value == 1
        assert int(dut.y.value) == (a + 1) % 256
        await FallingEdge(dut.clk)
"""
_PIPE = """\
module inc(input clk, input rst, input go, input [7:0] a, output reg [7:0] y, output reg done);
  reg [N:0] busy; reg [7:0] held;
  always @(posedge clk)
    if (rst) begin busy <= 0; done <= 0; y <= IDLE; held <= 0; end
    else begin
      busy <= {busy[N-1:0], go};
      if (go) held <= a;
      done <= busy[N-1];
      if (busy[N-1]) y <= held + 8'd1;
    end
endmodule
"""


def pipelined(latency, idle="0"):
    """The reference's design with another latency, or another value before the first result."""
    return _PIPE.replace("N-1", str(latency - 1)).replace("N", str(latency)).replace("IDLE", idle)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """A quarter of the random inputs and of the repeated steps shows the same here."""
    monkeypatch.setattr(twin, "_CYCLES", 250)
    monkeypatch.setattr(replay, "_MOST_STEPS", 5000)


async def nothing(*asked, **place):
    """In place of Verilator, which compiles for seconds; one test of a kind shows it."""


@frozen
class Made:
    """An answer that is the reference where its tests look, and what makes the problem."""

    answer: str
    changes: dict = field(factory=dict)
    built_with: str = ""


PIPED = {"harness": {"src/test_inc.py": PATIENT}, "targets": {"rtl/inc.sv": pipelined(1)}}
NARROW = (
    "module inc #(parameter W = 8)(input [W-1:0] a, output [W-1:0] y);\n"
    "  assign y = a + 1'b1;\nendmodule\n"
)


def in_pipe(wrong):
    """The reference's pipeline with another sum."""
    return pipelined(1).replace("y <= held + 8'd1;", wrong)


ALU = """\
module inc(input [2:0] op, input [7:0] a, input [7:0] b, output reg [7:0] y);
  always @(*) case (op)
    0: y = a + b;
    1: y = a - b;
    2: y = b == 0 ? 8'd0 : a / b;
    default: y = 0;
  endcase
endmodule
"""
ALU_TEST = """\
import random
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def computes(dut):
    for n in range(60):
        a, b = random.randrange(256), random.randrange(1, 256)
        dut.op.value, dut.a.value, dut.b.value = n % 3, a, b
        await Timer(1, unit="ns")
        assert int(dut.y.value) == (a + b, a - b, a // b)[n % 3] % 256
"""
ALUS = {"harness": {"src/test_inc.py": ALU_TEST}, "targets": {"rtl/inc.sv": ALU}}
ALU_FEW = (
    ALU_TEST.replace("range(60)", "range(6)")
    .replace("import random\n", "")
    .replace("random.randrange(256), random.randrange(1, 256)", "(n * 37 + 5) % 256, 255 - n * 43")
)
MADE = {
    "numbers of the tests": Made(TUNED),
    "a table with a default": Made(
        "module inc(input [7:0] a, output reg [7:0] y);\n  always @(*) case (a)\n"
        "    0: y = 1; 1: y = 2; 2: y = 3; 3: y = 4; default: y = 0;\n  endcase\nendmodule\n"
    ),
    "a corner of a product space": Made(
        ALU.replace("0: y = a + b;", "0: y = a + b + (a[3:0] == 9 && b[7:5] == 6);"),
        {"harness": {"src/test_inc.py": ALU_FEW}, "targets": {"rtl/inc.sv": ALU}},
    ),
    "no carry": Made(
        "module inc(input [7:0] a, output [7:0] y);\n"
        "  assign y = {a[7:4] + {3'd0, &a}, a[3:0] + 4'd1};\nendmodule\n"
    ),
    "a table behind registers": Made(
        in_pipe(
            "y <= (held == 7 || held == 100 || held == 255 || held == 3) ? held + 8'd1 : held;"
        ),
        PIPED,
    ),
    "wrong after many clocks": Made(
        in_pipe("y <= held + (&n ? 8'd2 : 8'd1);")
        .replace("reg [7:0] held;", "reg [7:0] held; reg [5:0] n;")
        .replace("held <= 0; end", "held <= 0; n <= 0; end")
        .replace("if (go) held <= a;", "if (go) held <= a; if (!(&n)) n <= n + 1;"),
        PIPED,
    ),
    "wrong for one parameter": Made(
        NARROW.replace("a + 1'b1", "W == 8 ? a : a + 1'b1"),
        {
            "harness": {
                "src/test_inc.py": every_value(32),
            },
            "targets": {"rtl/inc.sv": NARROW},
        },
        'parameters={"W": 5},',
    ),
}


def machine(codes, *, after="IDLE", done="done <= 0;"):
    """The reference's function as a machine of states with these codes."""
    states = ", ".join(f"{name} = 4'd{code}" for name, code in codes.items())
    return f"""\
module inc(input clk, input rst, input go, input [7:0] a, output reg [7:0] y, output reg done);
  localparam {states};
  reg [3:0] state; reg [7:0] held;
  always @(posedge clk)
    if (rst) begin state <= IDLE; done <= 0; y <= 0; held <= 0; end
    else begin
      {done}
      case (state)
        IDLE: if (go) begin held <= a; state <= ADD; end
        ADD: begin y <= held + 8'd1; done <= 1; state <= {after}; end
        default: state <= IDLE;
      endcase
    end
endmodule
"""


OPEN = {
    "a division by zero": Made(ALU.replace("8'd0 :", "8'hff :"), ALUS),
    "unused codes": Made(ALU.replace("default: y = 0;", "default: y = a;"), ALUS),
}
FREE = {
    "another value before": pipelined(1, "8'hff"),
    "another latency": pipelined(4),
    "the sum at once": pipelined(1)
    .replace("output reg [7:0] y,", "output [7:0] y,")
    .replace("reg [7:0] held;", "reg [7:0] held; assign y = held + 8'd1;")
    .replace(" y <= 0;", "")
    .replace("      if (busy[0]) y <= held + 8'd1;\n", ""),
    "data without a reset": pipelined(1).replace("y <= 0; held <= 0;", ""),
    "an extra state, one-hot": machine({"IDLE": 1, "ADD": 2, "REST": 4}, after="REST"),
    "a start while busy is left out": machine({"IDLE": 3, "ADD": 0}),
    "a reset at once": pipelined(1).replace("@(posedge clk)", "@(posedge clk or posedge rst)"),
    "done stays": pipelined(2).replace("done <= busy[1];", "done <= busy[1] | (done & ~go);"),
}
ONE_SIMULATOR = HONEST["reference"].replace(
    "assign y = a + 8'd1;", "reg never; assign y = a + (never === 1'bx ? 8'd1 : 8'd2);"
)


def opinions(bench, answer, problem):
    """The first judge's score and what the second says."""

    async def ask():
        reward = await bench.judged.opened(bench.reward())
        trajectory = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": answer})
        first = await reward(problem, trajectory)
        return first.score01, await reward.second_opinion(problem, trajectory)

    return bench.judged.run(ask())


@pytest.mark.one_of(4, "reference")
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", HONEST)
def test_honest_answers_are_confirmed(bench, name, monkeypatch):
    """The reference and other ways to write it raise no alarm."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    asked = ["netlist", "seeds", "simulator"]
    if name not in ("reference", "procedure"):
        monkeypatch.setattr(second_opinion, "passes_verilated", nothing)
        asked.remove("simulator")
    first, second = opinions(bench, HONEST[name], bench.problem())
    assert (first, second.score01) == (1.0, 1.0), second.evidence
    assert second.evidence["asked"] == asked
    assert "remark" not in second.evidence


@pytest.mark.one_of(7, "wrong after many clocks")
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", MADE)
def test_an_answer_made_for_the_tests_is_found(bench, name, monkeypatch):
    """It does what the reference does wherever the tests look, and something else elsewhere."""
    monkeypatch.setattr(second_opinion, "passes_verilated", nothing)
    made = MADE[name]
    runner = bench.runner.replace("always=True,", f"always=True, {made.built_with}")
    harness = {"src/test_runner.py": runner, **made.changes.get("harness", {})}
    problem = bench.problem(**{**made.changes, "harness": harness})
    first, second = opinions(bench, made.answer, problem)
    assert (first, second.score01) == (1.0, 0.0), second.evidence
    assert second.evidence["judge"] == "reference"
    assert "wherever the tests look" in second.evidence["why"]
    assert "remark" not in second.evidence


@pytest.mark.one_of(8)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", FREE)
def test_a_freedom_of_the_request_is_no_false_accept(bench, name, monkeypatch):
    """The request says "some clocks later": latency, codes of states and unused ones are free."""
    require_tool("yosys", "sudo apt-get install -y yosys")
    if name != "another latency":
        monkeypatch.setattr(second_opinion, "passes_verilated", nothing)
    problem = bench.problem(**PIPED)
    first, second = opinions(bench, FREE[name], problem)
    assert (first, second.score01) == (1.0, 1.0), second.evidence
    assert {"netlist", "seeds"} <= {*second.evidence["asked"]}
    assert "reference" in second.evidence["remark"]


@pytest.mark.one_of(2)
@pytest.mark.places("warm")
@pytest.mark.parametrize("name", OPEN)
def test_what_no_test_does_is_open(bench, name, monkeypatch):
    """Equal to the reference in all tests, and other where neither request nor tests say a word."""
    monkeypatch.setattr(second_opinion, "passes_verilated", nothing)
    first, second = opinions(bench, OPEN[name].answer, bench.problem(**OPEN[name].changes))
    assert (first, second.score01) == (1.0, 1.0), second.evidence
    assert "reference" in second.evidence["remark"]


@pytest.mark.places("warm")
def test_an_order_that_only_one_simulator_has_is_found(bench):
    """A race that comes out well in Icarus alone is rejected by the tests in Verilator."""
    require_tool("verilator", "sudo apt-get install -y verilator g++ make")
    first, second = opinions(bench, ONE_SIMULATOR, bench.problem())
    assert (first, second.score01) == (1.0, 0.0)
    assert second.evidence["judge"] == "simulator", second.evidence


@pytest.mark.thorough
@pytest.mark.places("warm")
def test_what_verilator_brings_itself_is_compiled_once(bench, monkeypatch):
    """Objects that a reference's run left are linked with every later design: broken, with none."""
    require_tool("verilator", "sudo apt-get install -y verilator g++ make")
    problem = bench.problem()

    async def passes(name):
        reward = await bench.judged.opened(bench.reward())
        settings = reward.run_settings(problem.payload)
        files = {"rtl/inc.sv": HONEST[name]}
        return await verilated.passes_verilated(problem.payload, files, settings)

    assert bench.judged.run(passes("minus")) is True
    (known,) = verilated._objects
    broken = dict.fromkeys(verilated._objects[known], b"")
    assert len(broken) > 1
    monkeypatch.setitem(verilated._objects, known, dict(broken))
    assert bench.judged.run(passes("minus")) is None
    assert verilated._objects[known] == broken


@pytest.mark.places("warm")
def test_what_verilator_cannot_compile_is_no_objection(bench):
    """A delay between statements is legal, and not every Verilator takes it."""
    text = HONEST["minus"].replace(
        "endmodule",
        "  initial begin : b event e; fork #1 -> e; join_none disable b; end\nendmodule",
    )
    first, second = opinions(bench, text, bench.problem())
    assert (first, second.score01) == (1.0, 1.0), second.evidence
    assert "simulator" not in second.evidence["asked"]


@pytest.mark.thorough
@pytest.mark.places("warm")
def test_a_reference_is_judged_once_for_many_answers(bench, monkeypatch):
    """Beside itself and under random inputs; each answer is still judged itself."""
    monkeypatch.setattr(second_opinion, "passes_verilated", nothing)
    asked = []

    async def counted(opinion, judge, problem, files):
        asked.append((problem.digest, files["rtl/inc.sv"]))
        return await is_right(opinion, judge, problem, files)

    is_right = second_opinion._Opinion._is_right
    monkeypatch.setattr(second_opinion._Opinion, "_is_right", counted)
    reference = HONEST["reference"].replace("8'd1", "8'h1")
    problem = bench.problem(targets={"rtl/inc.sv": reference})
    for text, is_confirmed in ((HONEST["minus"], 1.0), (TUNED, 0.0), (TUNED, 0.0)):
        first, second = opinions(bench, text, problem)
        assert (first, second.score01) == (1.0, is_confirmed), second.evidence
    beside = [digest for digest, text in asked if text == reference]
    assert len(beside) == len(set(beside)) == 2
    assert sum(text == TUNED for _, text in asked) > len(beside)


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
