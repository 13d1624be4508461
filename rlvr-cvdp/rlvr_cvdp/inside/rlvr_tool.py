"""Stands where yosys and verilator stood: notes the call, then becomes the real program.

The note says what a score was measured on: folder, arguments and the text of scripts. Standard
library only; it runs inside the sandbox as `rlvr_tool.py TOOL ARGUMENTS`.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

OUT, OWN, MOST = "/rlvr/out", "/rlvr/bin", 200_000


def main(tool: str, arguments: list[str]) -> None:
    """Note the call and replace this process with the real tool."""
    scripts = {}
    for word in arguments:
        with contextlib.suppress(OSError, ValueError):
            if word.endswith((".ys", ".tcl", ".f", ".txt", ".vlt")) and os.path.isfile(word):
                with open(word, encoding="utf-8", errors="replace") as file:
                    scripts[word] = file.read(MOST)
    note = {"tool": tool, "cwd": os.getcwd(), "argv": arguments, "scripts": scripts}
    with contextlib.suppress(OSError), open(f"{OUT}/tool.{os.getpid()}", "w") as file:
        json.dump(note, file)
    folders = [part for part in os.environ.get("PATH", "").split(":") if part != OWN]
    os.environ["PATH"] = ":".join(folders)
    try:
        os.execvp(tool, [tool, *arguments])
    except OSError as error:
        sys.exit(f"{tool}: {error.strerror}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
