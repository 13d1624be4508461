"""What a sandboxed command may use, and how it ended."""

from __future__ import annotations

from attrs import field, frozen

from rlvr_cvdp.config import CvdpConfig

WALL_FACTOR = 5.0
"""A busy machine gives a process less than all of a core; what never computes still ends."""
MEGABYTE = 1_000_000


@frozen(kw_only=True)
class Limits:
    """What a command may use; `cpu_s`, `memory_mb` and `file_mb` hold for each process."""

    wall_s: float
    cpu_s: float
    memory_mb: int
    processes: int
    file_mb: int
    disk_mb: int
    output_mb: int

    @classmethod
    def of(cls, config: CvdpConfig, *, cpu_s: float | None = None) -> Limits:
        """The limits that the options ask for; `cpu_s` is a problem's own, where it has one."""
        cpu_s = config.timeout_s if cpu_s is None else cpu_s
        return cls(
            wall_s=WALL_FACTOR * cpu_s,
            cpu_s=cpu_s,
            memory_mb=config.memory_mb,
            processes=config.processes,
            file_mb=config.file_mb,
            disk_mb=config.disk_mb,
            output_mb=config.output_mb,
        )


@frozen(kw_only=True)
class Finished:
    """
    How a sandboxed command ended.

    Attributes:
        rc: Exit status; None where it was stopped from outside.
        stopped: "", or what it was stopped for: "time", "output", "disk", "processes".
        output: Beginning and end of what it wrote, at most 0.8 MB.
        summaries: cocotb's own summaries in it, each (tests, passed, failed, skipped).
        cpu_s: Processor time that it and all it started used; 0 where a sandbox of its own ended by
            itself, or held too many processes, and nobody could tell.
    """

    rc: int | None
    stopped: str
    output: str = field(repr=False)
    summaries: tuple[tuple[int, int, int, int], ...]
    seconds: float
    cpu_s: float = 0.0
