"""Mutants: one place each, never in comments, strings, headers or parameters; stubs; literals."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlvr.testing.tools import shared_data
from rlvr_cvdp.audit.edits import edits
from rlvr_cvdp.audit.expressions import neighbours
from rlvr_cvdp.audit.ports import hollow
from rlvr_cvdp.hdl.names import tokens

COUNTER = """\
`timescale 1ns/1ps
module counter #(parameter W = 4, parameter LIMIT = 9) (
  input  wire clk, input wire rst_n, input wire [W-1:0] d, // 1 + 1 <= 2
  output reg  [W-1:0] q,
  output wire done
);
  localparam STEP = 1; /* a & b */
  wire [7:0] wide = "a+b" == 1;
  (* keep = "1 + 2" *) reg seen;
  assign done = (q == LIMIT) && !seen;
  always @(posedge clk or negedge rst_n) begin : main
    if (!rst_n) begin
      q <= 0;
      seen <= 1'b0;
    end else if (d <= q)
      q <= q + STEP;
    else begin
      q <= d - q;
      seen <= #1 done ? 1'b1 : seen;
    end
  end
  assert property (@(posedge clk) q <= 9);
endmodule
"""


def changed(text: str) -> Counter[str]:
    return Counter(edit.kind for edit in edits(text))


def results(text: str, kind: str) -> list[str]:
    return [edit.apply(text) for edit in edits(text) if edit.kind == kind]


def test_every_wanted_kind_is_found() -> None:
    """The kinds that an audit promises are all there."""
    assert changed(COUNTER).keys() >= {
        "operator", "constant", "reset", "off-by-one", "polarity", "blocking", "edge",
        "condition", "dropped statement", "operand", "width", "name",
    }  # fmt: skip


def test_assignments_are_not_mistaken_for_comparisons() -> None:
    """`q <= q + STEP` is an assignment, `(d <= q)` a comparison."""
    assert any("if (d < q)" in text for text in results(COUNTER, "off-by-one"))
    assert any("q = q + STEP" in text for text in results(COUNTER, "blocking"))
    assert not any("d = q" in text for text in results(COUNTER, "blocking"))
    assert not any("q < q + STEP" in edit.apply(COUNTER) for edit in edits(COUNTER))


def test_the_branch_of_a_reset_is_told_apart() -> None:
    """Values, statements, condition and edge of the reset are of kind reset."""
    found = results(COUNTER, "reset")
    for wanted in ("seen <= 1'b1;", "if (!(!rst_n))", "@(posedge clk ) begin : main", "q <= 1;"):
        assert any(wanted in text for text in found), wanted
    assert not any("d + q" in text for text in found)


def test_headers_parameters_assertions_and_delays_stay() -> None:
    """What the harness sets, what only checks, and what only delays is never changed."""
    for edit in edits(COUNTER):
        text = edit.apply(COUNTER)
        assert text.startswith(COUNTER[: COUNTER.index("localparam")]), edit
        assert "assert property (@(posedge clk) q <= 9);" in text, edit
        assert "= #1 " in text or edit.kind == "dropped statement", edit


SNIPPETS = st.sampled_from(
    [
        *("// a + b\n", "/* if (a <= 1) */", '$display("a + b %d", 1);\n', "\\esc+aped "),
        *("`define A a + 1 \\\n + 2\n", "`ifdef X\n", "`endif\n", "(* full_case = 1 *)"),
        *("assign y = a + 8'hF0;\n", "always @(*) begin\n  y = a ? b : c;\nend\n"),
        *("always_ff @(posedge clk) q <= q - 1;\n", "module m(input a, output y);\n"),
        *("endmodule\n", "for (i = 0; i < 4; i = i + 1) ", "case (a)\n", "2'b1?: y = 1;\n"),
        *("endcase\n", "function f; input x; f = ~x; endfunction\n", "if (a && !b) ", "else "),
        *("sub #(.W(3)) u (.a(a[2:0]), .y(y));\n", "'{default: 0}", '"', "(", ")", "@(", "[3:0]"),
        *("end_addr <= 4'd15;\n", "initial q = 3;\n", "generate genvar g; endgenerate\n"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(SNIPPETS, max_size=14).map("".join))
@example("case (a)\n(* full_case = 1 *)")
def test_any_text_is_read_and_changed_in_one_place(text: str) -> None:
    """
    Broken texts too: each mutant differs in one place.

    Comments, strings and attributes stay as they are, but for those of a dropped statement.
    """
    muted = [t.text for t in tokens(text) if t.kind in ("comment", "string")]
    seen = set()
    for edit in edits(text):
        mutant = edit.apply(text)
        assert mutant != text
        assert mutant not in seen
        seen.add(mutant)
        assert mutant.startswith(text[: edit.start])
        assert mutant.endswith(text[edit.end :])
        assert 0 <= edit.start <= edit.end <= len(text)
        inside = text[edit.start : edit.end]
        kept = [t.text for t in tokens(mutant) if t.kind in ("comment", "string")]
        gone = Counter(muted) - Counter(kept)
        assert all(text_ in inside for text_ in gone), (edit, gone)  # a whole statement dropped
        assert edit.note(text)


def test_loops_still_end() -> None:
    """The step of a `for` is left alone: a mutant that never ends costs the time limit."""
    text = "module m; initial for (i = 0; i < 8; i = i + 1) a[i] = 0; endmodule"
    assert all("i = i + 1" in edit.apply(text) for edit in edits(text))
    assert any("i <= 8" in edit.apply(text) for edit in edits(text))


def test_labels_and_odd_names_do_not_hide_what_follows() -> None:
    """A named generate block, and names that begin like keywords."""
    text = (
        "module m; genvar g; generate for (g = 0; g < 4; g = g + 1) begin : rev\n"
        "assign y[g] = end_x[3 - g]; end endgenerate\n"
        "always @(*) begin end_y = always_on & 1; end endmodule"
    )
    mutants = [edit.apply(text) for edit in edits(text)]
    assert any("end_x[3 + g]" in mutant for mutant in mutants)
    assert any("always_on | 1" in mutant for mutant in mutants)


@pytest.mark.parametrize(
    ("literal", "beside"),
    [
        ("1'b0", ["1'b1"]),
        ("4'hf", ["4'h0", "4'he"]),
        ("8'd255", ["8'd0", "8'd254"]),
        ("3", ["4", "2"]),
        ("0", ["1"]),
        ("'0", ["'1"]),
        ("2'b1x", []),
        ("10ns", []),
        ("1.5", []),
        ("4 'sb0001", ["4 'sb0010", "4 'sb0000"]),
        ("999999'd1", []),
    ],
)
def test_numbers_next_to_a_number(literal: str, beside: list[str]) -> None:
    """One more and one less, wrapped within the size, in the same base."""
    assert list(neighbours(literal)) == beside


def test_stub_and_constant_keep_the_ports() -> None:
    """Ports stay as they are; nothing of the body does; outputs are driven as their kind asks."""
    header = COUNTER[: COUNTER.index(");") + 2]
    assert hollow(COUNTER, "").startswith(header)
    assert "always" not in hollow(COUNTER, "")
    assert hollow(COUNTER, "'1").count("= '1;") == 2
    assert "initial q = '1;" in hollow(COUNTER, "'1")
    assert "assign done = '1;" in hollow(COUNTER, "'1")
    old = "module m(a, y, z);\n input a;\n output [3:0] y, z;\n reg [3:0] y;\n"
    old += " assign z = a;\nendmodule\n"
    assert "output [3:0] y, z;" in hollow(old, "'0")
    assert "assign z = a" not in hollow(old, "'0")
    assert "assign y = '0;\n  assign z = '0;" in hollow(old, "'0")


def test_real_references_have_mutants_of_many_kinds() -> None:
    """Every reference of the shared data can be changed, those of some length in 25 ways."""
    path = shared_data("cvdp", "reference_solutions.jsonl")
    for line in path.read_text("utf-8").splitlines():
        files = json.loads(line)["files"]
        found = [edit for text in files.values() for edit in edits(text)]
        assert len(found) >= 5, json.loads(line)["id"]
        if sum(map(len, files.values())) > 600:
            assert len(found) >= 25, json.loads(line)["id"]
            assert len({edit.kind for edit in found}) >= 4, json.loads(line)["id"]


def test_broken_text_keeps_what_comes_before_and_after() -> None:
    """A construct that cannot be read hides itself alone."""
    text = "module m; assign a = b + c; always @( begin if if; assign d = e - f; endmodule"
    mutants = [edit.apply(text) for edit in edits(text)]
    assert any("b - c" in mutant for mutant in mutants)
    assert any("e + f" in mutant for mutant in mutants)


def test_long_and_deep_texts_are_read() -> None:
    """Thousands of terms and long chains of `else if` are changed; deeper nesting ends nothing."""
    total = f"module m(input a, output z); assign z = {' + '.join(['a'] * 3000)}; endmodule"
    assert len(results(total, "operator")) == 2999
    chain = " else ".join(f"if (a == {number}) y = 1;" for number in range(380))
    text = f"module m(input [9:0] a, output reg y); always @* begin {chain} end endmodule"
    assert len(results(text, "polarity")) == 380
    deep = f"module m(input a, output z); assign z = {'(' * 600}a{')' * 600}; endmodule"
    assert edits(deep) == []
    assert hollow(deep, "") == deep
