"""The scan of compiled simulations: names, not spellings, and whose file calls."""

from __future__ import annotations

import subprocess

import pytest

from rlvr_cvdp.scan import HARMLESS, scan, tasks_of

VVP = """\
:vpi_module "/usr/lib/ivl/system.vpi";
S_0x1 .scope module, "top" "top" 3 4;
S_0x2 .scope module, "u" "own" 3 6, 2 3 0, S_0x1;
    %vpi_call/w 2 3 "$fopen", "hi" {0 0 0};
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
        ('    %vpi_call/w 3 1 "$fdisplay", v0x1_0, "x" {0 0 0};', "$fdisplay"),
        (f'    %vpi_call/w 3 1 "$fwrite", 32\'b{2:032b}, 1;', "$fwrite"),
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
        source.write_text(f'module a; reg [7:0] m[0:1]; initial ${name}("x", m); endmodule\n')
        target = tmp_path / "a.vvp"
        built = subprocess.run(
            ["iverilog", "-g2012", "-o", target, source],
            capture_output=True,
            check=False,
            timeout=120,
        )
        if built.returncode == 0 and f'"${name}"' in target.read_text():
            with target.open() as file:
                assert scan(file, {}) == [f"calls ${name}"], name
