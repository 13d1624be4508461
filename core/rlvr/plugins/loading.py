"""Loads one plugin module and says, in one line, why that failed.

This is a plugin border: whatever a stranger's module raises becomes a status, so that one broken
plugin breaks nothing but itself.

A plugin may specify hooks for plugins of its own: `RLVR_HOOKSPECS = "rlvr_sad.hookspecs"`. Their
names begin with the plugin's (`sad_formats`), so that they differ from those of all others.
"""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pluggy
from attrs import evolve

import rlvr
from rlvr.errors import PluginError
from rlvr.heartbeat import say
from rlvr.install import pip_install
from rlvr.plugins.author_error import passes, said
from rlvr.plugins.discovery import Found
from rlvr.plugins.status import PluginStatus

ATTRIBUTE = "RLVR_HOOKSPECS"
HUNG: dict[str, str] = {}
"""Plugins whose import did not end, and why: they are broken, and not imported again."""
_MARK = "rlvr_spec"
"""Where pluggy's `HookspecMarker("rlvr")` leaves its options on a function."""
_SLOW_S = 5.0
"""Time after which people are told which plugin is being imported."""
_STATED_API = re.compile(r"^RLVR_API\s*(?::[^=]+)?=\s*(\d+)", re.MULTILINE)


def load_module(found: Found, status: PluginStatus) -> tuple[PluginStatus, Any]:
    """
    The plugin's module, imported and checked against this rlvr's plugin API.

    Returns:
        Status and module; the module is None unless the status is active.
    """
    if reason := HUNG.get(found.name):
        return evolve(status, status="broken", reason=reason), None
    if found.problem:
        return evolve(status, status="broken", reason=found.problem + reinstall(status)), None
    module_name, _, attribute = found.target.partition(":")
    changed: list[str] = []
    try:
        with _kept(changed):
            module: Any = importlib.import_module(module_name)
        for part in filter(None, attribute.split(".")):
            module = getattr(module, part)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # such as pytest's, of `importorskip` in a plugin's module
        stated = _stated_api(module_name)
        if isinstance(error, ImportError) and stated not in (None, rlvr.API_VERSION):
            # It asked this rlvr for something of another API: say that, not the symptom.
            return evolve(_incompatible(status, stated), error=error), None
        is_renamed = isinstance(error, ModuleNotFoundError) and _is_of(module_name, error.name)
        doing = f"its entry point names the module {module_name!r}" if is_renamed else ""
        return broken(status, error, doing), None
    if changed:
        reason = f"its import changed {', '.join(changed)}, which all of rlvr uses; it may not"
        return evolve(status, status="broken", reason=reason), None
    return _check_api(status, module)


@contextmanager
def _kept(changed: list[str]) -> Iterator[None]:
    """Put back Python's own names and rlvr's modules, which all plugins need."""
    names = dict(vars(builtins))
    modules = {n: m for n, m in sys.modules.items() if n == "rlvr" or n.startswith("rlvr.")}
    try:
        yield
    finally:
        for what, now, before in (
            ("builtins", vars(builtins), names),
            ("sys.modules", sys.modules, modules),
        ):
            lost = {n: value for n, value in before.items() if now.get(n) is not value and n != "_"}
            now.update(lost)
            changed += [f"{what}[{name!r}]" for name in sorted(lost)[:3]]


def _is_of(module_name: str, missing: str | None) -> bool:
    """Whether the module that is missing is the plugin's own, or a package that it lies in."""
    return bool(missing) and f"{module_name}.".startswith(f"{missing}.")


def broken(status: PluginStatus, error: BaseException, doing: str = "") -> PluginStatus:
    """The same plugin, broken by `error` while `doing` something."""
    reason = f"{doing}{': ' if doing else ''}{said(error)}"
    if isinstance(error, ModuleNotFoundError) and not doing:
        reason += " (the plugin's dependencies in pyproject.toml must name what it imports)"
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
        minor = ".".join(status.version.split(".")[:2])
        do = f"upgrade rlvr, or install {status.distribution}<{minor}"
    else:
        do = pip_install(status.distribution, upgrade=True)
    reason = f"built for plugin API {stated}, {offered} - {do}"
    return evolve(status, status="incompatible", reason=reason)


def _stated_api(module_name: str) -> int | None:
    """`RLVR_API` as the source states it, for a module that cannot be imported."""
    try:
        spec = importlib.util.find_spec(module_name)
        if spec is None or spec.origin is None:
            return None
        with open(spec.origin, encoding="utf-8") as file:
            match = _STATED_API.search(file.read())
    except BaseException as error:  # its package may be as broken as itself
        if passes(error):
            raise
        return None
    return int(match.group(1)) if match else None


def own_hookspecs(plugin: Any, name: str) -> Any:
    """
    The module of hook specifications that a plugin module names, None where it names none.

    Raises:
        PluginError: It is no text, or a specification does not begin with the plugin's name.
    """
    where = getattr(plugin, ATTRIBUTE, None)
    if where is None:
        return None
    if not isinstance(where, str):
        raise PluginError(f"{ATTRIBUTE} is {type(where).__name__}, expected the name of a module")
    module = importlib.import_module(where)
    prefix = name.replace("-", "_") + "_"
    specified = [key for key, value in vars(module).items() if hasattr(value, _MARK)]
    foreign = [key for key in specified if not key.startswith(prefix) or key.startswith("rlvr_")]
    if foreign or not specified:
        named = ", ".join(foreign) or "no hook"
        raise PluginError(f"{where} specifies {named}; hooks of {name!r} begin with {prefix!r}")
    return module


def specify(
    pm: pluggy.PluginManager, status: PluginStatus, module: Any
) -> tuple[PluginStatus, Any]:
    """Add the hooks that an active plugin specifies itself; where that fails, it is broken."""
    if status.is_active:
        try:
            specs = own_hookspecs(module, status.name)
            if specs is not None:
                pm.add_hookspecs(specs)
        except BaseException as error:  # the plugin border
            if passes(error):
                raise
            return broken(status, error, "its own hooks"), None
    return status, module


@contextmanager
def slow_imports_told() -> Iterator[Callable[[str], None]]:
    """Gives a function to be told which plugin is imported; people are told after some seconds."""
    name = ""

    def importing(plugin: str) -> None:
        nonlocal name
        name = plugin

    def tell() -> None:
        say(f"rlvr: still importing the plugin {name}")

    timer = threading.Timer(_SLOW_S, tell)
    timer.daemon = True
    timer.start()
    try:
        yield importing
    finally:
        timer.cancel()
