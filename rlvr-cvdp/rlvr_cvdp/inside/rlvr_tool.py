"""Stands where yosys and verilator stood: notes the call, then becomes the real program.

The note says what a score was measured on: folder, arguments and the text of scripts. Of a Tcl
script it is the commands of yosys that it gave, taken down while it ran. Standard library only; it
runs inside the sandbox as `rlvr_tool.py TOOL ARGUMENTS`.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(__file__))
from rlvr_record import Record

OWN, MOST = "/rlvr/bin", 200_000
_SOURCE = (".v", ".sv", ".vh", ".svh")
_NESTED = re.compile(r"^\s*script\s+(\S+)", re.MULTILINE)
_TRACER = """\
proc rlvr_note {command args} {
    set place [open {@PLACE@} a]
    puts $place [string map {\\n { }} [lrange $command 1 end]]
    close $place
}
trace add execution yosys enter rlvr_note
source {@SCRIPT@}
"""


def main(tool: str, arguments: list[str]) -> None:
    """Note the call and replace this process with the real tool."""
    real = f"/rlvr/real/{tool}"
    if not os.path.exists(real):
        folders = [part for part in os.environ.get("PATH", "").split(":") if part != OWN]
        os.environ["PATH"], real = ":".join(folders), tool
    tcl = next((n for n, word in enumerate(arguments) if re.match(r"-[A-Za-z]*c", word)), None)
    if tool == "yosys" and tcl is not None:
        sys.exit(_traced(real, arguments, tcl))
    note(tool, arguments, _texts(arguments))
    try:
        os.execvp(real, [tool, *arguments])
    except OSError as error:
        sys.exit(f"{tool}: {error.strerror}")


def note(tool: str, arguments: list[str], scripts: dict[str, str]) -> None:
    """Tell the supervisor of a call."""
    with contextlib.suppress(OSError):
        record = Record()
        body = {"tool": tool, "cwd": os.getcwd(), "argv": arguments, "scripts": scripts}
        record.note("tool", body)
        record.close()


def _texts(arguments: list[str]) -> dict[str, str]:
    """The scripts that arguments name, and those that they run, by their names."""
    found: dict[str, str] = {}
    # A file may stand in one word with the option that it belongs to.
    waiting = [word[start:] for word in arguments for start in range(5 if word[:1] == "-" else 1)]
    waiting += [name for word in arguments for name in _NESTED.findall(word)]
    while waiting and len(found) < 50:
        word = waiting.pop()
        with contextlib.suppress(OSError, ValueError):
            if word not in found and not word.endswith(_SOURCE) and os.path.isfile(word):
                with open(word, encoding="utf-8", errors="replace") as file:
                    found[word] = file.read(MOST)
                waiting += _NESTED.findall(found[word])
    return found


def _traced(real: str, arguments: list[str], place: int) -> int:
    """Run a Tcl script of yosys, note the commands that it gave; gives the exit status."""
    folder = tempfile.mkdtemp()
    said, tracer = f"{folder}/said", f"{folder}/tracer.tcl"
    flag, _, script = arguments[place].partition("c")
    rest = place + 1 + (not script)
    script = script or "".join(arguments[place + 1 : rest])
    with open(tracer, "w") as file:
        file.write(_TRACER.replace("@PLACE@", said).replace("@SCRIPT@", script))
    words = [*arguments[:place], *([flag] if flag != "-" else []), "-c", tracer, *arguments[rest:]]
    done = subprocess.run([real, *words], check=False)
    text = ""
    with contextlib.suppress(OSError), open(said, encoding="utf-8", errors="replace") as file:
        text = file.read(MOST)
    lines = [line for line in text.splitlines() if not line.startswith("-import")]
    commands = "\n".join(line.translate({123: None, 125: None}) for line in lines)
    note("yosys", words, {**_texts(words), tracer: commands})
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
