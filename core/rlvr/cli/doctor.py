"""`rlvr doctor`: what the plugins need from this machine, and the command that installs it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial

from attrs import frozen

from rlvr.assembly.prerequisites import check_working_directory, run_check
from rlvr.cli.options import add_json_flag
from rlvr.cli.output import print_json, table
from rlvr.cli.parser import examples
from rlvr.errors import ExitCode
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.status import PluginStatus
from rlvr.specs import CheckResult

MINIMAL_PYTHON = (3, 11)


@frozen
class Finding:
    """One line of the report. `status` is ok, missing, optional (missing) or skipped."""

    plugin: str
    check: str
    status: str
    found: str
    fix: str = ""
    seconds: float = 0.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    parser.epilog = examples(
        "rlvr doctor",
        "rlvr doctor --plugin cvdp",
        "rlvr doctor --fast --json",
    )
    parser.add_argument("--plugin", metavar="NAME", help="only this plugin's checks")
    parser.add_argument("--fast", action="store_true", help="skip checks that take long")
    add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """
    Run the checks one after another and print what each found.

    Raises:
        PluginError: `--plugin` names one that is not active.
        PrerequisiteError: The working directory was removed.
    """
    check_working_directory()
    setup(verbosity=args.verbosity)
    host = PluginHost.load()
    if args.plugin is not None:
        Registry(host).active(args.plugin)
    findings = list(_findings(host, args.plugin, args.fast))
    is_ready = all(finding.status != "missing" for finding in findings)
    if args.json:
        print_json({"ok": is_ready, "checks": findings})
    else:
        cells = [(f.plugin, f.check, f.status, f.found) for f in findings]
        print(table(("PLUGIN", "CHECK", "STATUS", "FOUND"), cells))
        for finding in findings:
            if finding.fix and finding.status in ("missing", "optional"):
                print(f"to fix {finding.plugin} {finding.check}: {finding.fix}")
        print("everything required is there" if is_ready else "something required is missing")
    return ExitCode.DONE if is_ready else ExitCode.PREREQUISITE


def _findings(host: PluginHost, plugin: str | None, is_fast: bool) -> Iterator[Finding]:
    yield _run("core", "python", _check_python, is_required=True)
    yield _run("core", "cache", _check_cache, is_required=True)
    for status in host.plugins:
        if plugin is None and status.status in ("broken", "incompatible", "conflict"):
            yield _unusable(status)
    for check in host.checks():
        if plugin not in (None, check.provider):
            continue
        if check.is_slow and is_fast:
            yield Finding(check.provider, check.name, "skipped", "slow (--fast)")
            continue
        yield _run(
            check.provider, check.name, partial(run_check, check), is_required=check.required
        )


def _run(
    plugin: str, name: str, function: Callable[[], CheckResult], *, is_required: bool
) -> Finding:
    started = time.perf_counter()
    result = function()
    missing = "missing" if is_required else "optional"
    status = "ok" if result.ok else missing
    seconds = round(time.perf_counter() - started, 3)
    return Finding(plugin, name, status, result.found, result.fix, seconds)


def _unusable(status: PluginStatus) -> Finding:
    reason, _, fix = status.reason.rpartition(" - ")
    found = f"{status.status}: {reason or fix}"
    return Finding(status.name, "plugin", "missing", found, fix if reason else "")


def _check_python() -> CheckResult:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, MINIMAL_PYTHON))
    is_new = sys.version_info[:2] >= MINIMAL_PYTHON
    return CheckResult(ok=is_new, found=version, fix="" if is_new else f"install Python {wanted}")


def _check_cache() -> CheckResult:
    from rlvr.verification.key_value_cache import cache_dir

    folder = cache_dir()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        found = f"{folder} cannot be written: {error.strerror}"
        return CheckResult(
            ok=False, found=found, fix="set RLVR_CACHE_DIR to a folder you may write"
        )
    return CheckResult(ok=True, found=str(folder))
