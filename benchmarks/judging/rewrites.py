"""Right answers written otherwise: the same behaviour in other words, with honest debugging.

Each rewrite takes the text of a Verilog file and gives another text of the same meaning, or None
where it has nothing to change there. A verifier that refuses one, or calls it wrong, is at fault.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping

from rlvr_cvdp.hdl.definitions import definitions_of
from rlvr_cvdp.hdl.names import KEYWORDS, renamed, tokens

Rewrite = Callable[[str], str | None]
_DECLARATION = re.compile(
    r"^[ \t]*(?:reg|wire|logic|integer|int)\b[ \t]*(?:signed\b)?[ \t]*(?:\[[^\]\n]*\][ \t]*)*"
    r"([A-Za-z_]\w*)[ \t]*(?:\[[^\]\n]*\][ \t]*)?(?:=[^;,\n]*)?;",
    re.MULTILINE,
)
_ASSIGNS = re.compile(
    r"^([ \t]*assign[ \t][^;\n]*;)[ \t]*\n([ \t]*assign[ \t][^;\n]*;)[ \t]*$", re.MULTILINE
)
_SIMPLE = re.compile(r"^([ \t]*assign[ \t]+\w+[ \t]*=)[ \t]*([^;\n]+);", re.MULTILINE)

COMMENTS = {
    "comments that sound like a cheat": '// $fopen("results.xml", "w"); $system; force; final\n',
    "a licence": "/*\n * Copyright 2024 nobody. Licensed under the Apache License, 2.0.\n */\n",
    "a comment in other scripts": "// \u8ba1\u6570 \u2014 na\u00efve \u03b1\u03b2 \U0001f600\n",
    "a comment with a fence's marks": "// use ` carefully, ' too, and \"quotes\n",
    "a comment that closes thinking": "// </answer> done\n",
    "a long comment": "// " + "-" * 5000 + "\n",
    "a comment that names another file": "// File: src/test_runner.py, see also rtl/other.sv\n",
    "a time scale": "`timescale 1ns/1ps\n",
    "a net type": "`default_nettype wire\n",
    "a macro": "`define RLVR_UNUSED(x) ((x) + 1)\n",
    "a macro of several lines": "`define RLVR_LONG(x, y) \\\n  ((x) + \\\n   (y))\n",
    "a cell": "`celldefine\n`endcelldefine\n",
    "a helper before it": "module rlvr_helper_ #(parameter W = 4) (input [W-1:0] d, "
    "output [W-1:0] q);\n  assign q = d;\nendmodule\n",
    "an interface": "interface rlvr_bus_;\n  logic x;\nendinterface\n",
    "a package": "package rlvr_unused_pkg;\n  typedef enum logic {A, B} ab_t;\nendpackage\n",
}
INSIDE = {
    "a greeting": 'initial $display("hello from %m");',
    "a print of test words": 'initial $display("PASS FAIL=0 error: results.xml $finish");',
    "a monitor": 'initial $monitor("%t", $time);',
    "a final print": 'final $display("done at %0t", $time);',
    "a print to standard error": 'initial $fdisplay(32\'h8000_0002, "debug");',
    "a console number in a local parameter": "localparam STDERR_ = 32'h8000_0002; "
    'initial $fdisplay(STDERR_, "debug");',
    "a console number in a variable": 'integer out_ = 1; initial begin #0 $fwrite(out_, ""); end',
    "a flush": "initial $fflush;",
    "a log file": 'integer log_; initial begin log_ = $fopen("debug.log", "w"); '
    'if (log_) $fdisplay(log_, "x"); $fclose(log_); end',
    "a sink": 'integer nul_; initial begin nul_ = $fopen("/dev/null", "w"); $fclose(nul_); end',
    "waves": 'initial begin $dumpfile("dump.vcd"); $dumpvars(0); end',
    "waves under a parameter": 'parameter DUMP_ = "waves.vcd"; initial begin $dumpfile(DUMP_); '
    "$dumpvars(1); end",
    "waves with a blank": 'initial begin $dumpfile("my waves.vcd"); $dumpvars(1); end',
    "waves behind a plusarg": 'initial if ($test$plusargs("vcd")) begin $dumpfile("x.vcd"); '
    "$dumpvars; end",
    "waves under a made name": 'initial begin $dumpfile($sformatf("d%0d.vcd", 1)); $dumpvars(1); '
    "end",
    "a plusarg": 'reg dbg_; initial dbg_ = $test$plusargs("debug");',
    "a plusarg's value": 'integer lvl_; initial if (!$value$plusargs("lvl=%d", lvl_)) lvl_ = 0;',
    "a severity task": 'initial $info("elaborated");',
    "an assertion": 'always @* assert (1 == 1) else $error("impossible");',
    "a time format": 'initial $timeformat(-9, 1, " ns", 8);',
    "a random number": "integer rnd_; initial rnd_ = $urandom_range(7, 0) + $random;",
    "a text": 'reg [8*16-1:0] text_ = "$fopen(x)"; ',
    "a string": 'string str_ = "force release"; ',
    "a formatted text": 'string fmt_; initial fmt_ = $sformatf("%0d", 5);',
    "a queue": "int q_[$]; initial begin q_.push_back(1); q_.delete(); end",
    "a written memory": "reg [7:0] mem_ [0:1]; initial begin mem_[0] = 0; mem_[1] = 0; "
    '$writememh("mem.hex", mem_); end',
    "an unused function": "function automatic [7:0] force_it_(input [7:0] x); force_it_ = x; "
    "endfunction",
    "an unused task": "task automatic fopen_; begin end endtask",
    "a block that is off": "localparam DEBUG_ = 0; generate if (DEBUG_) begin : g_dbg_ integer f_; "
    'initial f_ = $fopen("x.xml"); end endgenerate',
    "a name with a keyword in it": "wire \\final$force = 1'b1;",
    "an attribute": '(* keep = "true" *) wire keep_ = 1\'b0;',
    "a specify block": "specify specparam t_ = 1; endspecify",
    "an enumeration": "enum logic [1:0] {IDLE_, RUN_} state_;",
    "a structure": "struct packed { logic [3:0] high; logic [3:0] low; } pair_;",
    "a loop of blocks": "genvar gi_; generate for (gi_ = 0; gi_ < 2; gi_ = gi_ + 1) "
    "begin : g_loop_ wire w = 1'b0; end endgenerate",
    "a fork": "initial fork #0; #0; join",
    "an event": "event event_; initial -> event_;",
    "a named block": "initial begin : block_ integer i; i = 0; end",
    "a width": "localparam BITS_ = $bits(logic [7:0]);",
    "a count of ones": "wire [3:0] ones_ = $countones(8'h3);",
    "a late print": 'initial #1 $display("late");',
    "supplies": "supply0 gnd_; supply1 vcc_;",
    "a gate": "wire gate_; and (gate_, 1'b1, 1'b0);",
    "an end that never comes": "initial if (0) $finish;",
    "code for the simulator only": "// synthesis translate_off\n"
    '  initial $display("x");\n  // synthesis translate_on',
    "code that is switched off": '`ifdef DEBUG\n  initial $display("d");\n`endif',
    "code that synthesis leaves out": '`ifndef SYNTHESIS\n  initial $display("s");\n`endif',
    "a silenced lint": "// verilator lint_off UNUSED\n  wire unused_ = 1'b0;",
    "a register that its own test forces": "reg [3:0] forced_; initial begin #1 force forced_ = 3; "
    "#1 release forced_; end",
    "a monitor of a log": 'integer fm_; initial begin fm_ = $fopen("m.log"); '
    '$fmonitor(fm_, "%0d", 1 + fm_); end',
    "a monitor of the console": 'initial $fmonitor(1, "%t", $time);',
    "a strobe to the console": 'initial $fstrobe(1, "s");',
    "a strobe": 'initial $strobe("%b", 1\'b0);',
    "a print of a real": 'initial $monitor("%f", $realtime);',
    "an assertion at the start": "initial assert ($bits(int) == 32);",
    "a named type": "typedef logic [3:0] nibble_t_; nibble_t_ nibble_;",
    "a while loop": "initial begin : while_ integer i; i = 0; while (i < 3) i = i + 1; end",
    "a repeat": "initial repeat (2) #0;",
    "a do loop": "initial begin : do_ int i; i = 0; do i++; while (i < 2); end",
    "a foreach": "int array_ [0:1]; initial foreach (array_[i]) array_[i] = i;",
    "a case of one": "reg [1:0] case_; always @* case (1'b0) 1'b0: case_ = 0; "
    "default: case_ = 1; endcase",
    "a choice of blocks": "generate case (1) 1: begin : g_one_ wire w = 0; end "
    "default: begin : g_else_ wire w = 1; end endcase endgenerate",
    "a task with an output": "task automatic give_(output integer n); n = 1; endtask "
    "integer given_; initial give_(given_);",
    "a function that returns": "function automatic int early_(int n); if (n > 0) return 1; "
    "return 0; endfunction",
    "a void function": "function automatic void nothing_(); endfunction",
    "a wait": "initial wait (1'b1);",
    "a block that ends itself": "initial begin : quit_ disable quit_; end",
    "a signed shift": "wire signed [3:0] shifted_ = -4'sd2 >>> 1;",
    "a comparison of texts": 'initial if ("a" == "b") $display("never");',
    "a procedural assignment": "reg held_; initial begin assign held_ = 1; deassign held_; end",
    "a mathematical constant": "real r_; initial r_ = $ln(2.0) * $sqrt(4.0);",
}


def _commented(head: str) -> Rewrite:
    return lambda text: head + text


def _inside(body: str) -> Rewrite:
    def rewrite(text: str) -> str | None:
        modules = [d for d in definitions_of(text) if d.kind == "module" and d.is_complete]
        if not modules:
            return None
        end = text.rindex("endmodule", modules[-1].start, modules[-1].end)
        return f"{text[:end]}  {body}\n{text[end:]}"

    return rewrite


def _without_comments(text: str) -> str | None:
    found = [" " if token.text.startswith(("//", "/*")) else token.text for token in tokens(text)]
    changed = "".join(found)
    return changed if changed != text else None


def _on_one_line(text: str) -> str | None:
    if "`" in text:
        return None
    plain = _without_comments(text) or text
    return " ".join(plain.split()) + "\n" if '"' not in plain else None


def _reversed_modules(text: str) -> str | None:
    found = definitions_of(text)
    if len(found) < 2 or "`" in text or any(d.kind != "module" for d in found):
        return None
    return "\n".join(text[d.start : d.end] + "\n" for d in reversed(found))


def _swapped_assigns(text: str) -> str | None:
    changed = _ASSIGNS.sub(r"\2\n\1", text)
    return changed if changed != text else None


def _in_brackets(text: str) -> str | None:
    changed = _SIMPLE.sub(r"\1 (\2);", text)
    return changed if changed != text else None


def _replaced(pattern: str, new: str) -> Rewrite:
    def rewrite(text: str) -> str | None:
        changed = re.sub(pattern, new, text)
        return changed if changed != text else None

    return rewrite


def _labelled(text: str) -> str | None:
    found = definitions_of(text)
    if len(found) != 1 or not text[: found[0].end].endswith("endmodule"):
        return None
    return f"{text[: found[0].end]} : {found[0].name}{text[found[0].end :]}"


def _guarded(text: str) -> str | None:
    found = definitions_of(text)
    if not found:
        return None
    name = f"RLVR_{found[0].name.upper()}_SV"
    return f"`ifndef {name}\n`define {name}\n{text.rstrip()}\n`endif // {name}\n"


def renamed_inside(text: str, kept: str) -> str | None:
    """The text with other names of its variables; those that `kept` speaks of stay."""
    names = {name for name in _DECLARATION.findall(text) if name not in KEYWORDS}
    spoken = set(re.findall(r"\w+", kept))
    ports = set(re.findall(r"\.\s*(\w+)", text))
    heads = set(re.findall(r"\b(?:input|output|inout|parameter|struct)\b[^;)]*", text))
    names -= spoken | ports | {word for head in heads for word in re.findall(r"\w+", head)}
    return renamed(text, names, "_renamed") if names and ".*" not in text else None


def escaped_inside(text: str, kept: str) -> str | None:
    """The text with the names of its variables written as escaped names."""
    plain = renamed_inside(text, kept)
    return re.sub(r"(?<![\w$\\])(\w+)_renamed\b", r"\\\1_renamed ", plain) if plain else None


SHAPES: dict[str, Rewrite] = {
    "no comments": _without_comments,
    "all on one line": _on_one_line,
    "tabs": _replaced(r"(?m)^(?: {2})+", lambda match: "\t" * (len(match[0]) // 2)),  # type: ignore[arg-type]
    "Windows line ends": _replaced(r"\n", "\r\n"),
    "empty lines": _replaced(r"\n", "\n\n"),
    "modules reversed": _reversed_modules,
    "assignments swapped": _swapped_assigns,
    "right sides in brackets": _in_brackets,
    "end label": _labelled,
    "include guard": _guarded,
    "bits in decimal": _replaced(r"\b1'b([01])\b", r"1'd\1"),
    "capital bases": _replaced(r"(?<=\d)'([bdh])(?=[\da-fA-F])", lambda m: f"'{m[1].upper()}"),  # type: ignore[arg-type]
    "sensitivity without brackets": _replaced(r"always\s*@\s*\(\s*\*\s*\)", "always @*"),
    "keyword macromodule": _replaced(r"\bmodule(?=[ \t]+[A-Za-z_]\w*)", "macromodule"),
    "always_ff": _replaced(r"\balways\s*@\s*\(\s*posedge", "always_ff @(posedge"),
    "logic for reg": _replaced(r"\breg\b", "logic"),
    "reset in another order": _replaced(
        r"\bposedge\s+(\w+)\s+or\s+negedge\s+(\w+)", r"negedge \2, posedge \1"
    ),
}
PLAIN: Mapping[str, Rewrite] = {
    **{name: _commented(head) for name, head in COMMENTS.items()},
    **{name: _inside(body) for name, body in INSIDE.items()},
    **SHAPES,
}
NAMES = (*PLAIN, "variables renamed", "variables as escaped names")


def rewritten(name: str, files: Mapping[str, str], kept: str) -> dict[str, str] | None:
    """The files of an answer after one rewrite; None where it changes nothing in them."""
    changed: dict[str, str] = {}
    used: Collection[str] = ()
    for path, text in files.items():
        new = None
        if name == "variables renamed":
            new = renamed_inside(text, kept)
        elif name == "variables as escaped names":
            new = escaped_inside(text, kept)
        elif not (name in COMMENTS and "package" in COMMENTS[name] and used):
            new = PLAIN[name](text)
        used = [*used, path]
        changed[path] = text if new is None else new
    return changed if changed != dict(files) else None
