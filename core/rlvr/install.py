"""The command that installs a distribution the way rlvr, or that distribution, was installed.

pip keeps where a distribution came from in `direct_url.json` (PEP 610). From a clone or a folder of
wheels, the bare name would find nothing on an index, or somebody else's.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

__all__ = ["pip_install", "pip_install_folder", "rlvr_command"]

_PLUGINS = (
    *("algos", "distill", "rtx4090", "servers", "tinker", "tinker-cookbook", "tinker-server"),
    *("torch", "trackers"),
)
FOLDERS: Mapping[str, str] = {
    "rlvr": ".",
    **{name: name for name in ("rlvr-chess", "rlvr-cvdp", "rlvr-sad")},
    **{f"rlvr-{name}": f"plugins/rlvr-{name}" for name in _PLUGINS},
}
"""Distributions of the project and their folders in its repository."""

_FIELD = re.compile(r"([!-9;-~]+):[ \t]*(.*)")
_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)\s*(?:\[([^\]]*)\])?")


def pip_install(*requirements: str, reinstall: bool = False, upgrade: bool = False) -> str:
    """
    The command, for a shell, that installs requirements such as `rlvr-torch[hf]`.

    Args:
        requirements: Distributions of the project, or any others.
        reinstall: Files of an installed one are missing or broken.
        upgrade: A newer version is wanted.
    """
    words: list[str] = []
    seen: set[str] = set()
    for requirement in requirements:
        found = _source(requirement, seen)
        is_known = found[:1] == ["--find-links"] and found[1] in words
        words += found[2:] if is_known else found
    is_local = any(word == "-e" or "/" in word.partition(" @ ")[0] for word in words)
    flags = []
    if reinstall and any(" @ " in word for word in words):
        flags = ["--force-reinstall", "--no-deps"]  # its dependency rlvr is on no index either
    elif (reinstall or upgrade) and (not is_local or "--find-links" in words):
        flags = ["--force-reinstall" if reinstall else "--upgrade"]
    return f"{_pip()} {shlex.join([*flags, *words])}"


def pip_install_folder(folder: Path) -> str:
    """The command, for a shell, that installs the package in a folder such that edits count."""
    place = str(folder) if folder.is_absolute() or folder == Path() else f"./{folder}"
    return f"{_pip()} -e {shlex.quote(place)}"


def rlvr_command(*words: str) -> str:
    """The command `rlvr WORDS`, for a shell: by its path if the shell finds no rlvr, or another."""
    beside = Path(sys.executable).with_name("rlvr")
    if shutil.which("rlvr") != str(beside) and beside.is_file():
        here = Path.cwd()
        name = str(beside.relative_to(here) if beside.is_relative_to(here) else beside)
    else:
        name = "rlvr"
    return shlex.join([name, *words])


def _pip() -> str:
    """
    The installer of this environment: pipx, uv, or pip (by its name if it is found).

    Into the Python of an operating system (PEP 668) rlvr came by a flag, which others need too.
    """
    python, prefix = Path(sys.executable), Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return f"pipx runpip {shlex.quote(prefix.name)} install"
    install = "install"
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"
    if sys.prefix == sys.base_prefix and marker.is_file():
        install += " --break-system-packages"
    # the finder that setuptools puts before this one warns where distutils was imported
    if PathFinder.find_spec("pip") is None and _text("rlvr", "INSTALLER").strip() == "uv":
        return f"uv pip {install} --python {shlex.quote(str(python))}"
    found = shutil.which("pip")
    if found is not None and Path(found).parent.resolve() == python.parent.resolve():
        return f"pip {install}"
    return f"{shlex.quote(str(python))} -m pip {install}"


def _source(requirement: str, seen: set[str]) -> list[str]:
    """The arguments of `pip install` for a requirement and for those of ours that it needs."""
    match = _REQUIREMENT.match(requirement)
    name = normal_name(match[1]) if match else requirement
    extras = f"[{match[2]}]" if match and match[2] else ""
    if name in seen:
        return []
    seen.add(name)
    origin, own = _origin(name)
    if origin is None:
        return [requirement]
    url = str(origin.get("url", ""))
    folder = "." if own else FOLDERS[name]
    if (vcs := origin.get("vcs_info")) is not None:
        at = vcs.get("commit_id") or vcs.get("requested_revision")
        below = origin.get("subdirectory", "") if own else folder
        where = f"{vcs.get('vcs', 'git')}+{url}{f'@{at}' if at else ''}"
        tail = f"#subdirectory={below}" if below not in ("", ".") else ""
        return [f"{name}{extras} @ {where}{tail}", *_others(name, extras, None, seen)]
    if not url.startswith("file:"):
        return ["--find-links", url.rpartition("/")[0], requirement]
    path = Path(unquote(urlsplit(url).path))
    if "dir_info" not in origin:  # a wheel or an sdist in a folder
        stem = name.replace("-", "[-_]")
        has_it = path.parent.is_dir() and any(path.parent.glob(f"{stem}-[0-9]*"))
        return ["--find-links", str(path.parent), requirement] if has_it else [requirement]
    source = (path / folder).resolve()
    if not (source / "pyproject.toml").is_file():
        return [requirement]
    is_editable = bool(origin["dir_info"].get("editable"))
    place = f"{source}{extras}"
    return [*(["-e"] if is_editable else []), place, *_others(name, extras, source, seen)]


def _origin(name: str) -> tuple[Mapping[str, Any] | None, bool]:
    """Where a distribution came from (else rlvr, if it is ours), and whether it is its own."""
    for asked in (name, *(["rlvr"] if name in FOLDERS and not _is_installed(name) else [])):
        try:
            origin = json.loads(_text(asked, "direct_url.json"))
        except ValueError:
            continue
        if isinstance(origin, dict):
            return origin, asked == name
    root = Path(__file__).parents[2]  # a clone on PYTHONPATH, installed by nobody
    if name in FOLDERS and not _is_installed("rlvr") and (root / FOLDERS[name]).is_dir():
        return {"url": root.as_uri(), "dir_info": {"editable": True}}, False
    return None, False


def _others(name: str, extras: str, source: Path | None, seen: set[str]) -> Iterator[str]:
    """Distributions of ours that it needs and that are not installed."""
    for needed in _needs(name, extras, source):
        match = _REQUIREMENT.match(needed)
        other = normal_name(match[1]) if match else ""
        if other in FOLDERS and not _is_installed(other):
            yield from _source(needed.partition(";")[0].partition(">")[0].strip(), seen)


def _needs(name: str, extras: str, source: Path | None) -> list[str]:
    wanted = [extra.strip() for extra in extras.strip("[]").split(",") if extra.strip()]
    if source is None:
        listed = (metadata.requires(name) or []) if _is_installed(name) else []
        return [n for n in listed if "extra ==" not in n or any(repr(w)[1:-1] in n for w in wanted)]
    try:
        project = tomllib.loads((source / "pyproject.toml").read_text("utf-8"))["project"]
        optional = project.get("optional-dependencies", {})
        return [*project.get("dependencies", ()), *(n for w in wanted for n in optional.get(w, ()))]
    except (OSError, ValueError, KeyError, AttributeError):
        return []


def _is_installed(name: str) -> bool:
    return next(iter(metadata.distributions(name=name)), None) is not None


def _text(name: str, file: str) -> str:
    """A file of a distribution's metadata; "" where there is none."""
    try:
        return metadata.distribution(name).read_text(file) or ""
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return ""


def normal_name(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def recorded_files(found: metadata.Distribution) -> Iterable[str]:
    """Paths in pip's record; without one, those that a distribution names in its own way."""
    if record := found.read_text("RECORD"):
        return (row[0] for row in csv.reader(record.splitlines()) if row)
    return map(str, found.files or ())


def header(found: metadata.Distribution) -> Mapping[str, Sequence[str]]:
    """
    The fields of a distribution's metadata by name in lower case, without its description.

    `Distribution.metadata` parses the whole text, which is far longer, again for each property, and
    `email` takes twice as long for the fields alone.
    """
    text = found.read_text("METADATA") or found.read_text("PKG-INFO") or found.read_text("") or ""
    fields: dict[str, list[str]] = {}
    values: list[str] = []
    for line in text.partition("\n\n")[0].split("\n"):
        if values and line.startswith((" ", "\t")):
            values[-1] += f"\n{line}"
        elif (field := _FIELD.match(line)) is not None:
            values = fields.setdefault(field[1].lower(), [])
            values.append(field[2])
        else:
            break
    return fields


def distribution_of(name: str) -> metadata.Distribution | None:
    """The distribution of that name, as `normal_name` writes it."""
    if (found := _by_name().get(name)) is not None or "" not in _by_name():
        return found
    try:  # one whose metadata is damaged still has its name in that of its folder
        return metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        return None


@cache
def _by_name() -> Mapping[str, metadata.Distribution]:
    """Of two of a name the first, as Python imports it; "" is one of those without a name."""
    return dict(reversed(distributions()))


@cache
def distributions() -> tuple[tuple[str, metadata.Distribution], ...]:
    """
    Each that is installed, with its name; "" where its metadata is damaged.

    All are read at once: `metadata.distribution` searches every folder of the path for one name,
    and a wheel's extras name hundreds that are not installed.
    """
    found = []
    for one in metadata.distributions():
        name = ""
        with suppress(Exception):  # other people's metadata may hold anything
            name = normal_name(header(one)["name"][0])
        found.append((name, one))
    return tuple(found)
