"""Hooks that a plugin specifies for plugins of its own, beside the core's.

A plugin module names its specifications: `RLVR_HOOKSPECS = "rlvr_sad.hookspecs"`. Each begins with
the plugin's name (`sad_formats`), so that no two plugins, and no plugin and the core, meet.
"""

from __future__ import annotations

import importlib
from typing import Any

import pluggy

from rlvr.errors import PluginError
from rlvr.plugins.loading import broken
from rlvr.plugins.status import PluginStatus

ATTRIBUTE = "RLVR_HOOKSPECS"
_MARK = "rlvr_spec"
"""Where pluggy's `HookspecMarker("rlvr")` leaves its options on a function."""


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
        except (Exception, SystemExit) as error:  # the plugin border
            return broken(status, error, "its own hooks"), None
    return status, module
