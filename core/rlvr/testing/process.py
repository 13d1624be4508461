"""What all parts of a process share, and a watch over who changes it."""

from __future__ import annotations

import builtins
import decimal
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from attrs import define, field

Slot = tuple[Callable[[], Any], Callable[[Any], Any]]
"""What reads the state and what writes it."""
_END_S = 1.0
"""Time that threads and processes have to end."""
_HELPERS = b"from multiprocessing."
"""In the command of the processes that multiprocessing keeps until the end of this one."""
_LIMITS = [name for name in dir(resource) if name.startswith("RLIMIT_")]


class KitWarning(UserWarning):
    """What an author should look at, although no promise is broken: an honest part may do it."""


class ChangedError(AssertionError):
    """A part changed what the whole process shares, or left something running."""


def _warn(text: str) -> None:
    warnings.warn(text, KitWarning, stacklevel=4)


@contextmanager
def nothing_changed(
    kept: dict[object, str] | None = None, warn: Callable[[str], None] = _warn
) -> Iterator[None]:
    """
    The block leaves alone what the whole process shares; variables are told without values.

    Afterwards the state is as before. Random numbers of Python, NumPy and torch that were drawn or
    seeded are a warning.

    Args:
        kept: Processes that the part may keep for all its work: filled by the first block that
            leaves any. With it, imports of libraries may add variables. None: neither.
        warn: Is told of such numbers, in words; by default a `KitWarning`.

    Raises:
        ChangedError: It did not; says all that it changed.
    """
    before, running = Shared(kept is not None), _running()
    failure: Exception | None = None
    try:
        with warnings.catch_warnings():
            try:
                yield
            except Exception as error:  # what it changed may be why
                failure = error
            changed = before.changes()
    finally:
        before.restore()
    left = _running(running) if failure is None else {}
    if kept == {}:
        kept |= {pid: name for pid, name in left.items() if isinstance(pid, int)}
        left = {one: name for one, name in left.items() if one not in kept}
    if left:
        changed.append(f"left running {', '.join(sorted(left.values()))}: end it when it is done")
    if changed:
        said = f"the process is shared by all parts: it {'; it '.join(changed)}"
        raise ChangedError(said) from failure
    if failure is not None:
        raise failure
    if drawn := before.drawn():
        warn(
            f"it drew or seeded {', '.join(drawn)}, which all parts share: what others draw then "
            "differs from run to run; use a generator of its own, such as random.Random(seed)"
        )


@define
class Shared:
    """
    The shared state at the time it was made. Of libraries: of those imported by then.

    Attributes:
        may_add: Whether modules that are imported later may add environment variables.
    """

    may_add: bool = False
    modules: set[str] = field(factory=lambda: {*sys.modules})
    variables: dict[str, str] = field(factory=lambda: dict(os.environ))
    states: dict[str, Any] = field(factory=lambda: {k: read() for k, (read, _) in _slots().items()})
    seeds: dict[str, Any] = field(factory=lambda: _seeds())

    def changed_variables(self) -> list[str]:
        """Names of the environment variables that differ by now."""
        may_add = self.may_add and sys.modules.keys() - self.modules
        names = {*self.variables, *(() if may_add else os.environ)} - {"PYTEST_CURRENT_TEST"}
        return sorted(n for n in names if self.variables.get(n) != os.environ.get(n))

    def _is_kept(self, name: str, now: Any) -> bool:
        """Whether a state is as it was; a list may grow at its end, which changes no choice."""
        before = self.states.get(name, now)
        return bool((now[: len(before)] if isinstance(now, list) else now) == before)

    def changes(self) -> list[str]:
        """What differs by now, in words that follow "it"."""
        names = self.changed_variables()
        found = [f"changed environment variables: {', '.join(names)}"] if names else []
        for name, now in Shared().states.items():
            if not self._is_kept(name, now):
                is_short = isinstance(now, str | int | float)
                found.append(f"changed {name}{f' to {now}' if is_short else ''}")
        return found

    def drawn(self) -> list[str]:
        """Names of the generators whose state differs by now."""
        return [k for k, now in _seeds().items() if k in self.seeds and self.seeds[k] != now]

    def restore(self) -> None:
        """Make it as it was."""
        for name in self.changed_variables():
            os.environ.pop(name, None)
            os.environ.update({name: self.variables[name]} if name in self.variables else {})
        for name, (read, write) in _slots().items():
            if not self._is_kept(name, read()):
                with suppress(OSError, ValueError):  # a limit that was lowered for good
                    write(self.states[name])


def _slots() -> dict[str, Slot]:
    """Each state by its name in words."""
    found: dict[str, Slot] = {
        "the working directory": (_folder, os.chdir),
        "the umask": (_umask, os.umask),
        "the locale": (partial(locale.setlocale, locale.LC_ALL), _set_locale),
        "sys.path": (lambda: [*sys.path], partial(sys.path.__setitem__, slice(None))),
        "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
        "the default timeout of sockets": (socket.getdefaulttimeout, socket.setdefaulttimeout),
        "logging.disable": (lambda: logging.root.manager.disable, logging.disable),
        "the level of the root logger": (lambda: logging.root.level, logging.root.setLevel),
        "which warnings are shown": (_general_filters, lambda _: None),  # `nothing_changed` does
        "builtins": (_builtins, _set_builtins),
        "the module rlvr in sys.modules": (
            lambda: sys.modules.get("rlvr"),
            partial(sys.modules.__setitem__, "rlvr"),
        ),
    }
    attributes: list[tuple[str, Any, str]] = [
        ("sys.", sys, name) for name in ("stdin", "stdout", "stderr", "excepthook")
    ]
    attributes += [("decimal's ", decimal.getcontext(), name) for name in ("prec", "rounding")]
    for of, owner, name in attributes:
        found[of + name] = partial(getattr, owner, name), partial(setattr, owner, name)
    for one in signal.Signals:
        found[f"what {one.name} does"] = partial(signal.getsignal, one), partial(_handle, one)
    for name in _LIMITS:
        limit = getattr(resource, name)
        write = partial(resource.setrlimit, limit)
        found[f"the limit {name}"] = partial(resource.getrlimit, limit), write
    torch: Any = sys.modules.get("torch")
    if hasattr(torch, "get_default_device"):  # fully imported
        found["torch's default dtype"] = torch.get_default_dtype, torch.set_default_dtype
        # "cpu" would leave a mode that every call of torch goes through
        found["torch's default device"] = (
            torch.get_default_device,
            lambda one: torch.set_default_device(None if one.type == "cpu" else one),
        )
        found["torch's gradients"] = torch.is_grad_enabled, torch.set_grad_enabled
    return found


def _seeds() -> dict[str, Any]:
    """The states of the generators that all parts share."""
    found: dict[str, Any] = {"numbers of random": random.getstate()}
    torch: Any = sys.modules.get("torch")
    numpy_random: Any = getattr(sys.modules.get("numpy"), "random", None)
    if hasattr(numpy_random, "get_state"):
        _, numbers, *others = numpy_random.get_state()
        found["numbers of numpy.random"] = numbers.tobytes(), others
    if hasattr(torch, "get_rng_state"):
        found["torch's random numbers"] = torch.get_rng_state().numpy().tobytes()
    return found


def _running(before: Mapping[object, str] | None = None) -> dict[object, str]:
    """
    Child processes (Linux) and threads that are no daemons, by their name in words.

    With `before`: those that are not in it and have not ended a second later. Not those that wait
    for work until the process ends: threads of executors, and helpers of multiprocessing.
    """
    end = time.monotonic() + _END_S
    while True:
        pools = getattr(sys.modules.get("concurrent.futures.thread"), "_threads_queues", ())
        found: dict[object, str] = {
            one: f"the thread {one.name}"
            for one in threading.enumerate()
            if not one.daemon and one not in pools
        }
        for file in Path("/proc/self/task").glob("*/children"):
            with suppress(OSError):  # one has ended
                for pid in map(int, file.read_text().split()):
                    if _HELPERS not in Path(f"/proc/{pid}/cmdline").read_bytes():
                        found[pid] = f"the process {pid}"
        new = {one: name for one, name in found.items() if one not in (before or {})}
        if before is None or not new or time.monotonic() > end:
            return new
        time.sleep(0.02)


def _folder() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "a folder that is gone"


def _umask() -> int:
    os.umask(umask := os.umask(0o22))
    return umask


def _set_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _general_filters() -> list[tuple[str, str]]:
    """Filters of all warnings, wherever they come from: libraries add narrower ones."""
    general = [f for f in warnings.filters if f[1] is None and f[3] is None]
    return [(f[0], f[2].__name__) for f in general if f[2] in (Warning, UserWarning)]


def _builtins() -> dict[str, Any]:
    return {name: value for name, value in vars(builtins).items() if name != "_"}


def _set_builtins(names: dict[str, Any]) -> None:
    for name in _builtins().keys() - names:
        delattr(builtins, name)
    vars(builtins).update(names)


def _handle(one: signal.Signals, handler: Any) -> None:
    if handler is not None:  # not set by Python code
        signal.signal(one, handler)
