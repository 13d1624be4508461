"""Source files of a module: a package's folder, a single file, an archive, or an installed wheel.

Each gives a text that changes with its content, and the names of the modules that it imports.
Imports and file names are searched for in the text of the source. A name too many costs a second
verification of the same answer; a missing name would keep a verdict that is out of date.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import sys
import uuid
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from rlvr.install import distribution_of, distributions, header, normal_name, recorded_files
from rlvr.log import get

log = get(__name__)

_WHOLE = 32 << 20
"""Bytes; of larger files the size and the time of change stand for the content."""
_MANY = 2000
"""Files at most that are read in a folder of data beside a module."""
_NOT_SOURCE = (".pyc", ".swp", "~")
# Both patterns begin with what they look for: `re` skips to that ten times faster than to a `\b`.
_IMPORT = re.compile(
    r"from(?<!\wfrom)[ \t]+(?P<base>\.*[\w.]*)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^#\n;]+)"
    r"|import(?<!\wimport)[ \t]+(?P<plain>[^#\n;]+)"
    r"|(?:import_module(?<!\wimport_module)|__import__(?<!\w__import__))"
    r"\(\s*[\"'](?P<called>[\w.]+)[\"']"
)
_LITERAL = re.compile(r"[\"'}]([\w./ @+*?-]{2,200})(?=[\"'{])")
_NO_NAME = str.maketrans("()\\", "   ")
_GLOB = re.compile(r"[\w*?-]*[*?][\w*?-]*\.\w+")
_REQUIRED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_SITES = {"site-packages", "dist-packages"}

Unit = tuple[str, frozenset[str]]
"""A text that changes with the files of a module, and the modules that these import."""


def unit_of(name: str, own: Iterable[str]) -> Unit | None:
    """
    The unit that a module belongs to; None if there is no such module.

    Args:
        name: Dotted, as it is imported.
        own: Modules whose packages and distributions are read file by file wherever they lie.
    """
    found = _place(name)
    if found is None:
        return None
    package, places = found
    root = name.partition(".")[0]
    is_installed = _SITES & set(places[0].parts) or _is_recorded(root, places[0])
    if is_installed and not _is_of(name, frozenset(own)):
        return _installed(root)
    units = [_read(place, package) for place in places]
    return "\n".join(text for text, _ in units), frozenset().union(*(names for _, names in units))


def is_foreign(name: str) -> bool:
    """Whether a module is neither Python's nor rlvr's."""
    return name.partition(".")[0] not in {*sys.stdlib_module_names, "rlvr", "attr", "attrs"}


def _is_of(name: str, own: frozenset[str]) -> bool:
    """Whether a module is one of these, or comes from the same distribution."""
    root, roots = name.partition(".")[0], {n.partition(".")[0] for n in own}
    if name in own or not {root, *roots} & _packages().keys():
        return name in own
    return bool(set(_packages().get(root, ())) & {d for r in roots for d in _packages().get(r, ())})


@cache
def _is_recorded(root: str, place: Path) -> bool:
    """Whether pip put a package where it lies, by the record beside it (`pip install --target`)."""
    for name in _packages().get(root, ()):
        with suppress(Exception):  # other people's metadata may hold anything
            if (found := distribution_of(name)) is not None:
                inside = place.relative_to(str(found.locate_file("")))
                if inside.parts[0].partition(".")[0] == root and found.read_text("RECORD"):
                    return True
    return False


@cache
def _read(place: Path, package: str) -> Unit:
    """
    Digest and imports of a package's folder, of a file, or of the zip archive it lies in.

    Read once a process, as the modules are: what changes later is not what runs.
    """
    archive = next((p for p in place.parents if p.is_file() and zipfile.is_zipfile(p)), None)
    if archive is not None:
        found = set[str]()
        with zipfile.ZipFile(archive) as file:
            for name in file.namelist():
                if name.endswith(".py"):
                    text = file.read(name).decode("utf-8", errors="replace")
                    found.update(_imports(text, name.rpartition("/")[0].replace("/", ".")))
        return f"{archive.name} {_content(archive)}", frozenset(filter(is_foreign, found))
    is_package = place.is_dir()
    digest = hashlib.sha256()
    imports: set[str] = set()
    read = sorted(_files(place)) if is_package else [place]
    beside: set[Path] = set()
    for path in read:
        inside = path.relative_to(place).parts if is_package else ()
        digest.update(f"{inside} {_content(path)}\n".encode())
        if path.suffix == ".py":
            text = path.read_text(encoding="utf-8", errors="replace")
            imports.update(_imports(text, ".".join(filter(None, (package, *inside[:-1])))))
            beside.update(_named(text, path, place if is_package else None))
    for path in sorted(beside.difference(read)):
        digest.update(f"{path.name} {_content(path)}\n".encode())
    return f"{place.name} {digest.hexdigest()}", frozenset(filter(is_foreign, imports))


@cache
def _place(name: str) -> tuple[str, tuple[Path, ...]] | None:
    """A module's outermost package that is no namespace, and its folders; else its file."""
    parts = name.split(".")
    where: list[str] | None = None
    for depth in range(1, len(parts) + 1):
        part = ".".join(parts[:depth])
        spec = _spec(part, where)
        if spec is None:
            break
        path = getattr(sys.modules.get(part), "__path__", None)
        where = list(path or spec.submodule_search_locations or ())
        if spec.origin is not None and spec.has_location:
            if where:
                return part, tuple(Path(folder) for folder in where)
            return part.rpartition(".")[0], (Path(spec.origin),)
        if not where:
            break
    file = getattr(sys.modules.get(name), "__file__", None)
    if not file or not Path(file).exists():
        return None
    return name.rpartition(".")[0], (Path(file),)


def _spec(name: str, where: list[str] | None) -> Any:
    """Spec of a module by the finders of this process, without importing it."""
    try:
        if where is None:
            return importlib.util.find_spec(name)
        for finder in sys.meta_path:
            if (spec := finder.find_spec(name, where)) is not None:
                return spec
    except Exception:  # a finder is anybody's code
        return None
    return None


def _files(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Files below a folder, also behind links; not what Python or an editor left there."""
    real = folder.resolve()
    if real in above:
        return
    for path in folder.iterdir():
        if path.is_dir():
            if not path.name.startswith(".") and path.name != "__pycache__":
                yield from _files(path, above | {real})
        elif path.is_file() and not path.name.endswith(_NOT_SOURCE):
            yield path


def _content(path: Path) -> str:
    about = path.stat()
    if about.st_size > _WHOLE:
        return f"{about.st_size} {about.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _named(text: str, path: Path, package: Path | None) -> Iterator[Path]:
    """Files outside of its package, or beside a single module, that a source names in quotes."""
    here = path.parent
    for literal in set(_LITERAL.findall(text)):
        word = literal.strip("/ ")
        if not word.strip(".") or (package is not None and "." not in word):
            continue
        if package is not None:  # what lies below it is read anyhow
            found = [package.parent / word, *([here / word] if ".." in word else [])]
        elif _GLOB.fullmatch(word):
            found = list(here.glob(word))
        else:
            is_suffix = word.count(".") == 1 and word[0] == "." and "/" not in word
            found = [here / word, *([path.with_suffix(word)] if is_suffix else [])]
        for each in found:
            with suppress(OSError):  # no name of a file, or not ours to read
                if each.is_file() and not each.name.endswith(_NOT_SOURCE):
                    yield each
                elif package is None and each.is_dir() and not here.is_relative_to(each.resolve()):
                    yield from islice(_files(each), _MANY)


def _imports(text: str, around: str) -> Iterator[str]:
    """Modules that a source imports, anywhere in it; a name after `import` may be one as well."""
    for match in _IMPORT.finditer(text):
        called = match["called"] or ""
        names = (match["names"] or match["plain"] or "").translate(_NO_NAME).split(",")
        words = [parts[0] for name in names if (parts := name.split())]
        base = called if called.startswith(".") else match["base"]
        if base is None:
            yield from (called, *words) if called else words
            continue
        dots = len(base) - len(base.lstrip("."))
        above = around.split(".")[: max(0, len(around.split(".")) - dots + 1)] if dots else []
        module = ".".join([*above, *filter(None, [base.lstrip(".")])])
        if module:
            yield from (module, *(f"{module}.{word}" for word in words))


@cache
def _installed(root: str) -> Unit:
    """The wheel that a package comes from and all it needs: version, and what pip recorded."""
    pending = [root] if distribution_of(normal_name(root)) else list(_packages().get(root, ()))
    told, linked, seen = [root], set[str](), set[str]()
    while pending:
        name = normal_name(pending.pop())
        if name not in seen and (read := _distribution(name)) is not None:
            told.append(read[0])
            linked |= read[1]
            pending += read[2]
        seen.add(name)
    return "\n".join(sorted(told)), frozenset(linked)


@cache
def _distribution(name: str) -> tuple[str, frozenset[str], tuple[str, ...]] | None:
    """
    Version and record of a distribution, its packages where it is editable, and what it requires.

    Its metadata is read once a process: all distributions of an environment need each other.
    """
    found = distribution_of(name)
    if found is None:
        return None
    linked, needed = set[str](), list[str]()
    with suppress(Exception):  # other people's metadata may hold anything
        origin = json.loads(found.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):  # its record says nothing of its files
            linked.add(name.replace("-", "_"))
            linked.update(p for p, of in _packages().items() if name in of)
    with suppress(Exception):
        # an egg's needs are in a file of their own, which importlib turns into these lines
        told = found.requires if found.read_text("requires.txt") else None
        needs = told or header(found).get("requires-dist", [])
        needed += [m[0] for text in needs if (m := _REQUIRED.match(text))]
    return f"{name} {_recorded(found)}", frozenset(linked), tuple(needed)


def _recorded(found: metadata.Distribution) -> str:
    """Version and digest of pip's record; a random text if they cannot be read."""
    try:
        record = found.read_text("RECORD") or ""
        version = header(found).get("version", [None])[0]
        return f"{version} {hashlib.sha256(record.encode()).hexdigest()}"
    except Exception as error:  # other people's files may hold anything
        log.warning("distribution_unreadable", at=str(found.locate_file("")), why=repr(error))
        return uuid.uuid4().hex


@cache
def _packages() -> Mapping[str, list[str]]:
    """Distributions by package; one whose record cannot be read has no packages."""
    found: dict[str, list[str]] = {}
    for name, one in distributions():
        with suppress(Exception):  # other people's files may hold anything
            told = (one.read_text("top_level.txt") or "").split() or [
                path.partition("/")[0] if "/" in path else path.removesuffix(".py")
                for path in recorded_files(one)
                if path.endswith(".py")
            ]
            for package in sorted(set(told)) if name else ():
                found.setdefault(package, []).append(name)
    return found
