"""Find the installed plugins from metadata files; imports no plugin."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path

from attrs import frozen

from rlvr.install import header

GROUP = "rlvr"
"""The entry-point group: `[project.entry-points.rlvr] NAME = "module"`."""
_MOST_FOLDERS = 200
"""So many folders of the working directory are looked into for a package."""


@frozen(kw_only=True)
class Found:
    """An installed entry point. `problem` says why its metadata cannot be read, "" where it can."""

    name: str
    target: str
    distribution: str
    version: str
    problem: str = ""

    @property
    def origin(self) -> str:
        """`distribution version`, as people write it."""
        return f"{self.distribution} {self.version}".strip()


def without_entry_point(name: str) -> str:
    """What to do where a package of this name is installed and names no plugin; "" without one."""
    for package in (name, f"rlvr-{name}"):
        try:
            groups = {entry.group for entry in metadata.distribution(package).entry_points}
        except Exception:  # none of the name, an empty name, or damaged: metadata may be anything
            continue
        if GROUP not in groups:
            section = f"[project.entry-points.{GROUP}]"
            return (
                f"{package} is installed and has no plugin: if it is to have one, add {section} "
                "to its pyproject.toml, and install it again"
            )
    return ""


def folder_of(name: str) -> Path | None:
    """The working directory, or a folder in it, with the package of a plugin of this name."""
    try:
        below = sorted(path for path in Path().iterdir() if path.is_dir())[:_MOST_FOLDERS]
    except OSError:  # the working directory is gone, or may not be listed
        return None
    for folder in (Path(), *below):
        try:
            package = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
            if name in package["project"]["entry-points"][GROUP]:
                return folder
        except (OSError, ValueError, LookupError, TypeError):  # no package, or not of a plugin
            continue
    return None


def discover() -> tuple[Found, ...]:
    """
    All entry points of the group, the core's own first, then by name.

    Distributions are read one at a time, so that one with damaged metadata hides no other. Where
    a distribution is on the path twice, the first one counts, as it does for imports.
    """
    seen: set[str] = set()
    found: list[Found] = []
    for dist in metadata.distributions():
        key = re.sub(r"[-_.]+", "-", _folder_stem(dist)[0]).lower()
        if key not in seen:
            seen.add(key)
            found.extend(_entries(dist))
    return tuple(sorted(found, key=lambda f: (f.distribution != "rlvr", f.name, f.distribution)))


def owner_of(module: str) -> Found | None:
    """The first installed plugin that lies in the package of a module; None without one."""
    package = module.partition(".")[0]
    return next((f for f in discover() if re.split(r"[.:]", f.target)[0] == package), None)


def _entries(dist: metadata.Distribution) -> Iterator[Found]:
    problem = ""
    entries: Iterable[metadata.EntryPoint] = ()
    try:
        # most distributions are no plugins: their metadata is not parsed
        if f"[{GROUP}]" not in (dist.read_text("entry_points.txt") or ""):
            return
        entries = list(dist.entry_points.select(group=GROUP))
    except Exception as error:  # the plugin border: metadata may be anything
        problem = f"unreadable entry_points.txt: {error}"
    name, version = _identity(dist)
    for entry in entries:
        yield Found(name=entry.name, target=entry.value, distribution=name, version=version)
    if problem:
        yield Found(name=name, target="", distribution=name, version=version, problem=problem)


def _identity(dist: metadata.Distribution) -> tuple[str, str]:
    """Name and version, from the folder's name where the metadata is damaged."""
    name, version = _folder_stem(dist)
    try:
        told = header(dist)
        return told["name"][0] or name, told["version"][0] or version
    except Exception:  # the plugin border: metadata may be anything
        return name, version


def _folder_stem(dist: metadata.Distribution) -> tuple[str, str]:
    """`rlvr_cvdp`, `0.1.0` for the folder `rlvr_cvdp-0.1.0.dist-info`."""
    folder = str(getattr(getattr(dist, "_path", None), "name", "")) or str(dist.metadata["Name"])
    name, _, version = re.sub(r"\.(dist|egg)-info$", "", folder).partition("-")
    return name, version
