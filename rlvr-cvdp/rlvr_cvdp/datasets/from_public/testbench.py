"""A harness from a testbench that is written in Verilog and prints whether it passed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rlvr_cvdp.datasets.from_public.golden import COMPOSE
from rlvr_cvdp.hdl.names import renamed, scope_names

PASS_PATTERN = (
    r"(?im)^\W*(?:all tests? (?:have )?pass(?:ed)?|tests? passed|your design passed"
    r"|.*\bmismatches: 0 in [1-9]\d* samples)\b"
)
"""Lines that say so in public sets: RTLLM's, VerilogEval's, and plain words."""

_ENV = """\
SIM             = icarus
TOPLEVEL_LANG   = verilog
TOPLEVEL        = {top}
PYTHONPATH      = /src
"""

_RUNNER = '''\
"""Runs the testbench with the answer and looks for the line that says that it passed."""

import os
import re
import subprocess

SOURCES = {sources}
TOP = {top}
SUFFIX = {suffix}
PASS, FAIL = {passes}, {fails}
VVP = "/rlvr/real/vvp" if os.path.exists("/rlvr/real/vvp") else "vvp"
SCOPE = re.compile(r'(S_\\w+) \\.scope (\\w+)[^,]*, "[^"]*" "([^"]*)".*?(?:, (S_\\w+))?;$')
CALL = re.compile(r'(%vpi|\\.sfunc)\\S* \\d+ \\d+ "([^"]+)"')
QUIET = re.compile(  # functions that never print a warning, whose file name a `line could set
    r"\\$(clog2|u?random|time|stime|realtime|signed|unsigned|bits|itor|rtoi|realtobits|bitstoreal"
    r"|ln|log10|exp|sqrt|pow|floor|ceil|a?(sin|cos|tan)h?|atan2|hypot|abs|min|max|size|low|high"
    r"|left|right|count(ones|bits)|onehot0?|isunknown|ivl_\\w+\\$\\w+)"
)


def calls_of_others(lines):
    """
    System tasks that anything but the testbench calls; only it has the suffix.

    Functions that cannot print are left out.
    """
    kinds, current, found = {{}}, "", []
    for line in lines:
        text = line.strip()
        scope = SCOPE.match(text)
        if scope:
            current = scope[1]
            own = scope[3].endswith(SUFFIX)
            kinds[current] = own if scope[2] == "module" else kinds.get(scope[4], False)
        elif text.startswith(".scope "):
            current = text.split()[1].rstrip(";")
        elif not kinds.get(current, False):
            head = text.partition('"')[0]
            if "%vpi" in head or ".sfunc" in head:
                call = CALL.search(text)
                is_function = call and "%vpi_call" not in head
                if not (is_function and QUIET.fullmatch(call[2])):
                    found.append(call[2] if call else text)
    return found


def test_bench():
    compile_ = ["iverilog", "-g2012", "-u", "-o", "sim.vvp", "-s", TOP, *SOURCES]
    built = subprocess.run(compile_, capture_output=True, text=True, errors="replace")
    assert built.returncode == 0, built.stderr[-2000:]
    with open("sim.vvp", encoding="utf-8", errors="replace", newline="\\n") as file:
        found = calls_of_others(file)
    assert not found, f"only the testbench may print or end the simulation: {{found[:5]}}"
    ran = subprocess.run([VVP, "-n", "sim.vvp"], capture_output=True, text=True, errors="replace")
    if ran.returncode in (-9, -15):
        os._exit(128 - ran.returncode)  # somebody else ended it
    output = ran.stdout[-4_000_000:]
    assert ran.returncode == 0, f"the simulation ended with {{ran.returncode}}"
    assert re.search(PASS, output), "the testbench did not say that it passed"
    assert not FAIL or not re.search(FAIL, output), "the testbench said that it failed"
'''


def bench_harness(
    testbench: str,
    top: str,
    *,
    target: str,
    given: Sequence[str] = (),
    suffix: str,
    pass_pattern: str = PASS_PATTERN,
    fail_pattern: str = "",
) -> dict[str, str]:
    """
    The harness's files by path; `top` is the testbench's own module.

    Names that a hierarchical reference could begin with carry `suffix`, which cannot be guessed
    without the testbench: an answer cannot reach the bench's counters. Only the bench may call a
    system task (print, end the simulation). The compiled scopes decide that, not files or lines,
    which a text could claim.
    """
    bench = renamed(testbench, scope_names(testbench), suffix)
    sources = ["/src/bench.sv", *(f"/code/{path}" for path in given), f"/code/{target}"]
    values = {
        "sources": sources,
        "top": top + suffix,
        "suffix": suffix,
        "passes": pass_pattern,
        "fails": fail_pattern,
    }
    return {
        "docker-compose.yml": COMPOSE,
        "src/.env": _ENV.format(top=top + suffix),
        "src/test_runner.py": _RUNNER.format(**{k: json.dumps(v) for k, v in values.items()}),
        "src/bench.sv": bench,
    }
