"""Looks for what a compiled simulation could do beyond simulating the design.

The RTL of an answer can hide a system task behind macros, but not from the compiled form: in
`sim.vvp` every call has its name in plain text. Refused are calls of any system task that is not
known to be harmless (files, plusargs, the shell), `final` blocks, `force`, and foreign VPI modules.
Modules of the problem's own, unchanged files may call what they like.

Standard library only: it also runs inside the sandbox, as `scan.py SIM_VVP [iverilog arguments]`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable

HARMLESS = frozenset(
    f"${name}"
    for name in [
        "display",
        "displayb",
        "displayh",
        "displayo",
        "write",
        "writeb",
        "writeh",
        "writeo",
        "strobe",
        "strobeb",
        "strobeh",
        "strobeo",
        "monitor",
        "monitorb",
        "monitorh",
        "monitoro",
        "monitoron",
        "monitoroff",
        "time",
        "stime",
        "realtime",
        "simtime",
        "abstime",
        "timeformat",
        "printtimescale",
        "timezero",
        "finish",
        "stop",
        "fatal",
        "error",
        "warning",
        "info",
        "random",
        "urandom",
        "urandom_range",
        "mti_random",
        "mti_dist_uniform",
        "dist_chi_square",
        "dist_erlang",
        "dist_exponential",
        "dist_normal",
        "dist_poisson",
        "dist_t",
        "dist_uniform",
        "itor",
        "rtoi",
        "realtobits",
        "bitstoreal",
        "bitstoshortreal",
        "shortrealtobits",
        "sformat",
        "sformatf",
        "swrite",
        "swriteb",
        "swriteh",
        "swriteo",
        "sscanf",
        "countdrivers",
        "countbits",
        "countones",
        "isunknown",
        "onehot",
        "onehot0",
        "dimensions",
        "unpacked_dimensions",
        "high",
        "low",
        "left",
        "right",
        "increment",
        "size",
        "bits",
        "clog2",
        "ln",
        "log10",
        "exp",
        "sqrt",
        "pow",
        "floor",
        "ceil",
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "hypot",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
        "abs",
        "min",
        "max",
        "q_initialize",
        "q_add",
        "q_remove",
        "q_full",
        "q_exam",
        "signed",
        "unsigned",
        "cast",
        "getpattern",
        "dumpvars",
        "dumpon",
        "dumpoff",
        "dumpall",
        "dumplimit",
        "dumpflush",
        "ivlh_attribute_event",
        "ivlh_rising_edge",
        "ivlh_falling_edge",
        "ivlh_shift_left",
        "ivlh_shift_right",
    ]
)
_HARMLESS_GROUPS = re.compile(r"\$(ivl_\w+\$\w+|(async|sync)\$(and|nand|or|nor)\$(array|plane))")
_KNOWN_MODULES = {"system", "vhdl_sys", "vhdl_textio", "v2005_math", "va_math", "v2009"}
_SCOPE = re.compile(r'(S_\w+) \.scope (\w+), "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"(.*);')
_PARENT = re.compile(r"(S_\w+)\s*$")
_CALL = re.compile(r'(?:%vpi_(?:call|func)\S*|\.sfunc\S*)\s+\d+\s+\d+\s+"(\$[^"]+)"(.*)')
_DUMP_NAME = re.compile(r'^, "[\w-]+(\.[\w-]+)*\.(vcd|fst|lxt2?)"')
_MODULE = re.compile(r"\bmodule\s+(?:automatic\s+|static\s+)?(\w+)")
_SOURCE = re.compile(r"\.s?vh?$")


def scan(
    lines: Iterable[str], trusted: Collection[str], allowed: Collection[str] = ()
) -> list[str]:
    """
    What is wrong with a compiled simulation, in words; empty where nothing is.

    Args:
        lines: The text of `sim.vvp`.
        trusted: Types of modules that no answer can have defined.
        allowed: Further system tasks that the problem itself asks for (`$test$plusargs`).
    """
    types: dict[str, str] = {}
    findings: list[str] = []
    current = ""
    for line in lines:
        text = line.strip()
        declared = _SCOPE.match(text)
        if declared:
            scope, kind, _, type_name, rest = declared.groups()
            parent = _PARENT.search(rest)
            inherited = types.get(parent[1], "") if parent else ""
            types[scope] = type_name if kind == "module" else inherited
            current = scope
        elif text.startswith(".scope "):
            current = text[7:].rstrip(";").strip()
        elif text.startswith(":vpi_module"):
            name = text.rpartition("/")[2].partition(".")[0].strip('";')
            if name not in _KNOWN_MODULES:
                findings.append(f"loads the VPI module {name}")
        else:
            findings += _judge(text, types.get(current, "") in trusted, allowed)
    return list(dict.fromkeys(findings))


def _judge(text: str, is_trusted: bool, allowed: Collection[str]) -> list[str]:
    if is_trusted:
        return []
    if text.startswith(".thread") and "$final" in text:
        return ["has a final block"]
    if text.startswith("%force"):
        return ["forces a signal"]
    if "%vpi" not in text.partition('"')[0] and ".sfunc" not in text.partition('"')[0]:
        return []
    call = _CALL.search(text)
    if call is None:
        return [f"calls what cannot be read: {text[:60]}"]
    name, arguments = call[1], call[2]
    if name in HARMLESS or name in allowed or _HARMLESS_GROUPS.fullmatch(name):
        return []
    if name == "$dumpfile" and _DUMP_NAME.match(arguments):
        return []  # a wave file in the simulation's own folder
    return [f"calls {name}"]


def trusted_modules(sources: Iterable[str]) -> set[str]:
    """Types of modules that these unchanged texts define; a file that includes others adds none."""
    names: set[str] = set()
    for text in sources:
        if "`include" not in text:
            names.update(_MODULE.findall(text))
    return names


def main(argv: list[str]) -> int:
    """`SIM_VVP [iverilog arguments]`: 1 where the simulation must not run. Notes why."""
    simulation, *arguments = argv
    with open("/rlvr/answer", encoding="utf-8") as file:
        answer = {os.path.realpath(line.strip()) for line in file if line.strip()}
    with open("/rlvr/allowed", encoding="utf-8") as file:
        allowed = file.read().split()
    texts = []
    for path in arguments:
        if not _SOURCE.search(path) or path.startswith("-"):
            continue
        if os.path.realpath(path) not in answer:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    texts.append(file.read())
            except OSError:
                continue
    with open(simulation, encoding="utf-8", errors="replace") as file:
        findings = scan(file, trusted_modules(texts), allowed)
    if findings:
        with open("/rlvr/out/refused", "a", encoding="utf-8") as file:
            file.writelines(f"{finding}\n" for finding in findings)
        print("refused: " + "; ".join(findings), file=sys.stderr)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
