"""What the scored calls of yosys and Verilator read, by the notes of the sandbox."""

from __future__ import annotations

import contextlib
import getopt
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import asdict, frozen

from rlvr_cvdp.sandbox.recorder import Record

SOURCE = (".v", ".sv", ".vh", ".svh")
_WRITES = re.compile(
    r"\s*(?:write_\w+|dump|show|tee|shell|exec|!|log|stat|exit|quit|help|history|script)\b"
)
_OPTIONS = "MXAQTVSgHqtdm:f:h:b:o:p:l:L:v:s:c:W:w:e:r:D:P:E:x:B:"
"""Those of yosys that are one letter; with a colon where a word belongs to it."""
_DEEP = 5
_READS = re.compile(r"\s*(?:read_verilog|read)\b(.*)")


@frozen(kw_only=True)
class Plan:
    """
    How a scored call read the design.

    Attributes:
        tool: "yosys" or "verilator"; "" where no call could be followed: then yosys reads what
            the simulator reads.
        top: Its top module, "" where it names none.
        reads: Files that it read, absolute paths inside.
        script: Its yosys commands without those that only print and write.
        preprocess: Arguments with which Verilator preprocesses the files.
    """

    tool: str = ""
    top: str = ""
    cwd: str = "/code/rundir"
    reads: tuple[str, ...] = ()
    script: tuple[str, ...] = ()
    preprocess: tuple[str, ...] = ()

    def text(self) -> str:
        """What `inside/rlvr_netlist.py` reads."""
        return json.dumps(asdict(self, filter=lambda attribute, _: attribute.name != "tool"))


def noted_calls(record: Record) -> tuple[Plan, ...]:
    """The calls of yosys and Verilator that a service made, as they were noted."""
    plans = []
    for note in record.of_kind("tool"):
        with contextlib.suppress(getopt.GetoptError):  # the tool itself refuses that too
            plans.append(_read_call(note))
    return tuple(plan for plan in plans if plan)


def _read_call(note: Mapping[str, Any]) -> Plan | None:
    argv, cwd = [str(word) for word in note["argv"]], str(note["cwd"])
    if note["tool"] == "yosys":
        return _read_yosys(argv, cwd, note["scripts"])
    sources = [word for word in argv if word.endswith(SOURCE) and not word.startswith("-")]
    if not sources:
        return None
    top = next((b for a, b in itertools.pairwise(argv) if a == "--top-module"), "")
    kept = [word for word in argv if word.startswith(("-D", "-I", "+define+", "+incdir+", "-y"))]
    reads = tuple(_absolute(path, cwd) for path in sources)
    return Plan(tool="verilator", top=top, cwd=cwd, reads=reads, preprocess=(*kept, *sources))


def _read_yosys(argv: Sequence[str], cwd: str, scripts: Mapping[str, str]) -> Plan | None:
    """The commands of a call of yosys in the order in which it carries them out."""
    options, files = getopt.gnu_getopt([*argv], _OPTIONS)
    frontend = next((f" -f {value}" for option, value in options if option == "-f"), "")
    defines = [value for option, value in options if option == "-D"]
    texts = [f"verilog_defines -D{define}" for define in defines]
    for word in files:
        kind = " -sv" * (not frontend and word.endswith(".sv"))
        if "verilog" in frontend:
            kind = frontend.replace(" -f verilog", "")
        texts.append(scripts.get(word, f"read_verilog{kind} {word}" * word.endswith(SOURCE)))
    texts += [scripts.get(value, "") for option, value in options if option in ("-s", "-c")]
    texts += [value.replace(";", "\n") for option, value in options if option == "-p"]
    lines = _commands("\n".join(texts), scripts)
    found = [match[1] for line in lines if (match := _READS.match(line))]
    words = [word for part in found for word in part.split()]
    reads = tuple(_absolute(word, cwd) for word in words if word.endswith(SOURCE))
    if not reads:
        return None
    tops = re.findall(r"-top\s+\\?(\w+)", "\n".join(lines))
    return Plan(
        tool="yosys", top=tops[-1] if tops else "", cwd=cwd, reads=reads, script=tuple(lines)
    )


def _commands(text: str, scripts: Mapping[str, str], depth: int = 0) -> list[str]:
    """The commands of a script that read or change a design, with those of scripts that it runs."""
    lines: list[str] = []
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r";(?=\s|$)", line.partition("#")[0]):
            words = part.split()
            if words[:1] == ["script"] and len(words) > 1 and depth < _DEEP:
                lines += _commands(scripts.get(words[1], ""), scripts, depth + 1)
            elif words and not _WRITES.match(part):
                lines.append(part.strip())
    return lines


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"
