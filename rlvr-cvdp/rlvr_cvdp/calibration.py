"""Time limits of single problems, from what their right answers took."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import ConfigError, explain
from rlvr_cvdp.stacks import cache_dir

FACTOR = 5.0
"""A right answer may take so many times what the reference took."""
LEAST_S = 10.0
"""No limit is shorter: a busy machine, a slow start."""
VERSION = 1


class Calibration:
    """
    Processor time that right answers took, by problem digest, and the limits that follow.

    A problem that was never timed has no limit of its own.
    """

    def __init__(self, seconds: Mapping[str, float]) -> None:
        self.seconds = dict(seconds)

    def limit_s(self, digest: str) -> float | None:
        """CPU seconds that a process may take: five times the reference's, at least ten."""
        taken = self.seconds.get(digest)
        return None if taken is None else round(max(LEAST_S, FACTOR * taken), 1)

    def expected_s(self, digest: str) -> float:
        """What a verification is likely to take; 0 where nobody knows."""
        return self.seconds.get(digest, 0.0)


def default_path() -> Path:
    """Where `rlvr cvdp calibrate` keeps what it measured on this machine."""
    return cache_dir() / "calibration.json"


def load_calibration(where: str) -> Calibration:
    """
    What `cvdp.limits` names: "off", "auto" (this machine's, where there is one) or a file.

    Raises:
        ConfigError: The file is not there, or is none of ours.
    """
    if where == "off":
        return Calibration({})
    path = default_path() if where == "auto" else Path(where)
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
        seconds = {str(k): float(v) for k, v in record["seconds"].items()}
        if record["version"] != VERSION:
            raise ValueError(f"version {record['version']}")
    except FileNotFoundError:
        if where == "auto":
            return Calibration({})
        raise _unreadable(path, "no such file") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(path, str(error)) from None
    return Calibration(seconds)


def save_calibration(path: Path, seconds: Mapping[str, float]) -> None:
    """Add measurements to a file; of a problem that was timed before, the longer time stays."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        known = load_calibration(str(path)).seconds if path.exists() else {}
        merged = {**known, **{k: max(v, known.get(k, 0.0)) for k, v in seconds.items()}}
        partial = path.with_name(f"{path.name}.{os.getpid()}")
        record = {"version": VERSION, "seconds": {k: round(merged[k], 3) for k in sorted(merged)}}
        partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from None


def _unreadable(path: Path, found: str) -> ConfigError:
    return ConfigError(
        explain(
            f"time limits were to be taken from {path}.",
            f"found: {found}",
            "make it with: rlvr cvdp calibrate --dataset FILE, or set cvdp.limits=off",
        )
    )
