"""What a sandboxed command may use, and how it ended."""

from __future__ import annotations

import resource

from attrs import field, frozen

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.sandbox.recorder import Record

WALL_FACTOR = 5.0
"""A service that mostly waits may take so many times its processor time."""
CPU_SLACK_S = 2
"""The system ends a single process only after this much more: the service is stopped before."""
MEGABYTE = 1_000_000
DESCRIPTORS = min(1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1] % (1 << 63))
"""Files that a process may have open: pipes and sockets hold memory that is no process's."""


@frozen(kw_only=True)
class Limits:
    """
    What a command may use.

    `memory_mb` and `file_mb` hold for each of its processes, twice the former for all together.

    Attributes:
        cpu_s: Processor time of all its processes together.
        wall_s: Time that goes by while it mostly waits. While one of its processes is about to
            compute, only a tenth of the time counts: a busy machine stops no command.
        idle_s: Time that goes by while none of its processes computes; 0: no limit.
    """

    wall_s: float
    cpu_s: float
    idle_s: float
    memory_mb: int
    processes: int
    file_mb: int
    disk_mb: int
    output_mb: int

    @classmethod
    def of(cls, config: CvdpConfig, *, cpu_s: float | None = None) -> Limits:
        """The limits that the options ask for; `cpu_s` is a problem's own, where it has one."""
        cpu_s = config.timeout_s if cpu_s is None else cpu_s
        names = ("idle_s", "memory_mb", "processes", "file_mb", "disk_mb", "output_mb")
        others = {name: getattr(config, name) for name in names}
        return cls(wall_s=WALL_FACTOR * cpu_s, cpu_s=cpu_s, **others)


@frozen(kw_only=True)
class Finished:
    """
    How a sandboxed command ended.

    Attributes:
        rc: Exit status; None where it was stopped from outside.
        stopped: "", or what it was stopped for: "time" (it computed too long), "idle" (it waited),
            "wall" (it mostly waited), "output", "disk", "processes", "memory".
        output: Beginning and end of what it wrote, at most 0.8 MB.
        summaries: cocotb's own summaries in it, each (tests, passed, failed, skipped).
        cpu_s: Processor time that it and all it started used; 0 where a sandbox of its own ended by
            itself, or held too many processes, and nobody could tell.
        record: What the sandbox's own programs said meanwhile.
    """

    rc: int | None
    stopped: str
    output: str = field(repr=False)
    summaries: tuple[tuple[int, int, int, int], ...]
    seconds: float
    cpu_s: float = 0.0
    record: Record = field(factory=Record, repr=False)


STOPPED = {
    "time": "took more time than allowed",
    "idle": "waited for something",
    "wall": "took more time than allowed",
    "output": "wrote more output than allowed",
    "disk": "wrote more to the disk than allowed",
    "processes": "ran more processes at the same time than allowed",
    "memory": "held more memory than allowed",
}
"""What a stopped command did, by `Finished.stopped`."""


def waited(finished: Finished, limits: Limits) -> str:
    """A sentence: why a command was stopped for "idle" or "wall"."""
    if finished.stopped == "idle":
        return f"nothing was computed for {limits.idle_s:g} s: something waits"
    return (
        f"{finished.seconds:.0f} s went by, of which it computed {finished.cpu_s:.0f} s: something "
        "waits, or the machine is too busy"
    )
