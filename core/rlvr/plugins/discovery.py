"""Which plugins are installed. Reads metadata files only; imports no plugin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata

from attrs import frozen

GROUP = "rlvr"
"""The entry-point group: `[project.entry-points.rlvr] NAME = "module"`."""


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


def discover() -> tuple[Found, ...]:
    """
    All entry points of the group, the core's own first, then by name.

    Distributions are read one at a time, so that one with damaged metadata hides no other. Where
    a distribution is on the path twice, the first one counts, as it does for imports.
    """
    seen: set[str] = set()
    found: list[Found] = []
    for dist in metadata.distributions():
        name, version = _identity(dist)
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        found.extend(_entries(dist, name, version))
    return tuple(sorted(found, key=lambda f: (f.distribution != "rlvr", f.name, f.distribution)))


def _identity(dist: metadata.Distribution) -> tuple[str, str]:
    """Name and version, from the folder's name where the metadata is damaged."""
    try:
        name, version = dist.metadata["Name"], dist.version
    except Exception:  # the plugin border: metadata may be anything
        name = version = None
    folder = str(getattr(getattr(dist, "_path", None), "name", "unknown"))
    stem = folder.removesuffix(".dist-info").removesuffix(".egg-info").split("-")
    return name or stem[0], version or "".join(stem[1:2])


def _entries(dist: metadata.Distribution, name: str, version: str) -> Iterator[Found]:
    try:
        text = dist.read_text("entry_points.txt") or ""
        if f"[{GROUP}]" not in text:
            return
        entries = dist.entry_points.select(group=GROUP)
    except Exception as error:  # the plugin border: metadata may be anything
        problem = f"unreadable entry_points.txt: {error}"
        yield Found(name=name, target="", distribution=name, version=version, problem=problem)
        return
    for entry in entries:
        yield Found(name=entry.name, target=entry.value, distribution=name, version=version)
