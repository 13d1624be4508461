"""Time limits of single problems, from the times of their right answers."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import ConfigError
from rlvr_cvdp.toolchain.cocotb_stacks import cache_dir

FACTOR = 5.0
"""A right answer may take so many times what the reference took."""
NEAR = 2.0
"""An answer that was stopped before this many times its reference's time is judged once more."""
LEAST_S = 10.0
"""No limit is shorter: a busy machine, a slow start."""
VERSION = 2


@frozen
class Timed:
    """
    The time that a right answer took.

    `cpu_s` is the processor time of all services; `probe_s` is the time of a fixed piece of work
    on the same machine then (`machine_speed.probe_s`), 0 if it was not measured.
    """

    cpu_s: float
    probe_s: float = 0.0

    def slowness(self, probe_s: float) -> float:
        """How many times slower the machine is now than it was then; 1 where it is faster."""
        return max(1.0, probe_s / self.probe_s) if self.probe_s else 1.0

    def limit_s(self, slowness: float = 1.0) -> float:
        """Processor time of a service: five times the reference's, at least ten seconds."""
        return round(max(LEAST_S, FACTOR * self.cpu_s) * slowness, 1)

    def is_near(self, cpu_s: float, slowness: float) -> bool:
        """Whether an answer that was stopped had less than twice the reference's time."""
        return cpu_s <= NEAR * self.cpu_s * slowness


def default_path() -> Path:
    """The file in which `rlvr cvdp calibrate` keeps the times of this machine."""
    return cache_dir() / "calibration.json"


def load_calibration(where: str) -> dict[str, Timed]:
    """
    Times of right answers by problem digest: `where` is "off", "auto" (this machine's) or a file.

    A problem that was never timed is not in it and has no limit of its own.

    Raises:
        ConfigError: The file is not there, or is none of ours.
    """
    if where == "off":
        return {}
    path = default_path() if where == "auto" else Path(where)
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
        if record["version"] not in (1, VERSION):  # the first one has no times of probes
            raise ValueError(f"version {record['version']}")
        probes = record.get("probe_s", {})
        return {
            str(k): Timed(float(v), float(probes.get(k, 0.0))) for k, v in record["seconds"].items()
        }
    except FileNotFoundError:
        if where == "auto":
            return {}
        raise _unreadable(path, "no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, str(error)) from None


def save_calibration(path: Path, timed: Mapping[str, Timed]) -> None:
    """Add measurements to a file; of a problem that was timed before, the longer time stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        merged = load_calibration(str(path)) if path.exists() else {}
        for digest, new in timed.items():
            known = merged.get(digest)
            if known is None or new.cpu_s >= known.cpu_s:
                merged[digest] = new
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        record = {
            "version": VERSION,
            "seconds": {k: round(merged[k].cpu_s, 3) for k in sorted(merged)},
            "probe_s": {k: round(merged[k].probe_s, 6) for k in sorted(merged)},
        }
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


def _unreadable(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"time limits were to be taken from {path}.",
        f"found: {found}",
        "make it with: rlvr cvdp calibrate --dataset FILE, or set cvdp.limits=off",
    )
