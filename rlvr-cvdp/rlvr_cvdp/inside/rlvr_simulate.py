"""Simulates in the place of vvp, and says what the simulation reported.

For sandboxes and launches that no warm worker serves. Standard library only; runs inside the
sandbox.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Mapping, Sequence

if __name__ == "__main__":  # an isolated Python does not look beside the program
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from rlvr_launch import note_launch
from rlvr_record import REPORT_FD, pair

REAL = "/rlvr/real/vvp"
OWN = "/rlvr/python"


def simulate(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Simulate as `vvp arguments` would; gives the exit status."""
    hearing, theirs = pair()
    os.dup2(theirs, REPORT_FD)
    os.close(theirs)
    path = environment.get("PYTHONPATH", "")
    if OWN not in path.split(":"):
        path = f"{OWN}:{path}" if path else OWN
    process = subprocess.Popen(
        [REAL, *arguments],
        stdin=subprocess.DEVNULL,
        pass_fds=(REPORT_FD,),
        env={**environment, "PYTHONPATH": path},
    )
    os.close(REPORT_FD)
    while hearing.is_open and process.poll() is None:
        ready, _, _ = select.select([hearing.sock], [], [], 0.2)
        if ready:
            hearing.hear()
    code = process.wait()
    code = 128 - code if code < 0 else code
    note_launch(code, str(os.getpid()), 1, hearing)
    return code


if __name__ == "__main__":
    sys.exit(simulate(sys.argv[1:], os.environ))
