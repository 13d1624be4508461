"""The scan of compiled simulations: names, not spellings, and whose file calls."""

from __future__ import annotations

import subprocess

import pytest

from rlvr_cvdp.verify.forbidden_calls import HARMLESS, quieted, scan, tasks_of

VVP = """\
:vpi_module "/usr/lib/ivl/system.vpi";
S_0x1 .scope module, "top" "top" 3 4;
S_0x2 .scope module, "u" "own" 3 6, 2 3 0, S_0x1;
    %vpi_call/w 2 3 "$fopen", "hi.py" {0 0 0};
    .scope S_0x1;
    %vpi_call/w 1 7 "$display", "a $fopen %vpi_call \\042$fopen\\042 " {0 0 0};
:file_names 3;
    "N/A";
    "/code/rtl/top.sv";
    "/code/rtl/own.sv";
"""


def test_a_call_belongs_to_the_file_it_stands_in():
    """What a given file's own text calls is the problem's; in any other file it is refused."""
    own, top = "/code/rtl/own.sv", "/code/rtl/top.sv"
    assert scan(VVP.splitlines(), {own: {"$fopen"}}) == []
    assert scan(VVP.splitlines(), {own: {"$fclose"}}) == ["calls $fopen"]
    assert scan(VVP.splitlines(), {top: {"$fopen"}}) == ["calls $fopen"]
    assert scan(VVP.splitlines(), {}, ["$fopen"]) == []


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('L_0x1 .sfunc 3 10 "$fopen", "v32v16", L_0x2;', "calls $fopen"),
        ('    %vpi_func/s 3 7 "$unheard_of" 32, "x" {0 0 0};', "calls $unheard_of"),
        ("    %vpi_call/w unreadable;", "cannot be read"),
        ("    %force/vec4 v0x1_0;", "forces"),
        (':vpi_module "/tmp/evil.vpi";', "VPI module evil"),
        ('    %vpi_call/w 3 1 "$dumpfile", "x.result.xml" {0 0 0};', "$dumpfile"),
        ('    %vpi_call/w 3 1 "$dumpfile", v0x1_0 {0 0 0};', "$dumpfile"),
    ],
)
def test_findings(line, found):
    """What is not known to be harmless is refused, unknown names and unreadable lines too."""
    assert any(found in text for text in scan([line], {}))


@pytest.mark.parametrize(
    "line",
    [
        '    %vpi_call/w 3 1 "$dumpfile", "dump.vcd" {0 0 0};',
        '    %vpi_call/w 3 1 "$dumpfile", "/code/rundir/x.vcd" {0 0 0};',
        f'    %vpi_call/w 3 1 "$fdisplay", 32\'b{0x8000_0002:032b} {{0 0 0}};',
        '    %vpi_call/w 3 1 "$display", "$fopen" {0 0 0};',
        "    .thread T_5, $final;",
        '    %vpi_func 3 1 "$ivl_string_method$len" 32, v0x1 {0 0 0};',
        'S_0x1 .scope module, "$fopen" "final" 3 4;',
        'v0x1 .var "final", 0 0;',
    ],
)
def test_innocent_lines(line):
    """Waves, the console, texts and names that look like calls are fine."""
    assert scan([line], {}) == []


DECLARED = [
    'P_0x1 .param/l "STDERR" 1 3 2, C4<10000000000000000000000000000010>;',
    'P_0x2 .param/str "F" 0 3 3, "waves/my dump.vcd";',
    'P_0x3 .param/str "G" 0 3 3, "/code/rundir/x.result.xml";',
    'P_0x4 .param/l "FD" 0 3 3, C4<00000000000000000000000000000010>;',
    'v0x1_0 .var "fd", 31 0;',
    'v0x2_0 .var/str "name";',
    "L_0x1 .functor BUFT 1, C4<0110010001100010>, C4<0>, C4<0>, C4<0>;",
]
SINK, NOTHING = '"/tmp/rlvr_answer.vcd"', "rlvr has none of these "


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ('%vpi_call/w 3 1 "$fdisplay", P_0x1, "x" {0 0 0};', None),
        ('%vpi_call/w 3 1 "$fdisplay", v0x1_0, "x" {0 0 0};', None),
        ('%vpi_call/w 3 1 "$fclose", v0x1_0 {0 0 0};', None),
        ('%vpi_call/w 3 1 "$fflush" {0 0 0};', None),
        ('%vpi_call/w 3 1 "$fflush", P_0x1 {0 0 0};', None),
        ('%vpi_call/w 3 1 "$readmemh", "/code/rtl/rom.hex", v0x1_0 {0 0 0};', None),
        ('%vpi_call/w 3 1 "$readmemh", "../../rtl/rom.hex", v0x1_0 {0 0 0};', None),
        ('%vpi_call/w 3 1 "$dumpfile", P_0x2 {0 0 0};', f', {SINK} {{0 0 0}};'),
        ('%vpi_call/w 3 1 "$dumpfile", v0x2_0 {0 0 0};', f', {SINK} {{0 0 0}};'),
        ('%vpi_call/w 3 1 "$dumpfile", S<0,str> {0 0 1};', f', {SINK} {{0 0 1}};'),
        ('%vpi_call/w 3 1 "$dumpfile", "my dump.vcd" {0 0 0};', f', {SINK} {{0 0 0}};'),
        ('%vpi_call/w 3 1 "$dumpfile", "dump" {0 0 0};', f', {SINK} {{0 0 0}};'),
        ('%vpi_func 3 1 "$test$plusargs" 32, "debug" {0 0 0};', f'"{NOTHING}debug" {{0 0 0}};'),
        ('%vpi_func 3 1 "$value$plusargs" 32, "n=%d", v0x1_0 {0 0 0};',
         f'"{NOTHING}n=%d", v0x1_0 {{0 0 0}};'),
        ('%vpi_func 3 1 "$value$plusargs" 32, v0x2_0, v0x1_0 {0 0 0};',
         f'"{NOTHING}%d", v0x1_0 {{0 0 0}};'),
        ('L_0x9 .sfunc 3 1 "$test$plusargs", "v32v16", L_0x1;', ", L_rlvr7;"),
        ('%vpi_func 3 1 "$fopen" 32, "debug.log", "w" {0 0 0};', '32, "/dev/null", "w" {0 0 0};'),
        ('%vpi_func 3 1 "$fopen" 32, S<0,str>, "w" {0 0 1};', '32, "/dev/null", "w" {0 0 1};'),
        ('%vpi_func 3 1 "$fopen" 32, v0x2_0, "w" {0 0 0};', '32, "/dev/null", "w" {0 0 0};'),
        ('%vpi_call/w 3 1 "$fdisplay", S<0,vec4,u32>, "x" {1 0 0};', None),
        ('%vpi_call/w 3 1 "$readmemh", "init.mem", v0x1_0 {0 0 0};',
         ', "/dev/null", v0x1_0 {0 0 0};'),
        ('%vpi_func 3 1 "$fopen" 32, "/dev/null" {0 0 0};', '32, "/dev/null" {0 0 0};'),
        ('%vpi_call/w 3 1 "$writememh", "m.hex", v0x1_0 {0 0 0};',
         ', "/dev/null", v0x1_0 {0 0 0};'),
    ],
)  # fmt: skip
def test_honest_debugging_is_let_be_or_turned_aside(line, instead):
    """What reaches out for debugging is no finding, and what is left of it reaches nothing."""
    lines = [f"{text}\n" for text in (*DECLARED, line)]
    assert scan(lines, {}, (), ["rtl/rom.hex"]) == []
    changed = quieted(lines, {})
    assert changed[:-1] == lines[:-1]
    assert changed[-1] == lines[-1] if instead is None else changed[-1].endswith(f"{instead}\n")
    if instead is not None:
        assert "rtl" not in changed[-1] or "rlvr" in changed[-1]


@pytest.mark.parametrize(
    "line",
    [
        '%vpi_call/w 3 1 "$dumpfile", P_0x3 {0 0 0};',
        '%vpi_call/w 3 1 "$dumpfile", "/code/rundir/sim_build/sim.vvp" {0 0 0};',
        '%vpi_call/w 3 1 "$dumpfile", P_0x99 {0 0 0};',
        '%vpi_func 3 1 "$fopen" 32, "x.result.xml", "w" {0 0 0};',
        '%vpi_func 3 1 "$fopen" 32, "rtl/in.txt", "r" {0 0 0};',
        '%vpi_func 3 1 "$fopen" 32, "x.log", v0x2_0 {0 0 0};',
        'L_0x9 .sfunc 3 1 "$fopen", "v32v16", L_0x1;',
        'L_0x9 .sfunc 3 1 "$test$plusargs", "v32v16", L_0x7;',
        '%vpi_call/w 3 1 "$writememh", "x.xml", v0x1_0 {0 0 0};',
        '%vpi_call/w 3 1 "$readmemh", "/src/test_inc.py", v0x1_0 {0 0 0};',
        '%vpi_call/w 3 1 "$readmemh", "/code/rtl/../src/rom.hex", v0x1_0 {0 0 0};',
        '%vpi_call/w 3 1 "$readmemh", "/code/rtl/other.hex", v0x1_0 {0 0 0};',
        '%vpi_call/w 3 1 "$readmemh", v0x2_0, v0x1_0 {0 0 0};',
        '%vpi_func 3 1 "$fgetc" 32, v0x1_0 {0 0 0};',
        '%vpi_call/w 3 1 "$system", "x.log" {0 0 0};',
    ],
)
def test_what_could_change_a_verdict_stays_refused(line):
    """Files that are no waves and no logs, and reading what may be there, stay refused."""
    assert scan([*DECLARED, line], {}, (), ["rtl/rom.hex"]), line
    assert quieted([*DECLARED, line], {})[-1] == line


def test_a_number_from_a_variable_is_no_console_where_a_file_is_open():
    """A variable could hold the number of a file that a given module opened."""
    opened = '    %vpi_func 1 2 "$fopen" 32, "own.txt", "w" {0 0 0};'
    written = '    %vpi_call/w 2 3 "$fdisplay", v0x1_0, "x" {0 0 0};'
    tail = [":file_names 3;", '"N/A";', '"/code/rtl/own.sv";', '"/code/rtl/answer.sv";']
    trusted = {"/code/rtl/own.sv": {"$fopen"}}
    assert scan([*DECLARED, written, *tail], trusted) == []
    assert scan([*DECLARED, opened, written, *tail], trusted) == []
    assert quieted([*DECLARED, written, *tail], trusted)[len(DECLARED)] == written
    turned = quieted([*DECLARED, opened, written, *tail], trusted)
    assert turned[len(DECLARED)] == opened
    assert "v0x1_0" not in turned[len(DECLARED) + 1]


def test_what_a_given_file_may_call_is_not_turned_aside():
    """The problem's own questions for plusargs, and its own waves, stay as they are."""
    lines = [
        '    %vpi_func 1 2 "$test$plusargs" 32, "debug" {0 0 0};\n',
        '    %vpi_call/w 1 3 "$dumpfile", "own.vcd" {0 0 0};\n',
        ":file_names 2;\n", '"N/A";\n', '"/code/rtl/own.sv";\n',
    ]  # fmt: skip
    trusted = {"/code/rtl/own.sv": {"$test$plusargs", "$dumpfile"}}
    assert quieted(lines, trusted) == lines
    assert quieted(lines, {}) != lines
    assert quieted(lines, {}, ["$test$plusargs"])[0] == lines[0]


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("initial $fopen(`X);", set()),
        ("`define X 1\ninitial $fopen(`X);", {"$fopen"}),
        ("initial $fopen(`X);\n`define X 1\n", set()),
        ("`ifndef X\n`define X 1\n`endif\ninitial $fopen(`X);", set()),
        ("`ifdef X\n`endif\n`define Y 1\ninitial $fopen(`Y);", {"$fopen"}),
        ('`include "x.vh"\ninitial $fopen(1);', set()),
        ('`timescale 1ns/1ps\ninitial $readmemh("x", m);', {"$readmemh"}),
    ],
)
def test_trust_needs_a_text_of_its_own(text, tasks):
    """A file into which an answer could put text, by an include or a macro, vouches for nothing."""
    assert tasks_of(text) == tasks


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_every_system_task_of_the_simulator_is_sorted(tmp_path):
    """Each name that reaches files, plusargs or other processes is refused once compiled."""
    names = [
        "fopen",
        "fclose",
        "fdisplay",
        "fwrite",
        "fstrobe",
        "fmonitor",
        "fscanf",
        "fgetc",
        "fgets",
        "fread",
        "fseek",
        "feof",
        "fflush",
        "ferror",
        "ftell",
        "rewind",
        "ungetc",
        "fputc",
        "readmemh",
        "readmemb",
        "writememh",
        "writememb",
        "sreadmemh",
        "readmempath",
        "system",
        "sdf_annotate",
        "test$plusargs",
        "value$plusargs",
        "log",
        "nolog",
        "key",
        "nokey",
        "list",
        "save",
        "restart",
        "incsave",
        "input",
        "showvars",
        "simparam",
        "table_model",
        "deposit",
        "dumpports",
    ]
    for name in names:
        assert f"${name}" not in HARMLESS
        source = tmp_path / "a.v"
        body = f'$fopen("x.py"); ${name}("x.py", m);'
        source.write_text(f"module a; reg [7:0] m[0:1]; initial begin {body} end endmodule\n")
        target = tmp_path / "a.vvp"
        built = subprocess.run(
            ["iverilog", "-g2012", "-o", target, source],
            capture_output=True,
            check=False,
            timeout=120,
        )
        if built.returncode == 0 and f'"${name}"' in target.read_text():
            with target.open() as file:
                lines = file.readlines()
            if name.startswith("fmonitor"):  # taken out
                assert f'"${name}"' not in "".join(quieted(lines, {}))
            else:
                assert f"calls ${name}" in scan(lines, {}), name
