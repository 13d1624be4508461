"""What the scored calls of yosys and Verilator read, by the notes of the sandbox."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from rlvr_cvdp.sandbox import Slot

SOURCE = (".v", ".sv", ".vh", ".svh")
_WRITES = re.compile(
    r"\s*(?:write_\w+|dump|show|tee|shell|exec|!|log|stat|exit|quit|help|history|script)\b"
)
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
        return json.dumps(
            {
                "top": self.top,
                "cwd": self.cwd,
                "reads": list(self.reads),
                "script": list(self.script),
                "preprocess": list(self.preprocess),
            }
        )


def noted_calls(slot: Slot) -> list[Plan]:
    """The calls of yosys and Verilator that the last service in a slot made."""
    plans = []
    for place in sorted((slot.folder / "out").glob("tool.*")):
        try:
            note = json.loads(place.read_text(encoding="utf-8", errors="replace"))
            plan = _read_call(note)
        except (ValueError, KeyError, TypeError, OSError):
            continue
        plans += [plan] if plan else []
    return plans


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
    texts, commands, files, place = [], [], [], 0
    while place < len(argv):
        word = argv[place]
        value = argv[place + 1] if place + 1 < len(argv) else ""
        if word == "-s":
            texts.append(scripts.get(value, ""))
            place += 1
        elif word == "-p":
            commands.append(value.replace(";", "\n"))
            place += 1
        elif word in ("-l", "-L", "-o", "-b", "-f", "-E", "-e", "-w", "-W", "-D", "-m", "-r"):
            place += 1
        elif not word.startswith("-"):
            if word in scripts:
                texts.append(scripts[word])
            elif word.endswith(SOURCE):
                files.append(f"read_verilog {'-sv ' * word.endswith('.sv')}{word}")
        place += 1
    lines = [
        part.strip()
        for line in "\n".join([*files, *texts, *commands]).splitlines()
        for part in re.split(r";(?=\s|$)", line.partition("#")[0])
        if part.strip() and not _WRITES.match(part)
    ]
    found = [match[1] for line in lines if (match := _READS.match(line))]
    words = [word for part in found for word in part.split()]
    reads = tuple(_absolute(word, cwd) for word in words if word.endswith(SOURCE))
    if not reads:
        return None
    tops = re.findall(r"-top\s+\\?(\w+)", "\n".join(lines))
    return Plan(
        tool="yosys", top=tops[-1] if tops else "", cwd=cwd, reads=reads, script=tuple(lines)
    )


def _absolute(path: str, cwd: str) -> str:
    return path if path.startswith("/") else f"{cwd}/{path}"
