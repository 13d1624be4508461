"""Check the prerequisites of a plugin before anything is started."""

from __future__ import annotations

import os

from rlvr.border.calls import told_by
from rlvr.errors import PartError, PrerequisiteError, RlvrError
from rlvr.plugins.author_error import said
from rlvr.plugins.host import PluginHost
from rlvr.specs import Check, CheckResult


def check_working_directory() -> None:
    """
    Make sure that there is one: libraries in C end the process where it was removed.

    Raises:
        PrerequisiteError: It was removed.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        asked = "the working directory was to be used."
        raise PrerequisiteError(asked, "found: it was removed", "go to another: cd ~") from error


def run_check(check: Check) -> CheckResult:
    """The result of one check; a check that raises, or gives something else, has failed."""
    try:
        return told_by(check, check.target, CheckResult, "a CheckResult")
    except RlvrError as error:
        raised = error.__cause__ if isinstance(error, PartError) else None
        return CheckResult(ok=False, found=f"the check failed: {said(raised or error)}")


def check_prerequisites(host: PluginHost, provider: str) -> None:
    """
    Run the quick, required checks of one plugin.

    Raises:
        PrerequisiteError: Names everything that is missing and the command that installs it.
    """
    missing = []
    for check in host.checks():
        if check.provider == provider and check.required and not check.is_slow:
            result = run_check(check)
            if not result.ok:
                fix = f"; install: {result.fix}" if result.fix else ""
                missing.append(f"{check.name}: {result.found}{fix}")
    if missing:
        raise PrerequisiteError(
            f"plugin {provider} cannot run here.",
            "missing: " + "\n  missing: ".join(missing),
            f"see all checks with: rlvr doctor --plugin {provider}",
        )
