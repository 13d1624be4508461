"""A pytest plugin that records the waveform of each launch, whatever the harness asks for.

`waves.record` puts it beside the harness and loads it with `-p rlvr_waves`. Runs inside the
sandbox; standard library only. Of all launches (or those that hold the test in `RLVR_WAVES_TEST`)
the first that passed and the first few that failed are kept in `KEPT`, named by their number; with
`RLVR_WAVES_EACH` all of them, with nothing in them but what the top module itself declares.
"""

from __future__ import annotations

import functools
import inspect
import os
import shutil
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import rlvr_probe

KEPT = Path("/code/rundir/rlvr_waves")
_MOST = {"failed": 3, "passed": 1}
_EACH = 256


def _with_waves(method: Any) -> Any:
    """The method, called with `waves=True`."""
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(self, *args, **kwargs)
        bound.arguments["waves"] = True
        return method(*bound.args, **bound.kwargs)

    return call


def _test(method: Any) -> Any:
    @functools.wraps(method)
    def test(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = rlvr_probe.note("count", None)
        failed = True
        try:
            result = method(self, *args, **kwargs)
            failed = False
            return result
        finally:
            number = rlvr_probe.note("count", None)
            if number > before:
                results = Path(self.env.get("COCOTB_RESULTS_FILE", "results.xml"))
                _keep(Path(self.build_dir), _status(failed, results), number)

    return test


def _keep(folder: Path, status: str, number: int) -> None:
    waves = sorted(folder.glob("*.fst"), key=lambda path: path.stat().st_mtime)
    kept = len(list(KEPT.glob(f"*.{status}.*"))) if KEPT.is_dir() else 0
    most = _EACH if os.environ.get("RLVR_WAVES_EACH") else _MOST.get(status, 0)
    if waves and kept < most:
        KEPT.mkdir(exist_ok=True)
        form = os.environ.get("RLVR_WAVES_FORM", "fst")
        shutil.copyfile(waves[-1], KEPT / f"{number}.{status}.{form}")


def _status(has_ended_badly: bool, results: Path) -> str:
    """How the launch, or the wanted test in it, ended; "" where it holds no such test."""
    wanted = os.environ.get("RLVR_WAVES_TEST", "")
    try:
        cases = list(ElementTree.parse(results).getroot().iter("testcase"))
    except (OSError, ElementTree.ParseError):
        return "failed"
    cases = [case for case in cases if not wanted or case.get("name") == wanted]
    if not cases:
        return "" if wanted else "failed"
    failed = any(part.tag in ("failure", "error") for case in cases for part in case)
    return "failed" if failed or (has_ended_badly and not wanted) else "passed"


def _in_form(method: Any) -> Any:
    """The simulator's command line, for the wanted form of waves."""

    @functools.wraps(method)
    def command(self: Any) -> Any:
        form = os.environ.get("RLVR_WAVES_FORM", "fst")
        return [[f"-{form}" if word == "-fst" else word for word in line] for line in method(self)]

    return command


def _shallow(method: Any) -> Any:
    """What writes the module that dumps, for the top module alone."""

    @functools.wraps(method)
    def create(self: Any) -> None:
        method(self)
        place = Path(self.iverilog_dump_file)
        place.write_text(place.read_text().replace("$dumpvars(0,", "$dumpvars(1,"))

    return create


def pytest_collection_finish() -> None:
    """Patch the runner of the stack's cocotb."""
    if found := rlvr_probe.stack_runner():
        module, runner = found
        runner.build = _with_waves(runner.build)
        runner.test = _test(_with_waves(runner.test))
        icarus = module.Icarus
        icarus._test_command = _in_form(icarus._test_command)
        if os.environ.get("RLVR_WAVES_EACH"):
            icarus._create_iverilog_dump_file = _shallow(icarus._create_iverilog_dump_file)
