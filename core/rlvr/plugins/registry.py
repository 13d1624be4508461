"""Names to specs, with errors that say what is installed and what to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from rlvr.errors import PluginError, RlvrError
from rlvr.install import pip_install, pip_install_folder
from rlvr.plugins.discovery import folder_of, without_entry_point
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import NAMES, distribution_for
from rlvr.plugins.offers import OFFERS, label
from rlvr.plugins.resolve import load_object
from rlvr.plugins.status import PluginStatus
from rlvr.specs import Check, CommandSpec, PartSpec, TaskSpec
from rlvr.suggest import did_you_mean

_FLAGS = {"algorithm": "algo"}
"""The flag that names a part of this kind, where it is not called like the kind."""
_WITHOUT_FLAG = ("advantage", "loss", "checkpointer")
"""Kinds that an option of `run` names, as no flag does."""


class Registry:
    """Finds the spec that a name means among what active plugins offer."""

    def __init__(self, host: PluginHost) -> None:
        self._host = host
        self._by_kind: dict[str, Callable[[], list[Any]]] = {
            record.kind: getattr(host, label(hook))
            for hook, record in OFFERS.items()
            if record not in (Check, CommandSpec)
        }

    def parts(self) -> list[PartSpec]:
        """The specs of all parts that active plugins offer."""
        return [s for offer in self._by_kind.values() for s in offer() if isinstance(s, PartSpec)]

    def names(self, kind: str) -> list[str]:
        """All names of a kind, sorted; a name that several plugins offer stands as full names."""
        specs = self._by_kind[kind]()
        bare = [spec.name for spec in specs]
        return sorted(s.full_name if bare.count(s.name) > 1 else s.name for s in specs)

    def namespaces(self) -> list[str]:
        """The option namespaces of all parts that active plugins offer."""
        return sorted({spec.option_namespace for spec in self.parts() if spec.config})

    def owners(self, key: str) -> list[Any]:
        """The parts of active plugins that declare the option of that dotted key."""
        namespace, _, name = key.rpartition(".")
        specs = [s for s in self.parts() if s.config and s.option_namespace == namespace]
        return [spec for spec in specs if name in _fields(spec)]

    def find(self, kind: str, name: str, of: str = "") -> Any:
        """
        The spec of that name, or of the full name `provider/name`.

        Args:
            kind: Of the part.
            name: That a person, or a record of a plugin, gave.
            of: The plugin whose record names it: of several parts its own is meant; "": nobody's.

        Raises:
            PluginError: No active plugin offers it, or several do.
        """
        specs = self._by_kind[kind]()
        matches = [s for s in specs if s.name == name] or [s for s in specs if s.full_name == name]
        matches = [s for s in matches if s.provider == of] or matches
        if len(matches) > 1:
            raise self._ambiguous(kind, name, matches)
        if not matches:
            raise self._missing(kind, name)
        return matches[0]

    def task(self, name: str) -> TaskSpec:
        """
        The task of that name or full name, or the default task of the plugin of that name.

        Raises:
            PluginError: There is none, or there are several.
        """
        is_plugin = any(status.name == name for status in self._host.plugins)
        if is_plugin and name not in self.names("task"):
            return self.default_task(name)
        spec: TaskSpec = self.find("task", name)
        return spec

    def default_task(self, plugin: str) -> TaskSpec:
        """
        The task that `--plugin NAME` means: the one of the plugin's name, or its only one.

        Raises:
            PluginError: No such active plugin, or it offers no task, or several of other names.
        """
        status = self.active(plugin)
        tasks = [task for task in self._host.tasks() if task.provider == plugin]
        named = [task for task in tasks if task.name == plugin]
        if named or len(tasks) == 1:
            return (named or tasks)[0]
        if not tasks:
            having = ", ".join(sorted({task.provider for task in self._host.tasks()})) or "none"
            raise PluginError(
                f"plugin {plugin!r} ({status.origin}) offers no task",
                f"plugins with tasks: {having}",
                "try: rlvr plugins list",
            )
        raise PluginError(
            f"plugin {plugin!r} has several tasks and none is called like it",
            f"its tasks: {', '.join(sorted(task.full_name for task in tasks))}",
            f"choose one: --task {tasks[0].full_name}",
        )

    def active(self, plugin: str) -> PluginStatus:
        """
        The status of an active plugin.

        Raises:
            PluginError: It is not installed, or not active.
        """
        statuses = [status for status in self._host.plugins if status.name == plugin]
        if not statuses:
            raise self._missing("plugin", plugin)
        for status in statuses:
            if status.is_active:
                return status
        raise _unusable(f"plugin {plugin!r} cannot be used", statuses[0])

    # --- errors ---------------------------------------------------------------------------------

    def _ambiguous(self, kind: str, name: str, matches: list[Any]) -> PluginError:
        asked = f"run.{kind}=" if kind in _WITHOUT_FLAG else f"--{_FLAGS.get(kind, kind)} "
        origins = {status.name: status.origin for status in self._host.plugins}
        providers = ", ".join(f"{m.provider} ({origins.get(m.provider, '?')})" for m in matches)
        return PluginError(
            f"{kind} {name!r} is offered by {len(matches)} plugins: {providers}",
            f"choose one by its full name: {', '.join(asked + m.full_name for m in matches)}",
        )

    def _missing(self, kind: str, name: str) -> PluginError:
        needed = distribution_for(kind, name) or ""
        distribution = needed.partition("[")[0]
        for status in self._host.plugins:
            is_asked = status.name in (name, name.rpartition("/")[0])
            if not status.is_active and (is_asked or status.distribution == distribution):
                return _unusable(f"{kind} {name!r} cannot be used", status)
        what = "plugin" if kind == "plugin" else f"{kind} plugin"
        installed = self._installed(kind)
        if distribution and not any(s.distribution == distribution for s in self._host.plugins):
            return PluginError(f"{what} {name!r} is not installed: {pip_install(needed)}")
        candidates = [*installed, *NAMES.get(kind, ()), *(s.name for s in self._host.plugins)]
        broken = [s.name for s in self._host.plugins if s.status == "broken"]
        return PluginError(
            f"no {what} named {name!r}.",
            f"installed: {', '.join(installed) or 'none'}    "
            f"{did_you_mean(name, candidates)}".rstrip(),
            self._lies_here(name)
            or without_entry_point(name)
            or f"broken, and may have it: {', '.join(broken)}; " * bool(broken)
            + "try: rlvr plugins list",
        )

    def _lies_here(self, name: str) -> str:
        """What to do where the package of a plugin that is not installed lies here, else ""."""
        plugin = name.rpartition("/")[0] or name
        if any(status.name == plugin for status in self._host.plugins):
            return ""
        if (folder := folder_of(plugin)) is None:
            return ""
        place = "the working directory" if folder == Path() else f"./{folder}"
        return f"found {place}, which is not installed: {pip_install_folder(folder)}"

    def _installed(self, kind: str) -> list[str]:
        if kind != "plugin":
            return self.names(kind)
        return sorted(status.name for status in self._host.plugins if status.is_active)


def _fields(spec: Any) -> set[str]:
    try:
        return set(attrs.fields_dict(load_object(spec.config, spec.provider)))
    except (RlvrError, ValueError, TypeError):  # a part that is not chosen may be broken
        return set()


def _unusable(asked: str, status: PluginStatus) -> PluginError:
    error = PluginError(
        asked,
        f"plugin {status.name!r} ({status.origin}) is {status.state}: {status.reason}",
        "--debug shows the traceback" if status.error else "see: rlvr plugins list",
    )
    error.__cause__ = status.error
    return error
