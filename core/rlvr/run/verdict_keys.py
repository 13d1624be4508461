"""What the core adds to each key of the verdict store: the reward itself, as it is on this disk.

So a reward that was edited, upgraded or given other options never gets a verdict of before, and
its author need not count versions. The source is every file of the reward's package (modules that
are imported late and data files too), of those of its base classes, of rewards that it wraps, and
of whatever these import. Of packages that come from a wheel the version stands for the files; the
reward's own package is always read. Not covered: modules outside of the reward's package whose
names are made at run time, and files that a reward reads from elsewhere.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

import rlvr
from rlvr.log import get

log = get(__name__)

_WHOLE = 32 << 20
"""Bytes; of larger files the size and the time of change stand for the content."""
_DEEP, _MANY = 5, 2000
"""How far, and over how many objects, wrapped rewards are looked for."""
_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+(?P<base>\.*[\w.]*)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^#\n;]+)"
    r"|import[ \t]+(?P<plain>[^#\n;]+))",
    re.MULTILINE,
)


def salt_of(
    reward: object, targets: Iterable[str], version: str, options: Mapping[str, Any]
) -> str | None:
    """
    sha256 over a reward's source, its version and its options.

    Args:
        reward: As it judges.
        targets: `module:object` of its spec: its class and its options.
        version: Of the distribution that offers it.
        options: Its resolved options, by key.

    Returns:
        None where the source of its class is not to be found: then no verdict can be kept.
    """
    own = {name.partition(":")[0] for name in targets} | set(_modules_of_class(type(reward)))
    units: set[str] = set()
    pending = sorted({*own, *_modules_held(reward)})
    seen = set(pending)
    while pending:
        name = pending.pop()
        unit = _unit(name, name in own)
        if unit is None and name in own:
            log.warning("verdicts_not_kept", why=f"the source of module {name} is not found")
            return None
        for other in unit[1] if unit is not None else ():
            if other not in seen:
                seen.add(other)
                pending.append(other)
        if unit is not None:
            units.add(unit[0])
    told = [
        sorted(units),
        rlvr.__version__,
        version,
        {key: repr(value) for key, value in options.items()},
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _modules_of_class(kind: type) -> Iterator[str]:
    return (k.__module__ for k in kind.__mro__ if _is_foreign(k.__module__))


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
            names |= {module} if isinstance(module, str) and _is_foreign(module) else set()
        level = [held for thing in new for held in _held_by(thing)]
    return names


def _held_by(thing: Any) -> Iterator[Any]:
    """What an object holds: items, attributes, slots; of functions what they are bound to."""
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


def _is_foreign(name: str) -> bool:
    return name.partition(".")[0] not in {*sys.stdlib_module_names, "rlvr", "attr", "attrs"}


def _unit(name: str, is_own: bool) -> tuple[str, frozenset[str]] | None:
    """What a module belongs to, as text that changes with it, and the modules this imports."""
    place = _place(name)
    if place is None:
        return None
    if not is_own and {"site-packages", "dist-packages"} & set(place.parts):
        root = name.partition(".")[0]
        return f"{root} {_version(root)}", frozenset()
    return _read(place, "" if place.is_dir() else name.rpartition(".")[0])


@cache
def _read(place: Path, around: str) -> tuple[str, frozenset[str]]:
    """
    Digest and imports of a package's folder, of a file, or of the zip archive it lies in.

    Read once a process, as the modules are: what changes later is not what runs.
    """
    archive = next((p for p in place.parents if p.is_file() and zipfile.is_zipfile(p)), None)
    if archive is not None:
        return f"{archive.name} {_content(archive)}", frozenset()
    is_package = place.is_dir()
    digest = hashlib.sha256()
    imports: set[str] = set()
    for path in sorted(_files(place)) if is_package else [place]:
        inside = path.relative_to(place).parts if is_package else ()
        digest.update(f"{inside} {_content(path)}\n".encode())
        if path.suffix == ".py":
            here = ".".join((place.name, *inside[:-1])) if is_package else around
            imports.update(_imports(path, here))
    return f"{place.name} {digest.hexdigest()}", frozenset(filter(_is_foreign, imports))


@cache
def _place(name: str) -> Path | None:
    """The folder of the outermost real package on a module's way, else the module's file."""
    parts = name.split(".")
    where: list[str] | None = None
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        try:
            spec = (
                importlib.util.find_spec(part)
                if where is None
                else PathFinder.find_spec(part, where)
            )
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is None:
            break
        where = list(spec.submodule_search_locations or ())
        if spec.origin is not None and spec.has_location:
            return Path(spec.origin).parent if where else Path(spec.origin)
        if not where:
            break
    file = getattr(sys.modules.get(name), "__file__", None)
    return Path(file) if file and Path(file).exists() else None


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _files(path)
        elif path.is_file():
            yield path


def _content(path: Path) -> str:
    about = path.stat()
    if about.st_size > _WHOLE:
        return f"{about.st_size} {about.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _imports(path: Path, around: str) -> Iterator[str]:
    """Modules that a file imports, anywhere in it; a name after `import` may be one as well."""
    for match in _IMPORT.finditer(path.read_text(encoding="utf-8", errors="replace")):
        names = re.sub(r"[()\\\s]+", " ", match["names"] or match["plain"] or "").split(",")
        words = [name.split()[0] for name in names if name.split()]
        base = match["base"]
        if base is None:
            yield from words
            continue
        dots = len(base) - len(base.lstrip("."))
        above = around.split(".")[: max(0, len(around.split(".")) - dots + 1)] if dots else []
        module = ".".join([*above, *filter(None, [base.lstrip(".")])])
        if module:
            yield from (module, *(f"{module}.{word}" for word in words))


@cache
def _version(root: str) -> str:
    """Version of the distribution that a package comes from, "" where none says so."""
    try:
        return metadata.version(root)
    except (metadata.PackageNotFoundError, ValueError):
        names = _packages().get(root, ())
        return " ".join(f"{name} {metadata.version(name)}" for name in sorted(set(names)))


@cache
def _packages() -> Mapping[str, list[str]]:
    return metadata.packages_distributions()
