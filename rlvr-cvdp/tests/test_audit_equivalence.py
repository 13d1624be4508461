"""yosys proves the same hardware to be the same, and nothing else."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from attrs import evolve

from rlvr.testing.tools import require_tool
from rlvr_cvdp.audit.builds import is_plain
from rlvr_cvdp.audit.equivalence import compare
from rlvr_cvdp.audit.syntax import is_raced
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.toolchain.limited import run_limited

GOLD = """\
module top #(parameter W = 4) (input clk, input rst_n, input en, input [W-1:0] d,
           output reg [W-1:0] q, output [W-1:0] y);
  reg [3:0] mem [0:3];
  reg [1:0] a = 0;
  wire [W-1:0] t;
  sub s(.clk(clk), .x(d), .y(t));
  always @(posedge clk or negedge rst_n)
    if (!rst_n) q <= 0;
    else if (en) q <= q + d;
    else q <= q;
  always @(posedge clk) begin
    a <= a + 1;
    mem[a] <= d;
  end
  assign y = mem[d[1:0]] ^ t;
endmodule
module sub(input clk, input [3:0] x, output reg [3:0] y);
  always @(posedge clk) y <= x;
endmodule
"""
MODULE = "module top(input clk, input [3:0] d, output reg [3:0] q, output [3:0] y);\n"


@pytest.fixture(autouse=True)
def yosys() -> str:
    return require_tool("yosys", "sudo apt-get install -y yosys")


def problem(harness: str = "", **environment: str) -> CvdpProblem:
    service = Service(
        name="direct",
        command=("pytest",),
        environment={"TOPLEVEL": "top", "VERILOG_SOURCES": "/code/rtl/top.sv", **environment},
    )
    return CvdpProblem(
        id="p",
        category="cid003",
        difficulty="easy",
        prompt="",
        context={},
        targets=("rtl/top.sv",),
        harness={"src/test_runner.py": harness},
        services=(service,),
    )


def found(gold: str, gate: str, harness: str = "") -> str:
    return compare(problem(harness), {"rtl/top.sv": gold}, {"rtl/top.sv": gate})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("else q <= q;", "else ;"),
        ("else q <= q;", "else q <= q & q;"),
        ("q + d", "d + q"),
        ("^ t", "^ (t | 4'd0)"),
    ],
)
def test_equal_hardware_is_proven(old: str, new: str) -> None:
    """Registers, memories, hierarchy and resets: a rewriting that changes nothing is found out."""
    assert found(GOLD, GOLD.replace(old, new)) == "equivalent"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("q + d", "q - d"),
        ("a = 0", "a = 1"),  # only the power-up value
        ("a = 0", "a"),
        ("q <= 0", "q <= 1"),  # only the reset value
        ("or negedge rst_n", ""),  # asynchronous to synchronous
        ("negedge rst_n", "posedge rst_n"),
        ("posedge clk or", "negedge clk or"),
        ("q <= 0;", ";"),
        ("mem[a] <= d", "mem[a] <= ~d"),
        ("a <= a + 1;", ""),
        ("y <= x", "y <= ~x"),
        ("output reg [W-1:0] q", "output reg [W-2:0] q"),
    ],
)
def test_other_hardware_is_never_proven_equal(old: str, new: str) -> None:
    """Function, power-up value, reset value, kind of reset, edge, memory, width."""
    assert old in GOLD
    assert found(GOLD, GOLD.replace(old, new, 1)) in ("different", "undecided")


def test_parameters_that_the_harness_sets_are_undecided() -> None:
    """Equal at W=4 only: proven where nobody sets W, undecided where the harness may."""
    gate = GOLD.replace("q + d", "q + d[3:0]")
    assert found(GOLD, gate) == "equivalent"
    for harness in (
        'runner.build(parameters={"W": 8})',
        "runner.build(build_args=[f'-Ptop.W={w}'])",
        "runner.build(**options)",
    ):
        assert found(GOLD, gate, harness) == "undecided", harness


def test_macros_that_the_harness_sets_are_undecided() -> None:
    """A branch that yosys does not see may be the one that is simulated."""
    gold = MODULE + "`ifdef FAST\n assign y = d;\n`else\n assign y = ~d;\n`endif\nendmodule\n"
    gate = gold.replace("y = d;", "y = d + 1;")
    assert found(gold, gate) == "equivalent"
    assert found(gold, gate, 'runner.build(defines={"FAST": 1})') == "undecided"


@pytest.mark.parametrize(
    ("body", "old", "new"),
    [
        ("always @(posedge clk) #(2) q <= d;", "#(2)", "#(3)"),
        ("initial begin #5 q = d; end", "#5", "#6"),
        ("always @(*) if (clk) q = d;", "= d", "= d & d"),  # a latch
        ("always @(posedge clk) q <= $random;", "$random", "$random + 0"),
        ("assign y = 4'bzzzz;", "zzzz", "zzz0"),
    ],
)
def test_what_synthesis_leaves_out_is_undecided(body: str, old: str, new: str) -> None:
    """Delays, latches, random numbers, tristates: no proof, whatever yosys makes of them."""
    gold = f"{MODULE}  {body}\nendmodule\n"
    assert found(gold, gold.replace(old, new)) != "equivalent"


def test_asynchronous_loads_are_compared() -> None:
    """A register that takes an input at once: proven where equal, found out where not."""
    gold = MODULE + (
        "  always @(posedge clk or negedge d[0])\n    if (!d[0]) q <= y;\n"
        "    else q <= {q[2:0], q[3]};\n"
        "  assign y = d + 4'd3;\nendmodule\n"
    )
    assert found(gold, gold.replace("d + 4'd3", "4'd3 + d")) == "equivalent"
    assert found(gold, gold.replace("q <= y", "q <= ~y")) == "different"
    assert found(gold, gold.replace("posedge clk", "negedge clk")) != "equivalent"


@pytest.mark.parametrize(
    "body",
    [
        "assign y = d; assign y = ~d;",
        "assign y = d; assign y = 4'd0;",
        "always @(posedge clk) q <= d; always @(posedge clk) q <= ~d;",
        "assign y = d; assign d = 4'd3;",
    ],
)
def test_contradictions_prove_nothing(body: str) -> None:
    """Two drivers of one net: a solver would prove anything of it."""
    gold = f"{MODULE}  {body}\nendmodule\n"
    assert found(gold, gold.replace("= d;", "= d + 1;")) != "equivalent"
    assert found(gold, gold.replace("<= d;", "<= d + 1;")) != "equivalent" or "<=" not in body


def test_x_is_no_number() -> None:
    """A design that gives x where the reference gives 0 is another one, and the other way round."""
    gold = MODULE + "  assign y = d[0] ? 4'd3 : 4'd0;\nendmodule\n"
    assert found(gold, gold.replace("4'd0", "4'bx")) == "different"
    assert found(gold.replace("4'd0", "4'bx"), gold) == "different"


def test_two_clocked_processes_race() -> None:
    """`q = d` is the same hardware as `q <= d`; another process may see it too early, though."""
    alone = MODULE + "  always @(posedge clk) q <= d;\nendmodule\n"
    assert found(alone, alone.replace("q <= d", "q = d")) == "equivalent"
    two = alone.replace("endmodule", "  reg [3:0] p;\n  always @(posedge clk) p <= q;\n"
                        "  assign y = p;\nendmodule")  # fmt: skip
    assert is_raced({"a": two}, {"a": two.replace("q <= d", "q = d")})
    assert not is_raced({"a": two}, {"a": two.replace("q <= d", "q <= ~d")})
    assert found(two, two.replace("q <= d", "q = d")) == "undecided"


def test_unknown_tops_and_unreadable_texts_are_undecided(monkeypatch) -> None:
    """No top module, no yosys, text that yosys does not read: never a proof."""
    assert found("module top(", "module top(") == "undecided"
    two = problem('run(hdl_toplevel="other")')
    assert compare(two, {"rtl/top.sv": GOLD}, {"rtl/top.sv": GOLD}) == "undecided"
    monkeypatch.setattr("rlvr_cvdp.audit.equivalence.find_tool", lambda name: None)
    assert found(GOLD, GOLD) == "undecided"


@pytest.mark.parametrize("path", ["rtl/a;!touch made;.sv", "-o.sv", "rtl/a b.sv", "rtl/$(x).sv"])
def test_names_of_files_command_no_tool(path: str, tmp_path: Path, monkeypatch) -> None:
    """A file name that yosys would take for a command, or iverilog for a flag, is not passed on."""
    monkeypatch.setattr(
        "rlvr_cvdp.audit.equivalence.run_limited", lambda *_, **__: pytest.fail("was run")
    )
    asked = evolve(problem(), context={path: GOLD}, targets=(path,), services=())
    asked = evolve(asked, services=(Service(name="s", command=(), environment={
        "TOPLEVEL": "top", "VERILOG_SOURCES": path}),))  # fmt: skip
    assert not is_plain(path)
    assert compare(asked, {path: GOLD, "rtl/x.sv": ""}, {path: GOLD}) == "undecided"


def test_a_tool_that_hangs_or_swells_is_ended(tmp_path: Path) -> None:
    """Processor time and memory are bounded, children included."""
    assert shutil.which("python3")
    ran = run_limited(["python3", "-c", "while True: pass"], cwd=tmp_path, cpu_s=1)
    assert ran.rc != 0
    big = run_limited(["python3", "-c", "b'x' * 10**9"], cwd=tmp_path, cpu_s=5, memory_mb=200)
    assert big.rc != 0
    assert run_limited(["sh", "-c", "echo fine"], cwd=tmp_path, cpu_s=1).output == "fine\n"
