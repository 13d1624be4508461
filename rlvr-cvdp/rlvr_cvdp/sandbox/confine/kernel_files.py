"""The kernel's own files in a sandbox: what of /proc it shows, and device files of its own."""

from __future__ import annotations

import os
import stat
from pathlib import Path

_NUMBERS = {
    "null": (1, 3),
    "zero": (1, 5),
    "full": (1, 7),
    "random": (1, 8),
    "urandom": (1, 9),
    "tty": (5, 0),
}
_OWN = ("self", "thread-self", "mounts", "net")
"""Of /proc, links into the process that asks; its network is the sandbox's own."""
SHOWN = ("cpuinfo", "filesystems", "loadavg", "meminfo", "stat", "uptime", "version")
"""How many cores, how much memory, what time: asked by C libraries, Verilator and yosys.

Shown read-only: their modes are the kernel's own, and root inside could change them for everybody.
"""


def hidden_entries() -> list[str]:
    """
    The entries of /proc, beside processes, that are covered: all but a few that are needed.

    Among them: settings (sys), the kernel's command line, keys, logs, memory, hardware, and what
    newer kernels will add.
    """
    names = sorted(name for name in os.listdir("/proc") if not name.isdecimal())
    return [f"/proc/{name}" for name in names if name not in (*_OWN, *SHOWN)]


def device_mounts(folder: Path) -> list[str]:
    """
    Bubblewrap's words that put a slot's own device files over those that it shows by itself.

    Those are the machine's: inside a sandbox that root started, root owns them and could take
    their modes away for everybody. Nobody else owns them, and nobody else can make nodes: [] then,
    and also on a file system without devices.
    """
    place = folder / "dev"
    if os.geteuid() or os.statvfs(folder).f_flag & os.ST_NODEV:
        return []
    words: list[str] = []
    place.mkdir(exist_ok=True)
    for name, (major, minor) in _NUMBERS.items():
        node = place / name
        try:
            if not node.exists():
                os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(major, minor))
            node.chmod(0o666)
        except OSError:  # a container whose root may not make nodes
            return []
        words += ["--dev-bind", str(node), f"/dev/{name}"]
    return words
