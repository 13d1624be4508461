"""Training-only rows: golden designs and testbenches judge with the same sandbox and checks."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest

from rlvr import Reward
from rlvr_cvdp.datasets.from_public.testbench import PASS_PATTERN

COUNTER = """\
module counter #(parameter W = 4) (
  input  wire clk, rst_n, en,
  input  wire [W-1:0] load,
  output reg  [W-1:0] q,
  output wire last
);
  edge_of finder (.q(q), .last(last));
  always @(posedge clk or negedge rst_n)
    if (!rst_n) q <= 0;
    else if (en) q <= q + 1;
    else if (load != 0) q <= load;
endmodule

module edge_of(input [3:0] q, output last);
  assign last = &q;
endmodule
"""
ADDER = "module adder(input [3:0] a, b, output [4:0] y);\n  assign y = a + b;\nendmodule\n"
BENCH = """\
`timescale 1ns/1ps
module tb;
  reg [3:0] a, b;
  wire [4:0] y;
  integer errors = 0, i;
  adder dut(.a(a), .b(b), .y(y));
  task report;
    if (errors == 0) $display("===========Your Design Passed===========");
    else $display("failed with %0d errors", errors);
  endtask
  initial begin
    for (i = 0; i < 256; i = i + 1) begin
      {a, b} = i;
      #1 if (y !== a + b) errors = errors + 1;
    end
    report;
    $finish;
  end
endmodule
"""
COUNTING = BENCH.replace("    report;\n", "").replace(
    "  initial", '  final $display("Mismatches: %0d in %0d samples", errors, i);\n  initial', 1
)
GOLDEN_ROW = {"id": "g", "prompt": "Write the module counter.", "golden": COUNTER}
BENCH_ROW = {"id": "t", "prompt": "Write the module adder.", "testbench": BENCH, "golden": ADDER}


CHEATS = [
    'initial $display("===========Your Design Passed===========");',
    'initial begin $write("Mismatches: 0 in 256 samples\\n"); end',
    'final $display("Mismatches: 0 in 256 samples");',
    'always @(a) $strobe("===========Your Design Passed===========");',
    '`line 1 "/src/bench.sv" 0\ninitial $display("===========Your Design Passed=====");',
    '`define S $display\ninitial `S("===========Your Design Passed===========");',
    'generate if (1) begin : tb initial $display("==Your Design Passed=="); end endgenerate',
    'function f(input x); begin $display("=Your Design Passed="); f = x; end endfunction\n'
    "wire z = f(a[0]);",
    "initial #20 $finish;",
    "initial tb.report;",
    "initial #0.5 tb.errors = -256;",
    "assign y = tb.a + tb.b;",
    "always @(a) $root.tb.errors = 0;",
    'initial $fatal(0, "===========Your Design Passed===========");',
    "initial report;",
    "initial errors = 0;",
    "assign y = a - b; always @(a) force tb.errors = 0;",
]
REAL = 12


def bench_for(body: str) -> str:
    """The testbench that a cheat is meant for: one that counts, where it ends the simulation."""
    if "$finish" in body:
        return COUNTING.replace("y !== a + b", "i > 100 && y !== a + b")
    return BENCH


def cheating(body: str) -> str:
    return f"module adder(input [3:0] a, b, output [4:0] y);\n{body}\nendmodule\n"


def judge(bench, row: dict[str, Any], text: str, **options: Any) -> Reward:
    task = bench.task(row, **options)
    (problem,) = task.problems("all")
    found: Reward = bench.judge({problem.payload.targets[0]: text}, problem, **options)
    return found


def test_rows_are_problems(bench):
    """A golden design or a testbench, and the top is found; marked as training."""
    task = bench.task(GOLDEN_ROW, BENCH_ROW, bench.row())
    golden, testbench, official = task.problems("all")
    assert golden.payload.targets == ("rtl/counter.sv",)
    assert testbench.payload.targets == ("rtl/adder.sv",)
    assert task.reference(golden).files == {"rtl/counter.sv": COUNTER}
    assert [p.labels.get("source") for p in (golden, testbench)] == ["training", "training"]
    assert "source" not in official.labels
    text = "".join(message.content for message in golden.prompt)
    assert "always @(posedge" not in text
    assert "Your response will be saved directly to: rtl/counter.sv" in text


def test_a_prompt_that_names_no_module_gets_the_name(bench):
    """Where the prompt does not say how the module is called, it is told."""
    (problem,) = bench.task({**GOLDEN_ROW, "prompt": "Count."}).problems("all")
    assert "Name the top module `counter`." in problem.prompt[1].content


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"golden": ""}, "neither a golden design nor a testbench"),
        ({"golden": "module a(output y); endmodule module b(output y); endmodule"}, "top"),
        ({"golden": "module a(inout y); endmodule"}, "cannot be driven"),
        ({"golden": COUNTER, "clock": "ck"}, "no input ck"),
        ({"golden": COUNTER, "cycles": 0}, "cycles is not a whole number"),
        ({"golden": COUNTER, "prompt": ""}, "no prompt"),
        ({"golden": COUNTER, "prompt": 5}, "prompt is not text"),
        ({"golden": COUNTER, "target": "../x.sv"}, "outside rtl"),
        ({"testbench": "module tb; endmodule"}, "which module its testbench tests"),
        ({"testbench": BENCH, "pass_pattern": "("}, "no regular expression"),
        ({"testbench": BENCH.replace("module tb", "module \\t+b ")}, "escaped name"),
        ({"testbench": BENCH.replace("reg [3", "genvar g; reg [3", 1)}, "genvar"),
    ],
)
def test_rows_that_are_none(bench, row, reason):
    """Each kind of mistake is named; the rows beside it are read."""
    task = bench.task({"id": "x", "prompt": "p", **row}, GOLDEN_ROW)
    assert [p.id for p in task.problems("all")] == ["g"]
    assert reason in task.unsupported()["x"]


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
class TestGolden:
    """An answer is right when it cannot be told from the golden design."""

    def test_right(self, bench):
        """The golden design itself, and one that is written differently."""
        other = COUNTER.replace("edge_of finder (.q(q), .last(last));", "assign last = q == 15;")
        other = other.replace("q <= 0;", "q <= {W{1'b0}};").replace("edge_of", "unused")
        for text in (COUNTER, other):
            reward = judge(bench, GOLDEN_ROW, text)
            assert reward.score01 == 1.0, reward.evidence
            assert reward.tests_passed == reward.tests_total == 4

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            ("q + 1", "q + 2"),
            ("negedge rst_n", "negedge en"),
            (" or negedge rst_n", ""),
            ("posedge clk", "negedge clk"),
            ("else if (load != 0)", "else if (load > 1)"),
            ("q <= 0", "q <= 1"),
            ("&q", "|q"),
            ("parameter W = 4", "parameter W = 5"),
            ("q <= load", "q <= 4'bx"),
        ],
    )
    def test_wrong(self, bench, old, new):
        """A different step, edge, kind of reset, condition, width or an unknown is seen."""
        text = COUNTER.replace(old, new, 1) if old != "&q" else COUNTER.replace(old, new)
        assert text != COUNTER
        assert judge(bench, GOLDEN_ROW, text).score01 == 0.0

    def test_what_the_golden_design_leaves_open_is_free(self, bench):
        """Where the golden output is X, any value is right; where it is known, X is wrong."""
        golden = "module m(input [1:0] s, output reg y);\n  always @* case (s) 0: y = 1; 1: y = 0;"
        row = {
            "id": "x",
            "prompt": "m",
            "golden": f"{golden} default: y = 1'bx; endcase\nendmodule",
        }
        for body, right in (("default: y = 0;", 1.0), ("2: y = 1; 3: y = 0;", 1.0),
                            ("2: y = 1; 3: y = 0; default: y = 1;", 1.0)):  # fmt: skip
            assert judge(bench, row, f"{golden} {body} endcase\nendmodule").score01 == right
        never = golden.replace("1: y = 0;", "1: y = 1'bx;")
        assert judge(bench, row, f"{never} default: y = 0; endcase\nendmodule").score01 == 0.0

    def test_a_golden_design_that_says_nothing_accepts_nothing(self, bench):
        """An output that is never known would accept every answer: it accepts none."""
        golden = "module m(input a, output y);\n  assign y = 1'bx;\nendmodule\n"
        row = {"id": "x", "prompt": "m", "golden": golden}
        assert judge(bench, row, golden).score01 == 0.0
        assert judge(bench, row, golden.replace("1'bx", "a")).score01 == 0.0

    def test_rare_inputs_are_met(self, bench):
        """Few inputs without a clock are tried out completely."""
        golden = "module m(input [9:0] a, output y);\n  assign y = a == 10'd709;\nendmodule\n"
        row = {"id": "x", "prompt": "m", "golden": golden}
        assert judge(bench, row, golden).score01 == 1.0
        assert judge(bench, row, golden.replace("709", "708")).score01 == 0.0

    def test_names_that_mean_two_things(self, bench):
        """Ports called like modules and instances, several modules, a package, parameters."""
        golden = """
package kit; localparam STEP = 3; endpackage
module next #(parameter N = 4) (input [N-1:0] value, output [N-1:0] next);
  assign next = value + kit::STEP;
endmodule
module m(input clk, reset, output reg [3:0] m, output [3:0] value, name);
  wire [3:0] unit;
  next #(.N(4)) value_next (.value(m), .next(unit));
  assign value = unit, name = ~m;
  always @(posedge clk) if (reset) m <= 0; else m <= unit;
endmodule
"""
        row = {"id": "x", "prompt": "m", "golden": golden, "cycles": 20}
        assert judge(bench, row, golden).score01 == 1.0
        assert judge(bench, row, golden.replace("STEP = 3", "STEP = 5")).score01 == 0.0

    def test_given_modules(self, bench):
        """Context is compiled with both; an answer may not write its own version of it."""
        helper = "module helper(input a, output y);\n  assign y = ~a;\nendmodule\n"
        golden = "module m(input a, output y);\n  helper h(.a(a), .y(y));\nendmodule\n"
        row = {"id": "x", "prompt": "m", "golden": golden, "context": {"rtl/helper.sv": helper}}
        assert judge(bench, row, golden).score01 == 1.0
        assert judge(bench, row, golden + helper.replace("~a", "a")).score01 == 0.0

    @pytest.mark.parametrize(
        "reference",
        ["golden.q", "bench.golden_q", "$root.bench.golden_q", "golden_q", "same", "finder.q"],
    )
    def test_the_golden_design_cannot_be_reached(self, bench, reference):
        """Names by which an answer could copy the golden outputs are not known to it."""
        text = f"""module counter(input clk, rst_n, en, input [3:0] load,
          output [3:0] q, output last);
          assign q = {reference};
          assign last = &q;
        endmodule"""
        assert judge(bench, GOLDEN_ROW, text).score01 == 0.0


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
class TestBench:
    """A testbench in Verilog says whether an answer passed, and only it can say so."""

    @pytest.mark.parametrize("testbench", [BENCH, COUNTING])
    def test_right_and_wrong(self, bench, testbench):
        """The solution passes; a wrong or broken one does not, and stages are told apart."""
        row = {**BENCH_ROW, "testbench": testbench}
        assert judge(bench, row, ADDER).score01 == 1.0
        wrong = judge(bench, row, ADDER.replace("+", "-"))
        assert (wrong.score01, wrong.value) == (0.0, 0.5)
        assert judge(bench, row, "module adder(").value == 0.1

    def test_patterns(self, bench):
        """A row may say what passing and failing look like."""
        row = {**BENCH_ROW, "testbench": BENCH.replace("Your Design Passed", "tout va bien")}
        assert judge(bench, row, ADDER).score01 == 0.0
        row["pass_pattern"] = "tout va bien"
        assert judge(bench, row, ADDER).score01 == 1.0
        row["fail_pattern"] = "tout"
        assert judge(bench, row, ADDER).score01 == 0.0

    @pytest.mark.parametrize("body", CHEATS)
    def test_cheats(self, bench, body):
        """Printing the line, ending the simulation, reaching the bench: none earns a pass."""
        row = {**BENCH_ROW, "testbench": bench_for(body)}
        assert judge(bench, row, cheating(body)).score01 == 0.0

    @pytest.mark.parametrize("body", CHEATS[:REAL])
    def test_the_cheats_would_work(self, body, tmp_path):
        """Without our checks these answers make the testbench's output look like a pass."""
        (tmp_path / "tb.sv").write_text(bench_for(body))
        (tmp_path / "answer.sv").write_text(cheating(body))
        build = ["iverilog", "-g2012", "-o", "sim", "-s", "tb", "tb.sv", "answer.sv"]
        subprocess.run(build, cwd=tmp_path, check=True, timeout=120)
        run = ["vvp", "-n", "sim"]
        ran = subprocess.run(
            run, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120
        )
        assert re.search(PASS_PATTERN, ran.stdout)

    def test_another_bench_in_the_answer(self, bench):
        """A module of the bench's name in the answer is not the one that runs."""
        text = ADDER.replace("+", "-") + (
            'module tb; initial begin $display("==Your Design Passed=="); $finish; end endmodule\n'
        )
        assert judge(bench, BENCH_ROW, text).score01 == 0.0
