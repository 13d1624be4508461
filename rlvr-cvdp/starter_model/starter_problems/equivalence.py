"""Whether a mutant can be told from the solution at all: both simulated side by side."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from .style import Port

VECTORS = 20_000


def is_indistinguishable(solution: str, mutant: str, ports: Sequence[Port]) -> bool:
    """
    Whether both give the same outputs through a long random run from a common reset.

    Inputs, clock and reset change at random and one at a time, at odds that let deep states be
    reached. X counts as a value of its own once the solution's output is known. A mutant that
    the compiler refuses is not indistinguishable.
    """
    with tempfile.TemporaryDirectory(prefix="starter_") as folder:
        work = Path(folder)
        (work / "a.sv").write_text(solution, encoding="utf-8")
        other = re.sub(r"\bmodule (\w+)", r"module mutant_of_it", mutant, count=1)
        (work / "b.sv").write_text(other, encoding="utf-8")
        (work / "bench.sv").write_text(_bench(solution, ports), encoding="utf-8")
        build = ["iverilog", "-g2012", "-o", "sim", "-s", "bench", "a.sv", "b.sv", "bench.sv"]
        if subprocess.run(build, cwd=work, capture_output=True, check=False).returncode:
            return False
        try:
            done = subprocess.run(
                ["vvp", "-n", "sim"],
                cwd=work,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return False
    return "SAME" in done.stdout


def _bench(solution: str, ports: Sequence[Port]) -> str:
    (name,) = re.findall(r"^module (\w+)", solution, flags=re.MULTILINE)[:1]
    inputs = [port for port in ports if port.direction == "input"]
    outputs = [port for port in ports if port.direction == "output"]
    clocked = inputs[0].name in ("clk", "clock")
    data = inputs[2:] if clocked else inputs
    lines = ["module bench;"]
    lines += [f"  reg [{p.width - 1}:0] {p.name} = 0;" for p in inputs]
    for p in outputs:
        lines.append(f"  wire [{p.width - 1}:0] {p.name}_a, {p.name}_b;")
    for module, mark in ((name, "a"), ("mutant_of_it", "b")):
        links = [f".{p.name}({p.name})" for p in inputs]
        links += [f".{p.name}({p.name}_{mark})" for p in outputs]
        lines.append(f"  {module} u_{mark} ({', '.join(links)});")
    differs = " || ".join(f"(^{p.name}_a !== 1'bx && {p.name}_a !== {p.name}_b)" for p in outputs)
    lines += ["  integer k, odds;", "  initial begin", "    odds = 2;"]
    if clocked:
        clock, reset = inputs[0].name, inputs[1].name
        on = int(not reset.endswith("_n"))
        lines += [f"    {reset} = {1 - on}; #1 {reset} = {on}; #1 {clock} = 1; #1 {clock} = 0; #1;"]
        lines += [f"    {clock} = 1; #1 {clock} = 0; #1;"]
    lines += [f"    for (k = 0; k < {VECTORS}; k = k + 1) begin"]
    lines += ["      if (k % 64 == 0) odds = 2 + $urandom % 12;"]
    for p in data:
        draw = f"if ($urandom % odds == 0) {p.name} = {p.name} ^ 1'b1;"
        if p.width > 1:
            draw = f"{p.name} = ($urandom % 8) ? $urandom : {{{p.width}{{k[0]}}}};"
        lines.append(f"      {draw}")
    lines += ["      #1;", "      check;"]
    if clocked:
        lines += [f"      {reset} = ($urandom % 97 == 0) ? {on} : {1 - on}; #1 check;"]
        lines += [f"      {clock} = 1; #1 check; {clock} = 0; #1 check;"]
    lines += ["    end", '    $display("SAME");', "    $finish;", "  end", "  task check;"]
    lines += [f'    if ({differs}) begin $display("DIFFERENT"); $finish; end', "  endtask"]
    return "\n".join([*lines, "endmodule"]) + "\n"
