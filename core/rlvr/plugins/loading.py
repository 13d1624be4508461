"""Loads one plugin module and says, in one line, why that failed.

This is a plugin border: whatever a stranger's module raises becomes a status, so that one broken
plugin breaks nothing but itself.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from typing import Any

from attrs import evolve

import rlvr
from rlvr.install import pip_install
from rlvr.plugins.discovery import Found
from rlvr.plugins.status import PluginStatus

_STATED_API = re.compile(r"^RLVR_API\s*(?::[^=]+)?=\s*(\d+)", re.MULTILINE)


def load_module(found: Found) -> tuple[PluginStatus, Any]:
    """
    The plugin's module, imported and checked against this rlvr's plugin API.

    Returns:
        Status and module; the module is None unless the status is active.
    """
    status = PluginStatus(name=found.name, distribution=found.distribution, version=found.version)
    if found.problem:
        return evolve(status, status="broken", reason=found.problem + reinstall(status)), None
    module_name, _, attribute = found.target.partition(":")
    try:
        module: Any = importlib.import_module(module_name)
        for part in filter(None, attribute.split(".")):
            module = getattr(module, part)
    except (Exception, SystemExit) as error:
        stated = _stated_api(module_name)
        if isinstance(error, ImportError) and stated not in (None, rlvr.API_VERSION):
            # It asked this rlvr for something of another API: say that, not the symptom.
            return evolve(_incompatible(status, stated), error=error), None
        return broken(status, error), None
    return _check_api(status, module)


def broken(status: PluginStatus, error: BaseException, doing: str = "") -> PluginStatus:
    """The same plugin, broken by `error` while `doing` something."""
    first = (str(error).strip() or "no message").splitlines()[0]
    reason = f"{doing}{': ' if doing else ''}{type(error).__name__}: {first}"
    if isinstance(error, ImportError):
        reason += reinstall(status)
    return evolve(status, status="broken", reason=reason, error=error, offers={})


def reinstall(status: PluginStatus) -> str:
    """The command that may mend an incomplete installation, as the end of a reason."""
    return f" - {pip_install(status.distribution, reinstall=True)}"


def _check_api(status: PluginStatus, module: Any) -> tuple[PluginStatus, Any]:
    stated = getattr(module, "RLVR_API", None)
    if isinstance(stated, bool) or not isinstance(stated, int):
        found = "no RLVR_API" if stated is None else f"RLVR_API = {stated!r}"
        reason = f"has {found}; its plugin module must say RLVR_API = {rlvr.API_VERSION}"
        return evolve(status, status="broken", reason=reason), None
    if stated != rlvr.API_VERSION:
        return _incompatible(status, stated), None
    return status, module


def _incompatible(status: PluginStatus, stated: int | None) -> PluginStatus:
    offered = f"this rlvr {rlvr.__version__} offers {rlvr.API_VERSION}"
    if stated is not None and stated > rlvr.API_VERSION:
        do = f"upgrade rlvr, or install {status.distribution}<{_minor(status.version)}"
    else:
        do = pip_install(status.distribution, upgrade=True)
    reason = f"built for plugin API {stated}, {offered} - {do}"
    return evolve(status, status="incompatible", reason=reason)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _stated_api(module_name: str) -> int | None:
    """`RLVR_API` as the source states it, for a module that cannot be imported."""
    try:
        spec = importlib.util.find_spec(module_name)
        if spec is None or spec.origin is None:
            return None
        with open(spec.origin, encoding="utf-8") as file:
            match = _STATED_API.search(file.read())
    except (Exception, SystemExit):  # its package may be as broken as itself
        return None
    return int(match.group(1)) if match else None
