"""Compiles in the place of iverilog, and says how that went.

Takes the compiled simulation away where it could reach beyond the design (scan.py): it never runs
then. Nor does what an earlier compilation left in the place of one that failed. Standard library
only; runs inside the sandbox, as a program or in a fork of the warm worker.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

if __name__ == "__main__":  # an isolated Python does not look beside the program
    sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)), "/rlvr"]

from rlvr_record import Record
from rlvr_seal import seal

REAL = "/rlvr/real/iverilog"
OUT = "/rlvr/out"
REFUSED = 96


def build(arguments: Sequence[str], environment: Mapping[str, str], scan: Any) -> int:
    """
    Compile as `iverilog arguments` would; gives the exit status. `scan` is scan.py.

    The simulation is written under another name, and gets its own when it was looked through.
    """
    place = scan.simulation_of(arguments)
    made = f"{place}.{os.getpid()}.rlvr"
    with contextlib.suppress(OSError):
        os.unlink(place)
    said = f"{OUT}/{os.getpid()}.build"
    with open(said, "wb") as file:
        done = subprocess.run(
            [REAL, "-o", made, *scan.without_output(arguments)],
            stdin=subprocess.DEVNULL,
            stderr=file,
            env=dict(environment),
            check=False,
        )
    with open(said, "rb") as file:
        words = file.read()
    with contextlib.suppress(OSError):
        os.write(2, words)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    how, found = "ok", []
    if code > 128:
        how = f"killed {code}"
    elif code:
        how = "elaboration" if b"error(s) during elaboration" in words else "syntax"
    elif os.path.isfile(made):
        found = _looked_through(scan, made, arguments)
        if found:
            how, code = "refused", REFUSED
            print("refused: " + "; ".join(found), file=sys.stderr, flush=True)
        else:
            os.replace(made, place)
    with contextlib.suppress(OSError):
        os.unlink(made)
    record = Record()
    record.note("build", {"how": how, "refused": found})
    record.close()
    return code


def _looked_through(scan: Any, made: str, arguments: Sequence[str]) -> list[str]:
    try:
        found: list[str] = scan.findings(made, arguments, seal)
        return found
    except Exception as error:  # out of memory, or a text that nobody foresaw
        return [f"cannot be looked through: {type(error).__name__}"]


if __name__ == "__main__":
    import scan as scanner

    sys.exit(build(sys.argv[1:], os.environ, scanner))
