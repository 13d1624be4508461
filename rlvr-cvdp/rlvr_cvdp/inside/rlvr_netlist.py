"""Gives iverilog the netlist of a design in place of its sources.

`iverilog.sh` calls it for each build of a harness where /src/.rlvr_netlist.json is (see
`counted.py`): yosys reads the sources as the scored call read them, with the parameters of this
build, and what it writes is compiled: `iverilog.sh` is called again with that. Standard library
only; it runs inside the sandbox.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import subprocess
import sys
from typing import Any

sys.path.insert(0, os.path.dirname(__file__))
from rlvr_build import REAL, without_output
from rlvr_record import Record
from rlvr_shell import NAME, PLAIN, is_free, shell

PLAN, OUT = "/src/.rlvr_netlist.json", "/rlvr/out"
_WITH_VALUE = ("-o", "-s", "-f", "-c", "-D", "-I", "-P", "-y", "-Y", "-l", "-m", "-M", "-N", "-B")


class NoNetlist(Exception):
    """There is no netlist; the text says why."""


class Build:
    """What a call of iverilog builds."""

    def __init__(self, words: list[str]) -> None:
        self.tops: list[str] = []
        self.defines: list[str] = []
        self.includes: list[str] = []
        self.parameters: dict[str, str] = {}
        self.sources: list[str] = []
        self.kept: list[str] = []
        self.timescale = ""
        self.output = "a.out"
        self._read(words)

    def _read(self, words: list[str]) -> None:
        place = 0
        while place < len(words):
            word, flag, value = words[place], words[place][:2], words[place][2:]
            place += 1
            if not word.startswith("-"):
                self.sources.append(word)
                continue
            if flag in _WITH_VALUE and not value and place < len(words):
                value = words[place]
                place += 1
            if flag == "-s":
                self.tops.append(value)
            elif flag == "-D":
                self.defines.append(value)
            elif flag == "-I":
                self.includes.append(value)
            elif flag == "-P":
                path, _, text = value.partition("=")
                self.parameters[path] = text
            elif flag in ("-f", "-c"):
                self._read_file(value)
            elif flag == "-o":
                self.output = value
            elif flag != "-g":
                self.kept += [flag, value] if flag in _WITH_VALUE else [word]

    def _read_file(self, path: str) -> None:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                word = line.partition("//")[0].strip()
                if word.startswith("+incdir+"):
                    self.includes += [part for part in word.split("+")[2:] if part]
                elif word.startswith("+define+"):
                    self.defines += [part for part in word.split("+")[2:] if part]
                elif word.startswith("-"):
                    self._read(word.split())
                elif word.startswith("+timescale+"):
                    self.timescale = word
                elif word and not word.startswith(("+", "#")):
                    self.sources.append(word)

    @property
    def top(self) -> str:
        tops = [name for name in self.tops if name != "cocotb_iverilog_dump"]
        if len(tops) != 1 or not PLAIN.match(tops[0]):
            raise NoNetlist(f"the harness simulates {len(tops)} top modules")
        return tops[0]


def main(words: list[str]) -> list[str]:
    """The arguments that compile the netlist in place of the sources."""
    with open(PLAN, encoding="utf-8") as file:
        plan = json.load(file)
    build = Build(words)
    top = build.top
    folder = f"{OUT}/netlist.{os.getpid()}"
    os.mkdir(folder)
    seen = _simulated(words, top, folder)
    is_top = plan["top"] in ("", top)
    _synthesize(_script(plan, build, top, folder, is_top=is_top), folder, plan["cwd"])
    paths = [path for name in plan["reads"] for path in (glob.glob(name) or [name])]
    paths = paths or [path for path in build.sources if not _is_dump(path)]
    read = {os.path.realpath(path) for path in paths}
    sources = [path for path in build.sources if os.path.realpath(path) not in read]
    parameters: list[str] = []
    with open(f"{folder}/cmds.f", "w", encoding="utf-8") as file:
        file.write(f"{build.timescale}\n")
    if is_top:
        with open(f"{folder}/netlist.json", encoding="utf-8") as file:
            modules = json.load(file)["modules"]
        if NAME not in modules:
            raise NoNetlist(f"yosys left no module {top}")
        with open(f"{folder}/shell.sv", "w", encoding="utf-8") as file:
            file.write(shell(top, modules[NAME], seen))
        sources.insert(0, f"{folder}/shell.sv")
    else:
        parameters = [f"-P{path}={text}" for path, text in build.parameters.items()]
    return [
        *("-o", build.output, "-g2012", "-f", f"{folder}/cmds.f", *build.kept, *parameters),
        *(word for name in build.tops for word in ("-s", name)),
        *(f"-D{define}" for define in build.defines),
        *(f"-I{include}" for include in build.includes),
        *(f"{folder}/netlist.v", *sources),
    ]


def write_side(name: str, words: list[str]) -> None:
    """
    Write one of two designs to be compared as /rlvr/out/NAME.il.

    `gold` is what the sources say (x stays x); any other is what the scored call made of them.
    """
    with open(PLAN, encoding="utf-8") as file:
        plan = json.load(file)
    build = Build(words)
    top = plan["top"] or (build.tops or [""])[0]
    folder = f"{OUT}/side.{os.getpid()}"
    os.mkdir(folder)
    find = f"hierarchy -check -top {top}" if top else "hierarchy -check -auto-top"
    reads = [line for line in plan["script"] if line.startswith("read")]
    # A netlist holds no white box: what no score counts is no part of the design that it is.
    box = [] if name == "gold" else ["delete =A:whitebox"]
    if name == "gold" or not plan["script"]:
        start = reads or _reading(plan, build, folder)
        lines = [*start, *box, find, "proc", "flatten", "opt_expr"]
    else:
        lines = [*plan["script"], *box, find, "proc", "flatten"]
    lines += ["opt_clean", "memory", "opt_clean", f"rename -top {name}"]
    lines.append(f"write_rtlil {OUT}/{name}.il")
    _run_yosys("\n".join(lines) + "\n", folder, f"{OUT}/{name}.il", plan["cwd"])


def _is_dump(path: str) -> bool:
    return os.path.basename(path) == "cocotb_iverilog_dump.v"


def _simulated(words: list[str], top: str, folder: str) -> dict[str, Any]:
    """What the simulator makes of the sources themselves: time unit and parameters of the top."""
    simulation = f"{folder}/rtl.vvp"
    command = [REAL, *without_output(words), "-o", simulation]
    if subprocess.run(command, capture_output=True).returncode:
        raise NoNetlist("the sources do not compile")
    parameters: list[tuple[str, str]] = []
    unit, precision, is_inside = 0, 0, False
    with open(simulation, encoding="utf-8", errors="replace") as file:
        for line in file:
            if ".scope " in line[:40]:
                is_inside = f'.scope module, "{top}" "{top}"' in line
            elif is_inside and line.startswith(" .timescale"):
                unit, precision = (int(word) for word in line.rstrip(";\n").split()[1:3])
            elif is_inside and ".param/" in line[:40]:
                found = re.search(r'\.param/(\w+) "([^"]+)" \d+ \d+ \d+, (.*);', line)
                if found and is_free(found[2]):
                    value = _literal(found[1], found[3])
                    parameters += [(found[2], value)] if value else []
    os.unlink(simulation)
    return {"unit": unit, "precision": precision, "parameters": parameters}


def _literal(kind: str, text: str) -> str:
    """A parameter of the compiled form as a Verilog literal, "" where it cannot be one."""
    if kind == "str":
        return text
    found = re.fullmatch(r"(\+?)C4<([01xz]+)>", text)
    if kind != "l" or not found:
        return ""
    return f"{len(found[2])}'{'s' * bool(found[1])}b{found[2]}"


def _script(plan: dict[str, Any], build: Build, top: str, folder: str, *, is_top: bool) -> str:
    sets = []
    for path, text in build.parameters.items():
        owner, _, name = path.rpartition(".")
        if owner != top or not PLAIN.match(name) or not re.fullmatch(r'[\w\'".+-]+', text):
            raise NoNetlist(f"the harness sets the parameter {path}")
        sets += [f"chparam -set {name} {text} {top}"] if is_top else []
    if plan["script"]:
        last = max(
            (i for i, line in enumerate(plan["script"]) if line.startswith("read")), default=0
        )
        lines = [*plan["script"][: last + 1], *sets, *plan["script"][last + 1 :]]
    else:
        lines = [*_reading(plan, build, folder), *sets]
    if lines[-1].startswith(("read", "chparam")):  # it only reads
        lines += [f"hierarchy -check -top {top}", "proc", "opt", "memory -nomap", "opt_clean"]
    lines += ["setundef -init -zero", *([f"rename -top {NAME}"] if is_top else [])]
    lines += [f"write_verilog -noattr {folder}/netlist.v", f"write_json {folder}/netlist.json"]
    return "\n".join(lines) + "\n"


def _reading(plan: dict[str, Any], build: Build, folder: str) -> list[str]:
    """Commands that read the sources: the linter's view of them where a linter was scored."""
    if plan["preprocess"]:
        ran = subprocess.run(
            ["verilator", "-E", "-P", *plan["preprocess"]],
            cwd=plan["cwd"], capture_output=True, text=True, errors="replace", env=_environment(),
        )  # fmt: skip
        if ran.returncode:
            raise NoNetlist("verilator cannot preprocess the sources")
        with open(f"{folder}/lint.sv", "w", encoding="utf-8") as file:
            file.write(ran.stdout)
        return [f"read_verilog -sv {folder}/lint.sv"]
    words = [f"-D{define}" for define in build.defines] + [f"-I{path}" for path in build.includes]
    paths = [os.path.abspath(path) for path in build.sources if not _is_dump(path)]
    if not all(re.fullmatch(r"[\w/.+=-]+", word) for word in (*words, *paths)):
        raise NoNetlist("the harness names its sources in a way that yosys cannot read")
    return [f"read_verilog -sv {' '.join([*words, *paths])}"]


def _environment() -> dict[str, str]:
    path = [part for part in os.environ.get("PATH", "").split(":") if part != "/rlvr/bin"]
    return {"PATH": ":".join(path), "HOME": "/tmp"}


def _synthesize(script: str, folder: str, cwd: str) -> None:
    _run_yosys(script, folder, f"{folder}/netlist.v", cwd)
    with open(f"{folder}/netlist.v", "rb") as file:
        _note(f"ok {hashlib.sha256(file.read()).hexdigest()}")


def _note(words: str) -> None:
    """Tell the supervisor of a netlist that was made, or why there is none."""
    record = Record()
    record.note("netlist", words)
    record.close()


def _run_yosys(script: str, folder: str, made: str, cwd: str) -> None:
    with open(f"{folder}/script.ys", "w", encoding="utf-8") as file:
        file.write(script)
    ran = subprocess.run(
        ["/rlvr/real/yosys", "-Q", "-T", "-s", f"{folder}/script.ys"], env=_environment(), cwd=cwd,
        capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if ran.returncode or not os.path.isfile(made):
        lines = (ran.stdout + ran.stderr).splitlines()
        said = next((line for line in lines if "ERROR" in line), "yosys failed")
        raise NoNetlist(f"yosys wrote no netlist: {said[:200]}")


def _compile(again: str, words: list[str]) -> None:
    """Call the wrapper `again` with the netlist; leave no older simulation where there is none."""
    try:
        arguments = main(words)
    except BaseException:
        output = Build(words).output
        if os.path.isfile(output):
            os.unlink(output)
        raise
    os.execve("/bin/sh", ["sh", again, *arguments], {**os.environ, "RLVR_IS_NETLIST": "1"})


if __name__ == "__main__":
    try:
        if sys.argv[1:2] == ["--side"]:
            write_side(sys.argv[2], sys.argv[3:])
        else:
            _compile(sys.argv[1], sys.argv[2:])
    except (NoNetlist, OSError, ValueError, KeyError) as error:
        _note(f"none {str(error)[:300]}".replace("\n", " "))
        sys.exit(f"no netlist: {error}")
