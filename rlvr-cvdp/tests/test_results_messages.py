"""Messages of the compilers with file and line, as the tools really write them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.testing.tools import require_tool
from rlvr_cvdp.problem import Service
from rlvr_cvdp.results.messages import MAX_MESSAGES, read_messages, shown_messages
from rlvr_cvdp.results.notes import service_messages

ICARUS = """\
/code/rtl/a.sv:2: syntax error
/code/rtl/a.sv:3: error: invalid module item.
/code/rtl/b.sv:6: warning: Numeric constant truncated to 4 bits.
/code/rtl/b.sv:2: error: Unknown module type: missing
/code/rtl/e.sv:7: error: 'e' has already been declared in this scope.
/code/rtl/e.sv:1:      : It was declared here as a module.
/code/rtl/c.sv:2: Include file none.vh not found
/code/rtl/f.sv:9: sorry: constant selects in always_* processes are not currently supported.
/code/rtl/f.sv:12: vvp.tgt sorry: procedural continuous assignments are not yet fully supported.
error: Unable to find the root module "c" in the Verilog source.
     : Perhaps ``-s c'' is incorrect?
/code/rtl/none.v: No such file or directory
2 error(s) during elaboration.
*** These modules were missing:
        missing referenced 1 times.
***
I give up.
"""
VERILATOR = """\
%Warning-WIDTH: /code/rtl/b.sv:6:14: Value too large for 4 bit number: 99999999
                                   : ... In instance b
    6 |   assign y = 4'd99999999;
      |              ^~~~~~~~~~~
                ... For warning description see https://verilator.org/warn/WIDTH?v=5.006
%Error-PINNOTFOUND: /code/rtl/b.sv:5:10: Pin not found: 'nope'
%Error: /code/rtl/a.sv:2:3: syntax error, unexpected assign, expecting ';'
%Error: Cannot find file containing module: 'x'
%Error: Exiting due to 3 error(s), 1 warning(s)
"""
YOSYS = """\
1. Executing Verilog-2005 frontend: /code/rtl/a.sv
Warning: Literal has a width of 4 bit, but value requires 27 bit. (/code/rtl/b.sv:6)
/code/rtl/b.sv:5: Warning: Identifier `\\q' is implicitly declared.
Warning: wire '\\y' is assigned in a block at /code/rtl/d.sv:4.11-4.16.
/code/rtl/a.sv:2: ERROR: syntax error, unexpected TOK_ASSIGN, expecting ';'
/code/rtl/b.sv:0: ERROR: Can't resolve task name `\\foo'.
ERROR: Module `\\missing' referenced in module `\\b' in cell `\\m' is not part of the design.
"""


def brief(text, tool):
    return [
        (m.severity, m.file, m.line, m.column, m.code, m.text) for m in read_messages(text, tool)
    ]


def test_iverilog():
    """Errors, warnings and what is not supported; continuations joined, mere counts left out."""
    assert [(m.severity, m.file, m.line, m.text) for m in read_messages(ICARUS)] == [
        ("error", "rtl/a.sv", 2, "syntax error"),
        ("error", "rtl/a.sv", 3, "invalid module item."),
        ("warning", "rtl/b.sv", 6, "Numeric constant truncated to 4 bits."),
        ("error", "rtl/b.sv", 2, "Unknown module type: missing"),
        (
            "error",
            "rtl/e.sv",
            7,
            "'e' has already been declared in this scope. It was declared here as a module.",
        ),
        ("error", "rtl/c.sv", 2, "Include file none.vh not found"),
        (
            "error",
            "rtl/f.sv",
            9,
            "sorry: constant selects in always_* processes are not currently supported.",
        ),
        (
            "error",
            "rtl/f.sv",
            12,
            "sorry: procedural continuous assignments are not yet fully supported.",
        ),
        (
            "error",
            "",
            None,
            'Unable to find the root module "c" in the Verilog source. '
            "Perhaps ``-s c'' is incorrect?",
        ),
        ("error", "", None, "rtl/none.v: No such file or directory"),
    ]


def test_verilator():
    """The class of a warning is its code; quoted source and advice are left out."""
    assert brief(VERILATOR, "verilator") == [
        ("warning", "rtl/b.sv", 6, 14, "WIDTH", "Value too large for 4 bit number: 99999999"),
        ("error", "rtl/b.sv", 5, 10, "PINNOTFOUND", "Pin not found: 'nope'"),
        ("error", "rtl/a.sv", 2, 3, "", "syntax error, unexpected assign, expecting ';'"),
        ("error", "", None, None, "", "Cannot find file containing module: 'x'"),
    ]


def test_yosys():
    """The place stands before, behind or within a message; line 0 means none."""
    assert [(m.severity, m.file, m.line, m.column) for m in read_messages(YOSYS, "yosys")] == [
        ("warning", "rtl/b.sv", 6, None),
        ("warning", "rtl/b.sv", 5, None),
        ("warning", "rtl/d.sv", 4, 11),
        ("error", "rtl/a.sv", 2, None),
        ("error", "rtl/b.sv", None, None),
        ("error", "", None, None),
    ]


@pytest.mark.parametrize("tool", ["", "verilator", "yosys"])
def test_output_is_read_as_its_services_tool_writes_it(tool, tmp_path: Path):
    """A simulation's output is the design's own: there only a failed build is read."""
    (tmp_path / "sim.build").write_text("/code/rtl/c.sv:2: error: none\n")
    service = Service(name="s", command=(), tool=tool)
    messages = service_messages(service, tmp_path, f"/src/t.py::test_a {VERILATOR}{YOSYS}")
    found = {message.tool: message.file for message in reversed(messages)}
    assert found == {"iverilog": "rtl/c.sv"} | ({tool: "rtl/b.sv"} if tool else {})


@pytest.mark.integration
@pytest.mark.parametrize(
    ("tool", "command"),
    [
        ("iverilog", ["iverilog", "-g2012", "-t", "null", "rtl/a.sv"]),
        ("verilator", ["verilator", "--lint-only", "rtl/a.sv"]),
        ("yosys", ["yosys", "-q", "-p", "read_verilog -sv rtl/a.sv"]),
    ],
)
def test_the_installed_tools(tool, command, tmp_path: Path):
    """What the installed tool says about a missing semicolon names file and line."""
    require_tool(tool)
    (tmp_path / "rtl").mkdir()
    (tmp_path / "rtl/a.sv").write_text("module a(input x, output y)\n  assign y = x;\nendmodule\n")
    ran = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240
    )
    messages = read_messages(ran.stdout + ran.stderr, tool)
    first = messages[0]
    assert (first.severity, first.file, first.line) == ("error", "rtl/a.sv", 2), messages
    assert "syntax error" in first.text
    assert str(first).startswith("rtl/a.sv:2:")


def test_messages_are_bounded_and_told_once():
    """A flood is cut; evidence shows errors first and counts the rest."""
    flood = "".join(f"/code/a.sv:{i}: warning: w\n" * 2 for i in range(1, 2000))
    messages = read_messages(flood)
    assert len(messages) == MAX_MESSAGES
    late = [*messages, *read_messages("/code/a.sv:5000: error: " + "x" * 5000)]
    shown = shown_messages(late)
    assert (len(shown["messages"]), shown["messages_left_out"]) == (50, MAX_MESSAGES - 49)
    last = shown["messages"][-1]
    assert (last["line"], last["severity"], len(last["text"])) == (5000, "error", 400)


@given(st.text(max_size=400), st.sampled_from(["iverilog", "verilator", "yosys"]))
def test_no_output_breaks_the_reader(text, tool):
    """Whatever a tool writes is read without an exception."""
    for message in read_messages(text, tool):
        assert message.text or message.file or message.severity
