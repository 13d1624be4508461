"""The launches of a service: how each simulator ended, and its tests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import frozen

from rlvr_cvdp.results.log import Failure, read_failures
from rlvr_cvdp.results.notes import read_lines
from rlvr_cvdp.results.plain import is_plain, read_plain
from rlvr_cvdp.results.tests import TestResult, read_tests

_UNBUILT = "unbuilt"
"""What inside/rlvr_keep.py writes for a launch whose build failed."""
_NOT_BUILT = "it was not launched: its build failed"


@frozen(kw_only=True)
class Launch:
    """
    A launch: the simulator's exit status and its tests, at least one (see `read_tests`).

    `is_built` is False where the build failed, so that there was nothing to launch.
    """

    rc: int
    is_built: bool = True
    tests: tuple[TestResult, ...]

    def count(self, status: str) -> int:
        """How many tests have this status."""
        return sum(test.status == status for test in self.tests)

    @property
    def is_right(self) -> bool:
        """Whether the simulator ended well, left results, and none says that a test failed."""
        return self.rc == 0 and not self.count("failed") and not self.count("error")


def read_launches(out: Path, output: str) -> list[Launch]:
    """
    The launches that the sandbox's programs noted in `out`, in order.

    Messages of failing tests come from the launch's own log, where the harness gave it one, else
    from `output`, what the service wrote.
    """
    noted = [line.partition(" ")[::2] for line in read_lines(out / "launches")]
    ends = [(rc, os.path.basename(name)) for rc, name in noted]
    launches = [
        _launch(out / f"{name}.xml", int(rc), number)
        for number, (rc, name) in enumerate(ends, start=1)
    ]
    if not any(launch.count("failed") for launch in launches):
        return launches
    told = _failures([out / f"{name}.log" for _, name in ends], output)
    return [
        _launch(out / f"{name}.xml", launch.rc, number, failures) if failures else launch
        for number, (launch, failures, (_, name)) in enumerate(
            zip(launches, told, ends, strict=True), start=1
        )
    ]


def _launch(
    xml: Path, rc: int, number: int, failures: Mapping[str, Failure] | None = None
) -> Launch:
    is_built = xml.stem != _UNBUILT
    why_none = f"the simulator ended with {rc} and left no results" if is_built else _NOT_BUILT
    tests = read_tests(xml, number, failures=failures, why_none=why_none)
    return Launch(rc=rc, is_built=is_built, tests=tests)


def _failures(logs: Sequence[Path], output: str) -> list[Mapping[str, Failure]]:
    """What the log of each launch says; nothing where it cannot be told whose log it is."""
    shared = read_failures(output)
    if len(shared) != sum(not is_plain(log) for log in logs):
        shared = ()  # it was cut
    rest = iter(shared)
    told: list[Mapping[str, Failure]] = []
    for log in logs:
        if is_plain(log):
            own = read_failures(read_plain(log))
            told.append(own[-1] if own else {})
        else:
            told.append(next(rest, {}))
    return told
