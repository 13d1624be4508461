"""Imports what a spec's `target` names, when it is chosen and not before."""

from __future__ import annotations

import importlib
from typing import Any

from rlvr.errors import PluginError, RlvrError
from rlvr.install import pip_install
from rlvr.plugins.author_error import passes, said
from rlvr.plugins.discovery import discover

_NOTHING = object()


def load_object(target: str, provider: str = "") -> Any:
    """
    The object that `"module:object"` names; `provider` is its plugin's name, for the error.

    Raises:
        PluginError: The module cannot be imported (names the plugin, the missing module and the
            pip command), or holds no such object.
    """
    module_name, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute, _NOTHING)
    except RlvrError:
        raise
    except BaseException as error:  # the plugin border: a plugin's module may raise anything
        if passes(error):
            raise
        distribution = _distribution(module_name, provider)
        whose = f"plugin {provider!r} ({distribution})" if provider else distribution
        raise PluginError(
            f"{whose} could not load {target!r}",
            said(error),
            _remedy(error, distribution, target),
        ) from error
    if found is _NOTHING:
        distribution = _distribution(module_name, provider)
        raise PluginError(
            f"module {module_name!r} has no object {attribute!r}",
            f"plugin {provider or distribution!r} names it as {target!r}",
            f"do: {pip_install(distribution, reinstall=True)}, or mend its plugin module",
        )
    return found


def _remedy(error: BaseException, distribution: str, target: str) -> str:
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    command = pip_install(distribution, reinstall=True)
    if missing and f"{target.partition(':')[0]}.".startswith(f"{missing}."):  # it lies in no module
        return f"the plugin's record is to name MODULE:OBJECT, of a module that is there: {command}"
    if missing:
        return f"the module {missing!r} is not installed: {command}"
    if isinstance(error, ImportError):
        return f"do: {command}"
    return "this is a bug of the plugin: --debug shows its traceback"


def _distribution(module_name: str, provider: str) -> str:
    for found in discover():
        if found.name == provider or found.target.split(".")[0] == module_name.split(".")[0]:
            return found.distribution
    return module_name.split(".")[0].replace("_", "-")
