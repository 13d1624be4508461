"""What of /proc a sandbox may show: facts that simulators and compilers ask for, and no others."""

from __future__ import annotations

import os

_OWN = ("self", "thread-self", "mounts", "net")
"""Links into the process that asks; its network is the sandbox's own."""
SHOWN = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
"""How many cores, how much memory, what time: asked by C libraries, Verilator and yosys.

Shown read-only: their modes are the kernel's own, and root inside could change them for everybody.
"""


def hidden_entries(proc: str = "/proc") -> list[str]:
    """
    The entries of /proc, beside processes, that are covered: all but a few that are needed.

    Among them: settings (sys), the kernel's command line, keys, logs, memory, hardware, and what
    newer kernels will add.
    """
    names = sorted(name for name in os.listdir(proc) if not name.isdecimal())
    return [f"{proc}/{name}" for name in names if name not in (*_OWN, *SHOWN)]
