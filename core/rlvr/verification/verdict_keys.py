"""The part of a verdict's key that identifies the reward: its source files on this disk.

So a reward that was edited, upgraded or given other options never gets a verdict of before, and
its author need not count versions. The source is every file of the reward's package (modules that
are imported late and data files too), of those of its base classes, of rewards that it wraps, and
of whatever these import; of a single file also what it names in quotes beside it. Of packages that
come from another wheel its version and pip's record stand for the files, with those of all it
needs. Not covered: names of modules and files that are made at run time, files that a reward reads
from elsewhere, and files that a hand changed inside of another one's wheel.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from types import ModuleType
from typing import Any

import rlvr
from rlvr.log import get
from rlvr.verification.reward_sources import is_foreign, unit_of

log = get(__name__)

_DEEP, _MANY = 5, 2000
"""Depth and number of objects up to which wrapped rewards are searched for."""


def salt_of(
    reward: object, targets: Iterable[str], version: str, options: Mapping[str, Any]
) -> str | None:
    """
    sha256 over a reward's source, its version and its options.

    Args:
        reward: The open part.
        targets: `module:object` of its spec: its class and its options.
        version: Of the distribution that offers it.
        options: Its resolved options, by key.

    Returns:
        None if the source of its class is not found: then no verdict can be kept.
    """
    own = {name.partition(":")[0] for name in targets} | set(_modules_of_class(type(reward)))
    units: set[str] = set()
    pending = sorted({*own, *_modules_held(reward)})
    seen = set(pending)
    while pending:
        name = pending.pop()
        unit = unit_of(name, own)
        if unit is not None:
            units.add(unit[0])
            pending += unit[1] - seen
            seen |= unit[1]
        elif name in own:
            log.warning("verdicts_not_kept", why=f"the source of module {name} is not found")
            return None
    told = [
        sorted(units),
        platform.python_version(),
        rlvr.__version__,
        version,
        {key: repr(value) for key, value in options.items()},
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _modules_of_class(kind: type) -> Iterator[str]:
    return (k.__module__ for k in kind.__mro__ if is_foreign(k.__module__))


def _modules_held(reward: object) -> set[str]:
    """Modules of all that a reward holds: another reward that it wraps, its base, its helpers."""
    names: set[str] = set()
    seen: set[int] = set()
    level: list[Any] = [reward]
    for _ in range(_DEEP):
        new = [t for t in level if id(t) not in seen][: max(0, _MANY - len(seen))]
        seen |= {id(thing) for thing in new}
        for thing in new:
            names.update(_modules_of_class(thing if isinstance(thing, type) else type(thing)))
            module = _get(thing, "__module__")
            names |= {module} if isinstance(module, str) and is_foreign(module) else set()
        level = [held for thing in new for held in _held_by(thing)]
    return names


def _held_by(thing: Any) -> Iterator[Any]:
    """The objects in an object: items, attributes, slots; for functions what they are bound to."""
    if isinstance(thing, str | bytes | int | float | ModuleType):
        return
    if isinstance(thing, Mapping):
        yield from thing.values()
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from thing
    elif isinstance(thing, partial):
        yield from (thing.func, *thing.args, *thing.keywords.values())
    for name in ("__self__", "__func__", "__wrapped__"):
        yield _get(thing, name)
    for cell in _get(thing, "__closure__") or ():
        yield _get(cell, "cell_contents")
    yield from list(getattr(thing, "__dict__", {}).values())
    for kind in type(thing).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for slot in (slots,) if isinstance(slots, str) else tuple(slots):
            yield _get(thing, slot)


def _get(thing: Any, name: str) -> Any:
    try:
        return getattr(thing, name, None)
    except Exception:  # the plugin border: a `__getattr__`, or a cell that is not filled yet
        return None
