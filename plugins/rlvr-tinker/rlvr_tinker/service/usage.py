"""How many tokens the service was asked for, by what it charges for them.

Each request is a line of an append-only ledger in the run directory, written as the tokens are
spent. Tokens spent before a crash, or after the checkpoint that a run goes on from, stay counted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import structlog
from attrs import define, field

FILE = "tinker-usage.json"
LEDGER = "tinker-usage.jsonl"
COUNTS = ("prefilled", "sampled", "trained", "scored", "states")

log = structlog.get_logger(__name__)


@define(kw_only=True)
class Usage:
    """
    Tokens of one model since the run began, those before a resume or a crash included.

    Attributes:
        model: The service's name of it.
        role: What the run has it for: "policy" (and its reference) or "teacher".
        prefilled: Of prompts that were sampled from (once a completion; a service may charge less
            for what it has in its cache).
        sampled: Of completions.
        trained: Of sequences whose gradient was taken.
        scored: Of sequences that were only read: references, teachers, the mismatch check.
        states: Saved states.
        run_dir: Where the ledger is; None: nothing is kept.
    """

    model: str = ""
    role: str = "policy"
    prefilled: int = 0
    sampled: int = 0
    trained: int = 0
    scored: int = 0
    states: int = 0
    run_dir: Path | None = field(default=None, eq=False)
    _has_failed: bool = field(default=False, init=False, eq=False)

    @property
    def counts(self) -> dict[str, int]:
        """All counts by name."""
        return {name: getattr(self, name) for name in COUNTS}

    def begin(self, run_dir: Path | None) -> None:
        """Count on from what the ledger of the run says of this model in this role."""
        self.run_dir = run_dir
        for one in read_ledger(run_dir) if run_dir is not None else ():
            if (one.model, one.role) == (self.model, self.role):
                self._add(one.counts)

    def spend(self, **counts: int) -> None:
        """Count tokens and write them down; that they cannot be written is logged once."""
        self._add(counts)
        if self.run_dir is None or not any(counts.values()):
            return
        line = json.dumps({"model": self.model, "role": self.role, **counts}) + "\n"
        try:
            with (self.run_dir / LEDGER).open("a+b") as file:
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                    if file.read(1) != b"\n":  # a crash cut the last line short
                        line = "\n" + line
                file.write(line.encode())
        except OSError as error:
            if not self._has_failed:
                log.warning("usage_not_written", reason=str(error))
            self._has_failed = True

    def write(self, run_dir: Path | None) -> None:
        """Keep the sum beside a run; that it cannot is only logged."""
        if run_dir is None:
            return
        try:
            beside = run_dir / f".{FILE}"
            text = json.dumps({"model": self.model, **self.counts}, indent=2)
            beside.write_text(text, encoding="utf-8")
            beside.replace(run_dir / FILE)
        except OSError as error:
            log.warning("usage_not_written", reason=str(error))

    def _add(self, counts: Mapping[str, int]) -> None:
        for name, count in counts.items():
            setattr(self, name, getattr(self, name) + count)


def read_ledger(run_dir: Path) -> list[Usage]:
    """
    The sums of the run's ledger, one for each model and role, in the order of their first line.

    Lines that cannot be read are left out, and their number is logged; [] without a ledger.
    """
    try:
        lines = (run_dir / LEDGER).read_bytes().splitlines()
    except FileNotFoundError:
        return []
    sums: dict[tuple[str, str], Usage] = {}
    damaged = 0
    for line in filter(bytes.strip, lines):
        try:
            model, role, counts = _read_line(line)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            damaged += 1
        else:
            sums.setdefault((model, role), Usage(model=model, role=role))._add(counts)
    if damaged:
        log.warning("usage_lines_damaged", file=str(run_dir / LEDGER), lines=damaged)
    return list(sums.values())


def _read_line(line: bytes) -> tuple[str, str, dict[str, int]]:
    record = json.loads(line)
    model, role = record["model"], record["role"]
    counts = {name: record[name] for name in COUNTS if name in record}
    if not isinstance(model, str) or not isinstance(role, str):
        raise TypeError("model and role are texts")
    if not all(type(count) is int and 0 <= count < 1 << 62 for count in counts.values()):
        raise ValueError("a count is no number of tokens")
    return model, role, counts
