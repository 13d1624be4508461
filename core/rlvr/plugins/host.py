"""The one place that calls hooks: a typed method for each, one plugin at a time.

Plugins are loaded one by one and asked at once for all they offer, so a plugin's status is final
when `load` returns and a broken one disturbs no other. All of pluggy is behind this file.
"""

from __future__ import annotations

import inspect
import os
import reprlib
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, TypeVar

import pluggy
from attrs import evolve

import rlvr.hookspecs as hookspecs
import rlvr.specs as specs
from rlvr.errors import PluginError
from rlvr.heartbeat import say, stdout_to_stderr
from rlvr.plugins.author_error import passes
from rlvr.plugins.controls import BUILTIN, Controls
from rlvr.plugins.discovery import Found, discover
from rlvr.plugins.loading import broken, load_module, slow_imports_told, specify
from rlvr.plugins.offers import OFFERS, checked, label
from rlvr.plugins.status import PluginStatus
from rlvr.suggest import did_you_mean

__all__ = ["PluginHost", "PluginStatus"]


S = TypeVar("S")


def _offered(hook: str, record: type[S]) -> Callable[[PluginHost], list[S]]:
    """A method: all records that active plugins offer by the hook."""

    def offered(host: PluginHost) -> list[S]:
        return list(host._records[hook])

    return offered


class PluginHost:
    """The installed plugins. Make one with `PluginHost.load()`."""

    def __init__(self, controls: Controls) -> None:
        self._controls = controls
        self._pm = pluggy.PluginManager("rlvr")
        self._pm.add_hookspecs(hookspecs)
        self._statuses: list[PluginStatus] = []
        self._records: dict[str, list[Any]] = {hook: [] for hook in OFFERS}

    @classmethod
    def load(
        cls,
        env: Mapping[str, str] | None = None,
        importing: Callable[[str], None] | None = None,
    ) -> PluginHost:
        """
        Discover and load all installed plugins that the environment allows.

        `importing` is called with the name of each plugin whose code is about to run, with "" at
        the end; without it, people are told of one that takes long.

        Raises:
            PluginError: A plugin did not load and `RLVR_STRICT_PLUGINS` is set; never otherwise.
        """
        host = cls(Controls.from_environment(os.environ if env is None else env))
        found = discover()
        tells = nullcontext(importing) if importing else slow_imports_told()
        with stdout_to_stderr(), tells as tell:
            loaded = [host._load(plugin, found, tell) for plugin in found]
            admitted = [host._admit(status, module) for status, module in loaded]
            for status in admitted:
                tell(status.name)
                host._statuses.append(host._ask(status))
            tell("")
        if host._controls.is_strict:
            host._stop_at_first_failure()
        return host

    @property
    def plugins(self) -> tuple[PluginStatus, ...]:
        """Every installed plugin, the built-in one first, then by name."""
        return tuple(self._statuses)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on variables that name plugins which are not installed."""
        installed = {status.name for status in self._statuses}
        return tuple(
            f"{variable} names {name!r}, which is not installed. {did_you_mean(name, installed)}"
            for name, variable in sorted(self._controls.named.items())
            if name not in installed
        )

    def _load(
        self, found: Found, everyone: tuple[Found, ...], tell: Callable[[str], None]
    ) -> tuple[PluginStatus, Any]:
        status = PluginStatus(found.name, found.distribution, found.version)
        why = self._controls.why_disabled(found.name)
        if why:
            return evolve(status, status="disabled", reason=why), None
        rivals = [o.origin for o in everyone if o.name == found.name and o != found]
        if rivals and not (found.name == BUILTIN and found.distribution == "rlvr"):
            reason = f"the name {found.name!r} is also taken by {', '.join(rivals)} - uninstall one"
            return evolve(status, status="conflict", reason=reason), None
        tell(found.name)
        return specify(self._pm, *load_module(found, status))

    def _admit(self, status: PluginStatus, module: Any) -> PluginStatus:
        if not status.is_active:
            return status
        reason = self._register(module, status.name)
        if reason:
            return evolve(status, status="broken", reason=reason)
        callers = self._pm.get_hookcallers(module) or []
        return evolve(status, hooks=tuple(sorted(caller.name for caller in callers)))

    def _register(self, plugin: object, name: str) -> str:
        """Register; where its hooks cannot be called, take it out again and say why."""
        try:
            self._pm.register(plugin, name=name)
        except (ValueError, pluggy.PluginValidationError) as error:
            return "its hooks cannot be called: " + " ".join(str(error).split())
        reason = _unsupported(self._pm, plugin)
        if reason:
            self._forget(plugin)
        return reason

    def _ask(self, status: PluginStatus) -> PluginStatus:
        """Collect all that an active plugin offers; the first failure makes it broken."""
        if not status.is_active:
            return status
        offered: dict[str, list[Any]] = {}
        for hook in OFFERS:
            if hook not in status.hooks:
                continue
            try:
                results = self._call(hook, status.name, {})
                offered[hook] = checked(hook, results[0] if results else None, status.name)
            except BaseException as error:  # the plugin border
                if passes(error):
                    raise
                self._forget(self._pm.get_plugin(status.name))
                return broken(status, error, hook)
        for hook, records in offered.items():
            self._records[hook].extend(records)
        names = {label(h): tuple(r.name for r in records) for h, records in offered.items()}
        return evolve(status, offers={key: value for key, value in names.items() if value})

    def _stop_at_first_failure(self) -> None:
        for status in self._statuses:
            if status.status not in ("active", "disabled"):
                raise PluginError(
                    f"plugin {status.name!r} ({status.origin}) is {status.state}",
                    status.reason,
                    "RLVR_STRICT_PLUGINS is set: unset it to go on without this plugin",
                ) from status.error

    def _forget(self, module: object) -> None:
        if module is not None and self._pm.is_registered(module):
            self._pm.unregister(module)

    def _call(self, hook: str, name: str, kwargs: Mapping[str, Any]) -> list[Any]:
        """Call one plugin's implementation of one hook; whatever it raises passes through."""
        others = [plugin for other, plugin in self._pm.list_name_plugin() if other != name]
        caller = self._pm.subset_hook_caller(hook, [p for p in others if p is not None])
        started = time.perf_counter()
        try:
            result = caller(**kwargs)
        finally:
            if self._controls.is_traced:
                spent_ms = 1000 * (time.perf_counter() - started)
                say(f"rlvr: trace: {hook} -> {name} {spent_ms:.1f} ms")
        if isinstance(result, list):
            return result
        return [] if result is None else [result]

    tasks = _offered("rlvr_tasks", specs.TaskSpec)
    rewards = _offered("rlvr_rewards", specs.RewardSpec)
    curricula = _offered("rlvr_curricula", specs.CurriculumSpec)
    samplers = _offered("rlvr_samplers", specs.SamplerSpec)
    advantages = _offered("rlvr_advantages", specs.AdvantageSpec)
    losses = _offered("rlvr_losses", specs.LossSpec)
    algorithms = _offered("rlvr_algorithms", specs.AlgorithmSpec)
    backends = _offered("rlvr_backends", specs.BackendSpec)
    teachers = _offered("rlvr_teachers", specs.TeacherSpec)
    checkpointers = _offered("rlvr_checkpointers", specs.CheckpointerSpec)
    callbacks = _offered("rlvr_callbacks", specs.CallbackSpec)
    checks = _offered("rlvr_checks", specs.Check)
    commands = _offered("rlvr_commands", specs.CommandSpec)

    def extension(self, hook: str) -> list[tuple[str, Any]]:
        """
        Plugin and answer (an exception: what it raised) of all who implement a plugin's own hook.

        Raises:
            PluginError: No active plugin specifies that hook.
        """
        caller = getattr(self._pm.hook, hook, None)
        if hook.startswith("rlvr_") or caller is None or not caller.has_spec():
            raise PluginError(f"no active plugin specifies a hook {hook!r}")
        answers: list[tuple[str, Any]] = []
        for name in self._listeners(hook):
            try:
                answers.extend((name, answer) for answer in self._call(hook, name, {}))
            except BaseException as error:  # the plugin border
                if passes(error):
                    raise
                answers.append((name, error))
        return answers

    # --- announcements --------------------------------------------------------------------------

    def register_observer(self, observer: object, name: str) -> None:
        """
        Add an object whose methods marked with `hookimpl` are called for announcements.

        Raises:
            PluginError: A method is no hook of rlvr, or the name is taken.
        """
        reason = self._register(observer, name)
        if reason:
            raise PluginError(f"observer {name!r} cannot be added: {reason}")

    def announce(self, hook_name: str, **kwargs: Any) -> list[tuple[str, BaseException]]:
        """
        Tell everyone who listens, one at a time, in the order of registration (`tryfirst` before).

        Returns:
            The listeners that failed, with what they raised. Nothing but Ctrl-C passes through.
        """
        failures: list[tuple[str, BaseException]] = []
        for name in self._listeners(hook_name):
            try:
                self._call(hook_name, name, kwargs)
            except BaseException as error:  # the plugin border: the run goes on
                if passes(error):
                    raise
                failures.append((name, error))
        return failures

    def explain_error(self, error: BaseException) -> specs.Advice | None:
        """A plugin's advice on an exception: the first answer; a hook that fails is skipped."""
        for name in self._listeners("rlvr_explain_error"):
            try:
                results = self._call("rlvr_explain_error", name, {"error": error})
            except BaseException as failure:  # advice must not hide the error itself
                if passes(failure):
                    raise
                results = [failure]
            if results and isinstance(results[0], specs.Advice):
                return results[0]
            if results:
                came = f"{reprlib.repr(results[0])}, which is no Advice"
                error.add_note(f"plugin {name!r}: rlvr_explain_error gave {came}")
        return None

    def _listeners(self, hook: str) -> list[str]:
        impls = getattr(self._pm.hook, hook).get_hookimpls()
        impls.sort(key=lambda impl: (impl.trylast, not impl.tryfirst))
        return [impl.plugin_name for impl in impls]


def _unsupported(pm: pluggy.PluginManager, plugin: object) -> str:
    """Why a plugin's hooks cannot be called, "" where they can."""
    for caller in pm.get_hookcallers(plugin) or []:
        impls = [impl for impl in caller.get_hookimpls() if impl.plugin is plugin]
        if not caller.has_spec() and not all(impl.optionalhook for impl in impls):
            hint = did_you_mean(caller.name, hookspecs.__all__)
            return f"uses unknown hook {caller.name!r}{', ' if hint else ''}{hint}"
        if any(impl.wrapper or impl.hookwrapper for impl in impls):
            return f"{caller.name} is a hook wrapper; hooks are called one plugin at a time"
        if any(inspect.iscoroutinefunction(impl.function) for impl in impls):
            return f"{caller.name} is async; a hook is a plain function and is never awaited"
    return ""
