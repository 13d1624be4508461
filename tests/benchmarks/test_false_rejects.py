"""References written otherwise: other words, the same meaning, and none of them refused."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from attrs import evolve
from bench_false_rejects import cases, judge, message
from judging.answers import make_answers
from judging.rewrites import NAMES, PLAIN, escaped_inside, renamed_inside

from rlvr.testing.tools import require_tool
from rlvr_cvdp.answers.parse import from_text
from rlvr_cvdp.audit.edits import edits

COUNTER = """\
module counter (input wire clk, input wire rst_n, output reg [3:0] q);
  reg [3:0] next_q;
  reg seen;
  assign_helper u (.seen(clk));
  always @(*) next_q = q + 4'd1;
  always @(posedge clk or negedge rst_n)
    if (!rst_n) q <= 4'd0; else q <= next_q;
endmodule
"""


def test_there_are_enough_rewrites() -> None:
    """At least sixty ways to write a right answer otherwise."""
    assert len(NAMES) >= 60


OTHERS = """\
module low(input wire a, output wire y, output wire z);
  // the comment
  assign y = a;
  assign z = 1'b1;
endmodule
module high(input wire a, output wire y);
  low u (.a(a), .y(y), .z());
endmodule
"""
ALONE = "module one(input a, output y); assign y = a; endmodule\n"


@pytest.mark.parametrize("name", PLAIN)
def test_each_rewrite_changes_something(name: str) -> None:
    """A rewrite that never changes anything would measure nothing."""
    assert any(PLAIN[name](text) not in (None, text) for text in (COUNTER, OTHERS, ALONE))


def test_a_rewrite_is_tried_on_references_that_it_changes(starter_rows: Path) -> None:
    """Each rewrite gets as many references as asked for, and the message reads back as them."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    made = cases(answers, ["a greeting", "modules reversed"], 2, 1)
    assert [case.rewrite for case in made] == ["a greeting"] * 2
    assert {case.found for case in made} == {""}


def test_names_that_others_use_are_kept() -> None:
    """Ports, names of other modules' ports and names that the tests speak of stay."""
    text = renamed_inside(COUNTER, "the test reads dut.seen_not")
    assert text is not None
    assert "next_q_renamed" in text
    assert ".seen(clk)" in text
    assert "output reg [3:0] q)" in text
    assert renamed_inside(COUNTER, "dut.next_q and dut.seen") is None
    escaped = escaped_inside(COUNTER, "")
    assert escaped is not None
    assert "\\next_q_renamed " in escaped


def test_a_message_reads_back_as_its_files() -> None:
    """What the benchmark writes as a chat model would is read as the same files."""
    files = {"rtl/a.sv": "module a;\nendmodule\n", "rtl/b.sv": "module b;\nendmodule\n"}
    assert dict(from_text(message(files), tuple(files)).files) == files


@pytest.mark.thorough
@pytest.mark.integration
def test_no_rewrite_of_a_starter_problem_is_refused(starter_rows: Path) -> None:
    """Every rewrite, each of one reference of three, is right in the real sandbox."""
    for tool in ("bwrap", "iverilog"):
        require_tool(tool, "sudo apt-get install -y bubblewrap iverilog")
    script = Path(__file__).parents[2] / "benchmarks" / "bench_false_rejects.py"
    command = [sys.executable, str(script), "--each", "1", "--dataset", str(starter_rows)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 refused, 0 misread, 0 wrong" in done.stdout


@pytest.mark.integration
def test_some_rewrites_of_references_are_right(starter_rows: Path) -> None:
    """Every fourth rewrite that changes one, each of one: none is refused, misread or wrong."""
    for tool in ("bwrap", "iverilog"):
        require_tool(tool, "sudo apt-get install -y bubblewrap iverilog")
    references = make_answers([starter_rows], kinds=["reference"]).answers
    made = cases(references, NAMES[::4], 1, 1)
    assert len(made) >= 12
    assert {case.found for case in made} == {""}
    assert set(judge([case.answer for case in made], 2)) == {""}


@pytest.mark.integration
def test_a_rewrite_that_changes_the_meaning_is_counted(starter_rows: Path) -> None:
    """The control: the judge of the rewrites calls a mutant of a reference wrong."""
    for tool in ("bwrap", "iverilog"):
        require_tool(tool, "sudo apt-get install -y bubblewrap iverilog")
    right = make_answers([starter_rows], kinds=["reference"]).answers[0]
    [(path, text)] = right.files.items()
    wrong = [evolve(right, files={path: edit.apply(text)}) for edit in edits(text)[:3]]
    assert any(judge(wrong, 2))
