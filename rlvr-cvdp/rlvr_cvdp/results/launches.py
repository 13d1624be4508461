"""The launches of a service: how each simulator ended, and its tests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr_cvdp.results.log import Failure, read_failures
from rlvr_cvdp.results.plain import is_plain, read_all
from rlvr_cvdp.results.tests import TestResult, read_tests
from rlvr_cvdp.sandbox.recorder import Record

_UNBUILT = "unbuilt"
"""The name of a launch whose build failed: it has no log."""
_NOT_BUILT = "it was not launched: its build failed"


@frozen(kw_only=True)
class Launch:
    """
    A launch: the simulator's exit status and its tests, at least one (see `read_tests`).

    `is_built` is False where the build failed, so that there was nothing to launch. `summary` is
    how many tests passed and failed by cocotb's own count.
    """

    rc: int
    is_built: bool = True
    tests: tuple[TestResult, ...]
    summary: tuple[int, int] = (0, 0)

    def count(self, status: str) -> int:
        """How many tests have this status."""
        return sum(test.status == status for test in self.tests)

    @property
    def is_right(self) -> bool:
        """Whether the simulator ended well and left results, and all say that no test failed."""
        is_counted = self.summary == (self.count("passed"), 0)
        return self.rc == 0 and is_counted and not self.count("failed") and not self.count("error")


def read_launches(record: Record, out: Path, output: str) -> list[Launch]:
    """
    The launches that the sandbox's programs noted, in the order of their ends.

    Messages of failing tests come from the launch's own log in `out`, where the harness gave it
    one, else from `output`, what the service wrote.
    """
    told = [note for note in record.notes if note.kind in ("launch", "unbuilt")]
    ends = [note.body or {} for note in told]
    launches = [_launch(end, number) for number, end in enumerate(ends, start=1)]
    if not any(launch.count("failed") for launch in launches):
        return launches
    logs = [out / f"{os.path.basename(str(end.get('name', _UNBUILT)))}.log" for end in ends]
    return [
        _launch(end, number, failures) if failures else launch
        for number, (launch, failures, end) in enumerate(
            zip(launches, _failures(logs, output), ends, strict=True), start=1
        )
    ]


def _launch(
    end: Mapping[str, Any], number: int, failures: Mapping[str, Failure] | None = None
) -> Launch:
    """`end` is the note about it; {} if its build failed."""
    rc = int(end.get("rc", 1))
    why_none = f"the simulator ended with {rc} and left no results" if end else _NOT_BUILT
    text = str(end.get("results", ""))
    tests = read_tests(text, number, failures=failures, why_none=why_none)
    return Launch(rc=rc, is_built=bool(end), tests=tests, summary=_summary(end))


def _summary(end: Mapping[str, Any]) -> tuple[int, int]:
    try:
        passed, failed = end.get("summary") or (0, 0)
        return int(passed), int(failed)
    except (TypeError, ValueError):
        return -1, -1  # which agrees with nothing


def _failures(logs: Sequence[Path], output: str) -> list[Mapping[str, Failure]]:
    """The failures in the log of each launch; none if it is not clear whose log it is."""
    shared = read_failures(output)
    if len(shared) != sum(not is_plain(log) for log in logs):
        shared = ()  # it was cut
    rest = iter(shared)
    told: list[Mapping[str, Failure]] = []
    for log, text in zip(logs, read_all(logs), strict=True):
        if is_plain(log):
            own = read_failures(text)
            told.append(own[-1] if own else {})
        else:
            told.append(next(rest, {}))
    return told
