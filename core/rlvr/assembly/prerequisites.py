"""Check the prerequisites of a plugin before anything is started."""

from __future__ import annotations

from rlvr.errors import PrerequisiteError
from rlvr.plugins.host import PluginHost
from rlvr.plugins.resolve import load_object
from rlvr.specs import Check, CheckResult


def run_check(check: Check) -> CheckResult:
    """The result of one check; a check that raises has failed, with the error as what was found."""
    try:
        result: CheckResult = load_object(check.target, check.provider)()
    except Exception as error:  # the plugin border: a broken check is a failed check
        return CheckResult(ok=False, found=f"the check itself failed: {error!r}")
    return result


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
