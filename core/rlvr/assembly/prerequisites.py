"""Check the prerequisites of a plugin before anything is started."""

from __future__ import annotations

from rlvr.border.calls import told_by
from rlvr.errors import PartError, PrerequisiteError, RlvrError
from rlvr.plugins.author_error import said
from rlvr.plugins.host import PluginHost
from rlvr.specs import Check, CheckResult


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
