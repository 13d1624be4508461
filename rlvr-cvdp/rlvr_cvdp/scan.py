"""Looks for what a compiled simulation could do beyond simulating the design.

The RTL of an answer can hide a system task behind macros, but not from the compiled form: in
`sim.vvp` every call has its name in plain text. Refused are calls of any system task that is not
known to be harmless (files, plusargs, the shell), `force`, and foreign VPI modules. The problem's
own, unchanged files may call what their text calls: the compiled form names the file of each call.

Standard library only: it also runs inside the sandbox, as `scan.py [iverilog arguments]`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping

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
        "sampled",
        "past",
        "rose",
        "fell",
        "stable",
        "changed",
        "typename",
        "exit",
        "ivlh_attribute_event",
        "ivlh_rising_edge",
        "ivlh_falling_edge",
        "ivlh_shift_left",
        "ivlh_shift_right",
    ]
)
_HARMLESS_GROUPS = re.compile(r"\$(ivl_\w+\$\w+|(async|sync)\$(and|nand|or|nor)\$(array|plane))")
_KNOWN_MODULES = {"system", "vhdl_sys", "vhdl_textio", "v2005_math", "va_math", "v2009"}
_CALL = re.compile(r'(?:%vpi_(?:call|func)\S*|\.sfunc\S*)\s+\d+\s+\d+\s+"(\$[^"]+)"(.*)')
_FILE = re.compile(r"(?:%vpi_(?:call|func)\S*|\.sfunc\S*)\s+(\d+)\s")
_DUMP_NAME = re.compile(r'^, "[\w./-]+\.(vcd|fst|lxt2?)"')
_PRINT = re.compile(r"\$f(?:flush|(?:display|write|strobe|monitor)[bho]?)")
_CONSOLE = re.compile(r"^(?: \{|, 32'\w?b(?:0{31}1|10{29}(?:01|10))\b)")
_SOURCE = re.compile(r"\.s?vh?$")
_TASK = re.compile(r"\$[a-zA-Z_][\w$]*")
_WORD = re.compile(r"`(\w+)(?:[ \t]+(\w+))?")
_DIRECTIVES = {
    "timescale", "default_nettype", "resetall", "celldefine", "endcelldefine", "undef", "elsif",
    "else", "unconnected_drive", "nounconnected_drive", "begin_keywords", "end_keywords",
    "__FILE__", "__LINE__",
}  # fmt: skip
_REAL = "/rlvr/real/iverilog"


def scan(
    lines: Iterable[str],
    trusted: Mapping[str, Collection[str]],
    allowed: Collection[str] = (),
) -> list[str]:
    """
    What is wrong with a compiled simulation, in words; empty where nothing is.

    Args:
        lines: The text of `sim.vvp`, which ends with the names of the files.
        trusted: Files that no answer wrote, each with the system tasks that it may call.
        allowed: Further system tasks that the problem itself asks for (`$test$plusargs`).
    """
    found: list[tuple[str, str, int]] = []
    names: list[str] | None = None
    for line in lines:
        text = line.strip()
        if names is not None:
            names.append(text.rstrip(";").strip('"'))
        elif text.startswith(":file_names"):
            names = []
        elif text.startswith(":vpi_module"):
            name = text.rpartition("/")[2].partition(".")[0].strip('";')
            if name not in _KNOWN_MODULES:
                found.append((f"loads the VPI module {name}", "", 0))
        elif text.startswith("%force"):
            found.append(("forces a signal", "", 0))
        else:
            found += _calls(text, allowed)
    files = dict(enumerate(names or []))
    findings = [
        words for words, task, file in found if task not in trusted.get(files.get(file, ""), ())
    ]
    return list(dict.fromkeys(findings))


def _calls(text: str, allowed: Collection[str]) -> list[tuple[str, str, int]]:
    """A call that is not known to be harmless: what is wrong, the task, the number of its file."""
    code = text.partition('"')[0]
    if "%vpi" not in code and ".sfunc" not in code:
        return []
    call, file = _CALL.search(text), _FILE.search(text)
    if call is None or file is None:
        return [(f"calls what cannot be read: {text[:60]}", "", 0)]
    name, arguments = call[1], call[2]
    if name in HARMLESS or name in allowed or _HARMLESS_GROUPS.fullmatch(name):
        return []
    if name == "$dumpfile" and _DUMP_NAME.match(arguments):
        return []  # nobody reads waves
    if _PRINT.fullmatch(name) and _CONSOLE.match(arguments):
        return []  # standard output and error, which are open without $fopen
    return [(f"calls {name}", name, int(file[1]))]


def tasks_of(text: str) -> set[str]:
    """
    System tasks that the text of a file calls; none where another file could put some in.

    That is so where it includes files, and where it uses macros that it does not itself define,
    before and unconditionally.
    """
    own: set[str] = set()
    depth = 0
    for word, name in _WORD.findall(text):
        if word in ("ifdef", "ifndef"):
            depth += 1
        elif word == "endif":
            depth -= 1
        elif word == "define":
            own |= set() if depth else {name}
        elif word not in _DIRECTIVES | own:
            return set()
    return set(_TASK.findall(text))


def _given_files(arguments: list[str]) -> dict[str, set[str]]:
    """Sources among iverilog's arguments that the answer did not write, with their tasks."""
    with open("/rlvr/answer", encoding="utf-8") as file:
        answer = {os.path.realpath(line.strip()) for line in file if line.strip()}
    given = {}
    for path in arguments:
        is_source = _SOURCE.search(path) and not path.startswith("-")
        if is_source and os.path.realpath(path) not in answer:
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    given[path] = tasks_of(file.read())
            except OSError:
                continue
    return given


def _can_lie(arguments: list[str]) -> bool:
    """Whether some text, once macros are gone, claims with `line to stand in another file."""
    with tempfile.NamedTemporaryFile() as text:
        tried = subprocess.run(
            [_REAL, *arguments, "-E", "-o", text.name], capture_output=True, check=False
        )
        return tried.returncode != 0 or b"`line" in text.read()


def simulation_of(arguments: list[str]) -> str:
    """The file that iverilog writes when it is called with these arguments."""
    name = "a.out"
    for place, word in enumerate(arguments):
        if word == "-o":
            name = arguments[place + 1] if place + 1 < len(arguments) else name
        elif word.startswith("-o"):
            name = word[2:]
    return name


def main(arguments: list[str]) -> int:
    """
    `[iverilog arguments]`: 1 where the simulation that was compiled must not run.

    Notes why, and takes the simulation away.
    """
    simulation = simulation_of(arguments)
    if not os.path.isfile(simulation):
        return 0
    with open("/rlvr/allowed", encoding="utf-8") as file:
        allowed = file.read().split()
    with open(simulation, encoding="utf-8", errors="replace", newline="\n") as file:
        findings = scan(file, {}, allowed)
        if findings and not _can_lie(arguments):
            file.seek(0)
            findings = scan(file, _given_files(arguments), allowed)
    if findings:
        os.unlink(simulation)
        with open("/rlvr/out/refused", "a", encoding="utf-8") as file:
            file.writelines(f"{finding}\n" for finding in findings)
        print("refused: " + "; ".join(findings), file=sys.stderr)
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
