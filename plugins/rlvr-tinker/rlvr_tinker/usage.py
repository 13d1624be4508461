"""How many tokens the service was asked for, by what it charges for them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog
from attrs import asdict, define

FILE = "tinker-usage.json"

log = structlog.get_logger(__name__)


@define(kw_only=True)
class Usage:
    """
    Tokens since the run began, those before a resume included.

    Attributes:
        prefilled: Of prompts that were sampled from (once a completion; a service may charge less
            for what it has in its cache).
        sampled: Of completions.
        trained: Of sequences whose gradient was taken.
        scored: Of sequences that were only read: references, teachers, the canary.
        states: Saved states.
    """

    model: str = ""
    prefilled: int = 0
    sampled: int = 0
    trained: int = 0
    scored: int = 0
    states: int = 0

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return asdict(self)

    def restore(self, record: Mapping[str, Any]) -> None:
        """Count on from what `to_json` gave."""
        for name in ("prefilled", "sampled", "trained", "scored", "states"):
            setattr(self, name, int(record.get(name, 0)))

    def write(self, run_dir: Path | None) -> None:
        """Keep the counts beside a run; that it cannot is only logged."""
        if run_dir is None:
            return
        try:
            beside = run_dir / f".{FILE}"
            beside.write_text(json.dumps(self.to_json(), indent=2), encoding="utf-8")
            beside.replace(run_dir / FILE)
        except OSError as error:
            log.warning("usage_not_written", reason=str(error))
