"""Names, ports, clocks and resets read from Verilog text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_cvdp.hdl import definitions
from rlvr_cvdp.hdl.clocks import clocking_of
from rlvr_cvdp.hdl.definitions import definitions_of
from rlvr_cvdp.hdl.names import (
    defined_names,
    instantiated,
    module_names,
    renamed,
    renamed_types,
    scope_names,
    tokens,
)
from rlvr_cvdp.hdl.ports import PortsError, header_of, parameters_of
from rlvr_cvdp.netlist.silent import without_words
from rlvr_cvdp.problem import CvdpProblem

BENCH = """\
// module commented; "quoted"
module automatic tb;
  adder #(.W(4), .N(a)) dut [1:0] (.a(a), .b(b)), other (.a(a));
  task automatic check(input [3:0] x); begin : inner $display("module fake (", x); end endtask
  function automatic logic [3:0] twice(input [3:0] x); twice = x * 2; endfunction
  initial begin : main check(4'hf); fork : both join end
  assign y = a.dut + twice(b);
endmodule
package kit; endpackage
"""


@given(st.text(alphabet="ab1'h\"/*(\n)\\`$ .x_#;", max_size=80))
def test_tokens_are_the_text(text):
    """Nothing is lost, whatever the text."""
    assert "".join(token.text for token in tokens(text)) == text


def test_names():
    """Definitions, instances, tasks, functions and named blocks; not what is quoted."""
    assert module_names(BENCH) == ["tb"]
    assert scope_names(BENCH) == {
        *("tb", "dut", "other", "check", "inner", "twice", "main", "both", "kit")
    }
    assert "adder" in instantiated(BENCH)
    assert "check" not in instantiated(BENCH)


def test_renaming():
    """Each use gets the suffix; comments, strings and ports of that name do not."""
    text = 'module a; b b (.b(b)); // b\ninitial $display("b", b.x, c.b); endmodule'
    assert renamed(text, {"b"}, "_1") == (
        'module a; b_1 b_1 (.b(b_1)); // b\ninitial $display("b", b_1.x, c.b_1); endmodule'
    )


def test_renaming_of_what_is_defined():
    """Modules and packages where they are meant; a port of a module's name keeps it."""
    text = (
        "package kit; endpackage : kit\n"
        "module a import kit::*; (input b, output a); assign a = kit::x; endmodule : a\n"
        "module automatic b; a #(.b(1)) b (.a(b)), a (.a(a)); endmodule"
    )
    assert renamed_types(text, {"a", "b", "kit"}, "_1") == (
        "package kit_1; endpackage : kit_1\n"
        "module a_1 import kit_1::*; (input b, output a); assign a = kit_1::x; endmodule : a_1\n"
        "module automatic b_1; a_1 #(.b(1)) b (.a(b)), a (.a(a)); endmodule"
    )


def ports(text: str, module: str = "m") -> list[tuple[str, str, str]]:
    return [(p.direction, p.name, p.width) for p in header_of(text, module).ports]


def size(high: str, low: str) -> str:
    return f"((({high}) > ({low}) ? ({high}) - ({low}) : ({low}) - ({high})) + 1)"


@pytest.mark.parametrize(
    "text",
    [
        "module m(input clk, a, input wire [3:0] b, c, output reg signed [7:0] y, output z);",
        "module m(clk, a, b, c, y, z); input clk, a; input wire [3:0] b, c;\n"
        "function f; input [9:0] q; f = q; endfunction\n"
        "output reg signed [7:0] y; output z; endmodule",
    ],
)
def test_both_styles_of_ports(text):
    """In the header or in the body: direction and width go on until another is given."""
    assert ports(text) == [
        *(("input", "clk", "1"), ("input", "a", "1")),
        *(("input", "b", size("3", "0")), ("input", "c", size("3", "0"))),
        *(("output", "y", size("7", "0")), ("output", "z", "1")),
    ]


def test_widths_with_parameters():
    """Widths are expressions; the parameters that they use come along, in order."""
    text = """module m import p::*; #(parameter A = 2, B = A * 4, parameter [1:0] C = 1, D = {1, 2})
      (input logic [B-1:0][A-1:0] x, input int n, output logic [0:A] y = 0); endmodule"""
    header = header_of(text, "m")
    assert dict(header.parameters) == {"A": "2", "B": "A * 4"}
    x, n, y = header.ports
    assert x.width == f"{size('B - 1', '0')}*{size('A - 1', '0')}"
    assert (n.width, y.width) == ("32", size("0", "A"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("module other(output y);", "no module m"),
        ("module m(input a);", "no output"),
        ("module m(inout a, output y);", "neither input nor output"),
        ("module m(input [3:0] a [1:0], output y);", "an array"),
        ("module m(input state_t a, output y);", "of a named type"),
        ("module m(bus.slave b, output y);", "no direction is declared|neither|no output"),
        ("module m(a, y); output y; endmodule", "no direction is declared for the port a"),
        ("module m(input a, output y", "not closed"),
        ("module m #(parameter type T = logic) (input a, output y);", "is a type"),
    ],
)
def test_ports_that_cannot_be_driven(text, reason):
    """What a bench of plain text cannot connect is refused with the reason."""
    with pytest.raises(PortsError, match=reason):
        header_of(text, "m")


@pytest.mark.parametrize(
    ("ports_text", "body", "clocks", "resets"),
    [
        ("input clk, rst", "always @(posedge clk) if (rst)", ["clk"], {"rst": 1}),
        ("input clk, rst_n", "always @(posedge clk)", ["clk"], {"rst_n": 0}),
        ("input clk, nrst, d", "always @(negedge clk)", ["clk"], {"nrst": 0}),
        ("input sys_clock, resetn", "", ["sys_clock"], {"resetn": 0}),
        ("input clk, arst", "always @(posedge clk, negedge arst)", ["clk"], {"arst": 0}),
        ("input clk, reset", "always @(posedge clk) if (!reset) q", ["clk"], {"reset": 0}),
        ("input strobe, rst", "always @(posedge strobe)", ["strobe"], {"rst": 1}),
        ("input wclk, rclk, wrst_n", "", ["wclk", "rclk"], {"wrst_n": 0}),
        ("input clk, clk_en, first", "always @(posedge clk)", ["clk"], {}),
        ("input clk, clear, burst", "always @(posedge clk)", ["clk"], {"clear": 1}),
        ("input clk, clear, rstb", "always @(posedge clk)", ["clk"], {"rstb": 0}),
        ("input [3:0] clk_count, a", "", [], {}),
        ("input a, b", "", [], {}),
    ],
)
def test_clocks_and_resets(ports_text, body, clocks, resets):
    """Told by names and by what the code does with them."""
    text = f"module m({ports_text}, output q); {body}; endmodule"
    found = clocking_of(text, header_of(text, "m").named("input"))
    assert list(found.clocks) == clocks
    assert dict(found.resets) == resets


@pytest.mark.parametrize(
    "text",
    [
        "(* " * 40_000 + "module m; endmodule",
        "module " * 40_000,
        "$foo(" * 10_000 + ");",
        "`include " * 20_000,
        "/* " * 100_000,
        '"' * 100_000,
    ],
    ids=lambda text: text[:9],
)
def test_reading_takes_time_in_proportion_to_the_text(text):
    """An answer is read in the process that trains, whatever is never closed in it."""
    row = {"id": "a", "category": "cid007", "difficulty": "", "prompt": "", "context": {}}
    problem = CvdpProblem(**row, targets=("rtl/a.sv",), harness={})
    begun = time.process_time()
    module_names(text)
    without_words(problem, {"rtl/a.sv": text}, "yosys")
    assert time.process_time() - begun < 5


def test_names_are_found_where_slang_skips_them():
    """In a branch that no macro of ours chooses, in a macro's text, in a primitive."""
    text = (
        "`ifdef YOSYS\nmodule one; endmodule\n`else\nmodule two; endmodule\n`endif\n"
        "`define CHECK two.inner.x\n`define OTHER module three; endmodule\n"
        "primitive four(o, i); output o; input i; table 0:1; endtable endprimitive\n"
    )
    assert defined_names(text) == {"one", "two", "three"}
    assert "`define CHECK two_1.inner.x\n" in renamed(text, {"two"}, "_1")
    assert [d.name for d in definitions_of(text)] == ["two"]  # slang's, which are complete


def test_digits_of_a_number_are_no_names(monkeypatch):
    """Without slang, too: `4'b0` holds no name that a helper module could have."""
    monkeypatch.setattr(definitions._PARSER, "definitions", lambda text: None)
    text = "module m(output [3:0] y); assign y = 4'b0 + 8'h3f; helper u(y); endmodule // digits"
    (found,) = definitions_of(text)
    assert found.uses == {"helper"}
    assert text[found.start : found.end].endswith("endmodule")


def test_a_task_without_arguments_leaves_the_bracket_after_it():
    """What is taken out for a scored call of yosys is the task, and no bracket around it."""
    row = {"id": "a", "category": "cid007", "difficulty": "", "prompt": "", "context": {}}
    problem = CvdpProblem(**row, targets=("rtl/a.sv",), harness={})
    text = "module a; initial if ($mine) $show (1, (2)); endmodule"
    (silent,) = without_words(problem, {"rtl/a.sv": text}, "yosys").values()
    assert silent.endswith('; initial if ($dumpvars) $write(""); endmodule')


def test_parameters_that_may_be_set_from_outside():
    """Those with a number; an answer may be cut off anywhere, or write digits that are none."""
    text = (
        "module m #(parameter A = 4, B = A, localparam C = 2) (input x); parameter D = 1; endmodule"
    )
    assert parameters_of(text, "m") == {"A": 4, "D": 1}
    assert parameters_of("module m #(parameter A = (1), B = 3);", "m") == {"B": 3}
    for broken in ("parameter W =", "parameter W = 1", "parameter W = 1\u00b2;", ""):
        assert parameters_of(f"module m #({broken}", "m") == {}
