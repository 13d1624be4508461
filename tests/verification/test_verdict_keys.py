"""A verdict is kept for the reward that gave it: its source, version and options enter each key."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from email.parser import HeaderParser
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from rlvr import install as installed
from rlvr.install import header
from rlvr.verification import reward_sources
from rlvr.verification.verdict_keys import salt_of

ASK = """
import contextlib, importlib, json, os, sys
sys.dont_write_bytecode = True
import structlog
from rlvr.verification.verdict_keys import salt_of
# the hundreds of packages beside rlvr, whose metadata each fork would read, are for real runs
sys.path[:] = [path for path in sys.path if not path.endswith("site-packages")]
for line in sys.stdin:
    if not os.fork():
        sys.path[1:1], target, version, options = json.loads(line)
        sys.modules.pop("sitecustomize", None)
        with contextlib.suppress(ModuleNotFoundError):
            import sitecustomize  # which Python reads when it starts
        module, _, name = target.partition(":")
        made = getattr(importlib.import_module(module), name)()
        print(salt_of(made, [target], version, options), flush=True)
        break
    if os.wait()[1]:
        print(flush=True)
"""


@pytest.fixture(scope="module", autouse=True)
def _asked() -> Iterator[None]:
    """A process that has imported rlvr alone and finds no more; a fork of it answers a question."""
    global _fresh
    _fresh = subprocess.Popen(
        [sys.executable, "-c", ASK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with _fresh:
        yield


def salt(place: Path, target: str = "judge:Judge", version: str = "1", options: str = "{}") -> str:
    """As a fresh process finds it, like the next run."""
    paths = [str(place), str(place / "z.zip")]
    assert _fresh.stdin
    assert _fresh.stdout
    _fresh.stdin.write(json.dumps([paths, target, version, json.loads(options)]) + "\n")
    _fresh.stdin.flush()
    told = _fresh.stdout.readline().strip()
    assert told, "its error is above"
    return told


def write(place: Path, **files: str) -> None:
    for name, text in files.items():
        path = place / (name.replace("__", "/") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


JUDGE = "class Judge:\n    pass\n"


def edit(name: str, text: str = "\nMORE = 1\n") -> Callable[[Path], None]:
    def change(place: Path) -> None:
        path = place / name
        path.write_text(path.read_text() + text)

    return change


def package(place: Path) -> None:
    """`judge`, with a helper, a module that is imported late, a data file and a folder below."""
    write(
        place, judge__helper="LIMIT = 1\n", judge__late="X = 1\n", judge__deep__more="Y = 1\n",
        judge__deep__init="",
    )  # fmt: skip
    (place / "judge" / "__init__.py").write_text(
        "from judge.helper import LIMIT\n" + JUDGE.replace("pass", "def go(self): from . import x")
    )
    (place / "judge" / "table.json").write_text("{}")


def module(place: Path) -> None:
    """A reward that is one file, with helpers beside it that are files as well."""
    write(
        place,
        judge="from helper import LIMIT\n"
        "class Judge:\n    def go(self):\n        import late, other as o\n",
        helper="import below\nLIMIT = 1\n", below="X = 1\n", late="", other="", stranger="",
    )  # fmt: skip


def wrapper(place: Path) -> None:
    """A reward around another package's, known by what it holds alone; its base a third one's."""
    write(
        place, judge="import base\nimport importlib\nclass Judge(base.Base):\n"
        "    def __init__(self): self._of = [importlib.import_module('inner').Inner()]\n",
        base="class Base: pass\n",
    )  # fmt: skip
    (place / "inner").mkdir()
    (place / "inner" / "__init__.py").write_text("from inner.real import Inner\n")
    (place / "inner" / "real.py").write_text("class Inner:\n    __slots__ = ()\n")


def partial(place: Path) -> None:
    """A factory that gives a partial of a function that closes over another module's."""
    write(
        place,
        judge="import functools, inner\n"
        "def Judge():\n    f = inner.make()\n    return functools.partial(f, 1)\n",
        inner="import importlib\ndef make():\n    g = importlib.import_module('held').g\n"
        "    def h(x): return g(x)\n    return h\n",
        held="def g(x): return x\n",
    )  # fmt: skip


def namespace(place: Path) -> None:
    """A package without `__init__`, whose modules import each other."""
    write(
        place,
        company__judge="from company import helper\nfrom .parts import (\n    one,\n    two,\n)\n"
        + JUDGE,
        company__helper="X = 1\n", company__parts__one="", company__parts__two="",
    )  # fmt: skip


def beside(place: Path) -> None:
    """One file that names what it reads beside it, and imports in ways that no line begins with."""
    write(
        place,
        judge="import importlib\nfrom pathlib import Path\nHERE = Path(__file__).parent\n"
        "X = 1; import joined\n"
        "try: import tried\nexcept ImportError: pass\n"
        "class Judge:\n"
        "    def go(self):\n        importlib.import_module('named')\n"
        "        __import__('called')\n        exec((HERE / 'script.txt').read_text())\n"
        "        return (HERE / 'table.json', f'{HERE}/lists/short.txt', HERE / 'tables')\n"
        "ODD = ('../../x/y', '..', '.', './', '.a.b', '*.?', '/', 'x" + "y" * 190 + "',\n"
        "    '.py/', '**/*.x', 'secret/x.json', '.csv')\n",
        joined="", tried="", named="", called="",
    )  # fmt: skip
    (place / "lists").mkdir()
    (place / "tables" / "deep").mkdir(parents=True)
    (place / "judge.csv").write_text("1")
    for name in ("script.txt", "table.json", "lists/short.txt", "tables/deep/one.csv"):
        (place / name).write_text("1")


def linked(place: Path) -> None:
    """A package in which folders are links: to data, and to itself."""
    package(place)
    (place / "elsewhere").mkdir()
    (place / "elsewhere" / "table.csv").write_text("1")
    (place / "judge" / "data").symlink_to(place / "elsewhere")
    (place / "judge" / "loop").symlink_to(place / "judge")
    (place / "judge" / ".limits.toml").write_text("")


def archive(place: Path) -> None:
    """A zipped package that imports a module that lies outside of the archive."""
    write(place, outside="X = 1\n")
    with zipfile.ZipFile(place / "z.zip", "w") as file:
        file.writestr("judge/__init__.py", "from judge.more import *\n" + JUDGE)
        file.writestr("judge/more.py", "def f():\n    import outside\n")


def redirected(place: Path) -> None:
    """A namespace's package that a finder of its own finds, as setuptools' editable installs do."""
    write(
        place, src__deep__init="", src__late="", src__more="",
        sitecustomize="import sys\nfrom importlib.machinery import ModuleSpec, PathFinder\n"
        "from importlib.util import spec_from_file_location\n"
        "class Finder:\n"
        "    @classmethod\n"
        "    def find_spec(cls, name, path=None, target=None):\n"
        "        if name == 'company.judge':\n"
        f"            return spec_from_file_location(name, r'{place}/src/__init__.py',\n"
        f"                submodule_search_locations=[r'{place}/src'])\n"
        "        if name == 'company':\n"
        "            spec = ModuleSpec(name, None, is_package=True)\n"
        "            spec.submodule_search_locations = ['nowhere']\n"
        "            return spec\n"
        "sys.meta_path.append(Finder)\n",
    )  # fmt: skip
    (place / "src" / "__init__.py").write_text(JUDGE)


SAME: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], None]]] = {
    "the class": (package, "judge:Judge", edit("judge/__init__.py")),
    "a helper": (package, "judge:Judge", edit("judge/helper.py", "LIMIT = 2\n")),
    "a comment": (package, "judge:Judge", edit("judge/helper.py", "# a comment\n")),
    "a module imported late": (package, "judge:Judge", edit("judge/late.py")),
    "a module below": (package, "judge:Judge", edit("judge/deep/more.py")),
    "a new module": (package, "judge:Judge", lambda p: write(p, judge__new="")),
    "a module taken away": (package, "judge:Judge", lambda p: (p / "judge/late.py").unlink()),
    "a data file": (package, "judge:Judge", edit("judge/table.json", " ")),
    "a single module": (module, "judge:Judge", edit("judge.py")),
    "a constant beside it": (module, "judge:Judge", edit("helper.py", "LIMIT = 2\n")),
    "a helper's helper": (module, "judge:Judge", edit("below.py")),
    "a helper imported late": (module, "judge:Judge", edit("late.py")),
    "another one imported late": (module, "judge:Judge", edit("other.py")),
    "a base class": (wrapper, "judge:Judge", edit("base.py")),
    "a wrapped reward": (wrapper, "judge:Judge", edit("inner/real.py")),
    "a partial's function": (partial, "judge:Judge", edit("inner.py")),
    "what it closes over": (partial, "judge:Judge", edit("held.py")),
    "a namespace's module": (namespace, "company.judge:Judge", edit("company/judge.py")),
    "a namespace's helper": (namespace, "company.judge:Judge", edit("company/helper.py")),
    "imported after a semicolon": (beside, "judge:Judge", edit("joined.py")),
    "imported on a line of try": (beside, "judge:Judge", edit("tried.py")),
    "import_module of a name": (beside, "judge:Judge", edit("named.py")),
    "__import__ of a name": (beside, "judge:Judge", edit("called.py")),
    "a script it runs": (beside, "judge:Judge", edit("script.txt")),
    "a data file beside it": (beside, "judge:Judge", edit("table.json")),
    "a data file in a folder beside it": (beside, "judge:Judge", edit("lists/short.txt")),
    "a file of another suffix": (beside, "judge:Judge", edit("judge.csv")),
    "a folder of data beside it": (beside, "judge:Judge", edit("tables/deep/one.csv")),
    "a linked folder": (linked, "judge:Judge", edit("elsewhere/table.csv")),
    "a hidden file": (linked, "judge:Judge", edit("judge/.limits.toml")),
    "what an archive imports": (archive, "judge:Judge", edit("outside.py")),
    "behind a finder": (redirected, "company.judge:Judge", edit("src/late.py")),
    "a relative import": (namespace, "company.judge:Judge", edit("company/parts/two.py")),
}


@pytest.mark.one_of(
    4,
    *("a partial's function", "a relative import", "a data file beside it", "a hidden file"),
    *("a base class", "a wrapped reward", "a new module"),
)
@pytest.mark.parametrize(("made", "target", "change"), SAME.values(), ids=SAME)
def test_a_changed_source_is_another_reward(
    made: Callable[[Path], None], target: str, change: Callable[[Path], None], tmp_path: Path
) -> None:
    """The class, what it imports or holds, early or late: any change makes other keys."""
    made(tmp_path)
    before = salt(tmp_path, target)
    assert salt(tmp_path, target) == before
    change(tmp_path)
    assert salt(tmp_path, target) != before


def test_version_and_options_enter(tmp_path: Path) -> None:
    """Also options that a preset gave: they are resolved before."""
    package(tmp_path)
    told = {
        salt(tmp_path), salt(tmp_path, version="2"), salt(tmp_path, options='{"judge.x": 1}'),
        salt(tmp_path, options='{"judge.x": 2}'), salt(tmp_path, options='{"judge.x": "1"}'),
    }  # fmt: skip
    assert len(told) == 5


def test_what_does_not_belong_to_it_does_not_enter(tmp_path: Path) -> None:
    """A module that nothing of it imports, compiled files, the place and the times of files."""
    (tmp_path / "a").mkdir()
    module(tmp_path / "a")
    before = salt(tmp_path / "a")
    edit("stranger.py")(tmp_path / "a")
    (tmp_path / "a" / "__pycache__").mkdir()
    (tmp_path / "a" / "__pycache__" / "judge.cpython-311.pyc").write_bytes(b"old")
    os.utime(tmp_path / "a" / "judge.py", (1, 1))
    (tmp_path / "a").rename(tmp_path / "b")
    assert salt(tmp_path / "b") == before


def test_a_zipped_package_is_its_archive(tmp_path: Path) -> None:
    """Python imports from zip archives too."""
    told = []
    for text in (JUDGE, JUDGE + "X = 1\n"):
        with zipfile.ZipFile(tmp_path / "z.zip", "w") as file:
            file.writestr("judge/__init__.py", text)
        told.append(salt(tmp_path))
    assert told[0] != told[1]
    assert "None" not in told


def test_an_installed_package_counts_by_its_own_files_and_others_versions(tmp_path: Path) -> None:
    """The reward's own package is read also below site-packages; what it imports is not."""
    place = tmp_path / "site-packages"
    place.mkdir()
    package(place)
    (place / "judge" / "__init__.py").write_text("import library\n" + JUDGE)
    write(place, library="")
    before = salt(place)
    edit("library.py")(place)
    assert salt(place) == before
    edit("judge/helper.py")(place)
    assert salt(place) != before


def install(place: Path, name: str, *modules: str, requires: str = "", version: str = "1") -> None:
    """As pip leaves a wheel: modules, metadata, and a RECORD with the digest of each file."""
    info = place / f"{name}-{version}.dist-info"
    for old in place.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    info.mkdir()
    needs = f"Requires-Dist: {requires}\n" if requires else ""
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"
    )
    (info / "top_level.txt").write_text("".join(f"{m}\n" for m in modules))
    files = [f"{m}.py" for m in modules]
    digests = [hashlib.sha256((place / f).read_bytes()).hexdigest() for f in files]
    lines = [f"{f},sha256={d},1\n" for f, d in zip(files, digests, strict=True)]
    (info / "RECORD").write_text("".join(lines))


def test_a_wheel_that_was_built_again_with_the_same_version_is_another(tmp_path: Path) -> None:
    """Each module of the reward's own wheel is read; of others and what they need the RECORD."""
    place = tmp_path / "site-packages"
    write(
        place, judge="import judge_helper, library\n" + JUDGE, judge_helper="X = 1\n",
        library="import below\n", below="",
    )  # fmt: skip
    install(place, "judge", "judge", "judge_helper", requires="library")
    install(place, "library", "library", requires='below (>=1) ; python_version > "3"')
    install(place, "below", "below")
    told = [salt(place)]
    assert salt(place) == told[0]
    edit("judge_helper.py")(place)  # by hand, in the place where pip put it
    told.append(salt(place))
    edit("library.py")(place)
    install(place, "library", "library", requires="below")  # built and installed again
    told.append(salt(place))
    install(place, "below", "below", version="2")  # an upgrade of what a dependency needs
    told.append(salt(place))
    assert len(set(told)) == 4


def test_what_pip_put_into_a_folder_counts_by_its_record(tmp_path: Path) -> None:
    """As `pip install --target` does; sources with metadata alone, as in a clone, are read."""
    write(tmp_path, judge="import library\n" + JUDGE, library="")
    install(tmp_path, "library", "library")
    before = salt(tmp_path)
    edit("library.py")(tmp_path)
    assert salt(tmp_path) == before
    (tmp_path / "library-1.dist-info" / "RECORD").unlink()
    before = salt(tmp_path)
    edit("library.py")(tmp_path)
    assert salt(tmp_path) != before


def test_sources_below_such_a_folder_are_read(tmp_path: Path) -> None:
    """A clone that is imported in place of the package that pip put above it."""
    write(tmp_path, library="")
    install(tmp_path, "library", "library")
    place = tmp_path / "src"
    write(place, judge="import library\n" + JUDGE, library="")
    write(place, sitecustomize=f"import sys; sys.path.append({str(tmp_path)!r})\n")
    before = salt(place)
    edit("library.py")(place)
    assert salt(place) != before


@pytest.mark.parametrize("damage", [b"\xff\xfe\x00", b'"half a quote\n\x80', b"a,b,c,d\n" * 3])
@pytest.mark.parametrize("name", ["RECORD", "METADATA", "top_level.txt"])
def test_a_damaged_record_of_any_distribution_ends_nothing(
    name: str, damage: bytes, tmp_path: Path
) -> None:
    """Neither of what the reward needs nor of a stranger beside it."""
    place = tmp_path / "site-packages"
    write(place, judge="import library\n" + JUDGE, library="")
    write(place, stranger="")
    for one in ("judge", "library", "stranger"):
        install(place, one, one)
    for one in ("library", "stranger"):
        (place / f"{one}-1.dist-info" / "top_level.txt").unlink()
        (place / f"{one}-1.dist-info" / name).write_bytes(damage)
    assert salt(place)


def test_a_class_without_a_source_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """Of what was typed into an interpreter nobody can say that it did not change."""
    made = type("Judge", (), {"__module__": "typed_in"})
    assert salt_of(made(), [], "", {}) is None
    assert "verdicts_not_kept" in capsys.readouterr().err


def test_it_is_read_once_a_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What runs is what was imported; a file that changes later does not change its name."""
    package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    import judge  # type: ignore[import-not-found]

    read: list[Path] = []
    content = reward_sources._content
    monkeypatch.setattr(reward_sources, "_content", lambda path: read.append(path) or content(path))
    before = salt_of(judge.Judge(), ["judge:Judge"], "", {})
    count = len(read)
    edit("judge/helper.py")(tmp_path)
    assert salt_of(judge.Judge(), ["judge:Judge"], "", {}) == before
    assert len(read) == count > 0


def anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is installed is found as by another process."""
    for module, kept in (
        (installed, "distributions"),
        (installed, "_by_name"),
        (reward_sources, "distributions"),
        (reward_sources, "_distribution"),
    ):
        monkeypatch.setattr(module, kept, cache(getattr(module, kept).__wrapped__))


def test_a_distribution_is_found_by_its_name_or_its_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two of a name the first on the path; the folder's name stands in for a missing one."""
    for place, name, version in (
        ("a", "Twice_Here", "1"),
        ("b", "Twice_Here", "2"),
        ("b", "", "3"),
    ):
        info = tmp_path / place / f"{name or 'odd'}-{version}.dist-info"
        info.mkdir(parents=True)
        told = f"Name: {name}\nVersion: {version}\n" if name else ""
        (info / "METADATA").write_text(told)
        (info / "RECORD").write_text(f"{place}_{version}.py,,\n")
    monkeypatch.syspath_prepend(tmp_path / "b")
    monkeypatch.syspath_prepend(tmp_path / "a")
    anew(monkeypatch)

    found = installed.distribution_of("twice-here")
    assert found is not None
    assert found.version == "1"
    assert installed.distribution_of("odd") is not None
    assert installed.distribution_of("absent") is None
    packages = reward_sources._packages.__wrapped__()
    assert packages["a_1"] == packages["b_2"] == ["twice-here"]
    assert "b_3" not in packages


def test_metadata_of_a_distribution_is_read_once_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages that need each other share what is read, and it is the same as read alone."""
    anew(monkeypatch)
    read: list[Any] = []
    recorded = reward_sources._recorded
    monkeypatch.setattr(
        reward_sources, "_recorded", lambda found: read.append(found) or recorded(found)
    )
    unit_of = reward_sources._installed.__wrapped__
    first, second, third = (unit_of(root) for root in ("pytest", "pluggy", "pytest"))

    assert first == third
    assert "pluggy " in first[0]
    assert "pluggy " in second[0]
    assert len(read) == len(set(read)) > 1


@pytest.mark.parametrize(
    "text",
    [
        "Name: a\nVersion: 1\nRequires-Dist: b>=1\nRequires-Dist: c\n\nName: not\n\nmine",
        "Name: a\nVersion: 1\nSummary: two\n  lines\nRequires-Dist: b; x == 'y'\n",
        "\nName: not mine",
        "no header\nName: not mine\n\n",
        "Name: é\nversion: 2\nName: twice\n",
        "",
    ],
)
def test_a_header_is_what_the_whole_text_says(text: str, tmp_path: Path) -> None:
    """Names, versions and needs are those of `importlib.metadata`, whatever a wheel's text is."""
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "a-1.dist-info" / "METADATA").write_text(text)
    made = metadata.PathDistribution(tmp_path / "a-1.dist-info")
    assert [header(made).get(key.lower()) for key in FIELDS] == told(made.metadata)


def test_so_it_is_of_every_wheel_that_is_installed() -> None:
    """Descriptions hold whatever people write; `importlib.metadata` would parse them too."""
    for found in metadata.distributions():
        texts = map(found.read_text, ("METADATA", "PKG-INFO", ""))
        whole = HeaderParser().parsestr(next(filter(None, texts), ""))
        assert [header(found).get(key.lower()) for key in FIELDS] == told(whole), found


FIELDS = ("Name", "Version", "Requires-Dist")


def told(of: Any) -> list[Any]:
    return [of.get_all(key) for key in FIELDS]
