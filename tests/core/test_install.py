"""The install line works for how rlvr itself, or the distribution, was installed."""

from __future__ import annotations

import importlib.util
import json
import shlex
import sys
import sysconfig
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr import pip_install
from rlvr.install import FOLDERS, rlvr_command

ROOT = Path(__file__).parents[2]
Installed = Callable[..., None]
STDLIB = [
    path
    for path in sys.path
    if path.startswith(sysconfig.get_path("stdlib")) and not path.endswith("-packages")
]


def line(*requirements: str, **flags: bool) -> list[str]:
    """The words behind `pip install`."""
    words = shlex.split(pip_install(*requirements, **flags))
    return words[words.index("install") + 1 :]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Installed:
    """Say how a distribution was installed; only what a test says is installed."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setattr(sys, "path", [str(site), *STDLIB])  # importlib.metadata imports late

    def made(
        name: str, origin: Any = None, *, installer: str = "pip", requires: tuple[str, ...] = ()
    ) -> None:
        info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
        info.mkdir()
        needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n{needs}"
        )
        (info / "INSTALLER").write_text(f"{installer}\n")
        if origin is not None:
            text = origin if isinstance(origin, str) else json.dumps(origin)
            (info / "direct_url.json").write_text(text)

    return made


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """The repository's folders, with what their projects need."""
    root = tmp_path / "a clone"
    needs = {
        "rlvr-torch": ('dependencies = ["rlvr>=0.1"]', 'hf = ["transformers"]'),
        "rlvr-tinker-server": ('dependencies = ["rlvr>=0.1", "rlvr-torch>=0.1,<0.2"]', ""),
    }
    for name, folder in FOLDERS.items():
        dependencies, extra = needs.get(name, ("dependencies = []", ""))
        path = root / folder
        path.mkdir(parents=True, exist_ok=True)
        (path / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\n{dependencies}\n'
            f"[project.optional-dependencies]\n{extra}\n"
        )
    return root


def editable(path: Path) -> dict[str, Any]:
    return {"url": path.as_uri(), "dir_info": {"editable": True}}


def test_every_distribution_of_the_project_has_its_folder() -> None:
    """The folders that are named exist and hold the distribution of that name."""
    found = {
        path.parent.relative_to(ROOT).as_posix()
        for pattern in ("pyproject.toml", "plugins/*/pyproject.toml", "rlvr-*/pyproject.toml")
        for path in ROOT.glob(pattern)
    }

    assert set(FOLDERS.values()) == found
    for name, folder in FOLDERS.items():
        assert f'name = "{name}"' in (ROOT / folder / "pyproject.toml").read_text()


def test_from_a_clone(installed: Installed, clone: Path) -> None:
    """Editable, by path, extras included; a reinstallation and an upgrade need no more."""
    installed("rlvr", editable(clone))

    torch = f"{clone}/plugins/rlvr-torch"
    assert line("rlvr-torch") == ["-e", torch]
    assert line("rlvr-torch[hf]") == ["-e", f"{torch}[hf]"]
    assert line("rlvr[plot]") == ["-e", f"{clone}[plot]"]
    assert line("rlvr-torch", reinstall=True) == line("rlvr-torch", upgrade=True) == ["-e", torch]
    assert line("Rlvr_Torch") == ["-e", torch]


def test_what_is_needed_besides_comes_along(installed: Installed, clone: Path) -> None:
    """What needs another distribution of ours installs that one from the clone too."""
    installed("rlvr", editable(clone))
    both = ["-e", f"{clone}/plugins/rlvr-tinker-server", "-e", f"{clone}/plugins/rlvr-torch"]

    assert line("rlvr-tinker-server") == both
    assert line("rlvr-tinker") == ["-e", f"{clone}/plugins/rlvr-tinker"]
    installed("rlvr-torch", editable(clone / "plugins" / "rlvr-torch"))
    assert line("rlvr-tinker-server") == both[:2]


def test_from_a_folder_that_was_installed_for_good(installed: Installed, clone: Path) -> None:
    """`pip install PATH`: the same without -e."""
    installed("rlvr", {"url": clone.as_uri(), "dir_info": {}})

    assert line("rlvr-chess") == [f"{clone}/rlvr-chess"]


def test_a_clone_that_was_moved_is_not_named(installed: Installed, tmp_path: Path) -> None:
    """A path that is no more helps nobody: the name is left."""
    installed("rlvr", editable(tmp_path / "gone"))

    assert line("rlvr-torch") == ["rlvr-torch"]


@pytest.mark.parametrize("ending", ["-py3-none-any.whl", ".tar.gz"])
def test_from_wheels_or_sdists_in_a_folder(
    installed: Installed, tmp_path: Path, ending: str
) -> None:
    """The folder is where pip looks, for those that it holds; the others go by their name."""
    wheels = tmp_path / "my wheels"
    wheels.mkdir()
    for name in ("rlvr", "rlvr_torch", "rlvr_algos"):
        (wheels / f"{name}-0.1.0{ending}").touch()
    where = (wheels / f"rlvr-0.1.0{ending}").as_uri()
    installed("rlvr", {"url": where, "archive_info": {"hash": "sha256=0"}})

    assert line("rlvr-torch[hf]") == ["--find-links", str(wheels), "rlvr-torch[hf]"]
    both = ["--find-links", str(wheels), "rlvr-algos", "rlvr-torch"]
    assert line("rlvr-algos", "rlvr-torch") == both
    assert line("rlvr-chess") == ["rlvr-chess"]
    assert line("rlvr-torch", reinstall=True)[0] == "--force-reinstall"


def test_from_a_repository(installed: Installed) -> None:
    """`pip install git+URL`: the same commit, and the folder in it."""
    vcs = {"vcs": "git", "commit_id": "abc123", "requested_revision": "main"}
    installed("rlvr", {"url": "https://example.org/rlvr.git", "vcs_info": vcs})

    (word,) = line("rlvr-torch[hf]")
    assert word == (
        "rlvr-torch[hf] @ git+https://example.org/rlvr.git@abc123#subdirectory=plugins/rlvr-torch"
    )
    assert line("rlvr[plot]") == ["rlvr[plot] @ git+https://example.org/rlvr.git@abc123"]
    assert line("rlvr-torch", reinstall=True)[:2] == ["--force-reinstall", "--no-deps"]


def test_from_an_address_of_wheels(installed: Installed) -> None:
    """`pip install https://.../rlvr.whl`: pip looks beside it."""
    url = "https://example.org/wheels/rlvr-0.1.0-py3-none-any.whl"
    installed("rlvr", {"url": url, "archive_info": {}})

    assert line("rlvr-torch") == ["--find-links", "https://example.org/wheels", "rlvr-torch"]


@pytest.mark.parametrize("origin", [None, "", "{", "[]", "null", "{}"])
def test_from_an_index(installed: Installed, origin: Any) -> None:
    """No record of another place, or one that cannot be read: the name."""
    installed("rlvr", origin)

    assert line("rlvr-torch[hf]")[-1] == "rlvr-torch[hf]"
    assert not any(word == "-e" for word in line("rlvr-torch"))


def test_an_installed_plugin_goes_by_its_own_origin(installed: Installed, clone: Path) -> None:
    """A third party's plugin under development is installed again from its own folder."""
    own = clone / "rlvr-chess"
    installed("rlvr", None)
    installed("their-plugin", editable(own))
    installed("other-plugin")

    assert line("their-plugin", reinstall=True) == ["-e", str(own)]
    assert line("other-plugin", reinstall=True) == ["--force-reinstall", "other-plugin"]
    assert line("other-plugin", upgrade=True) == ["--upgrade", "other-plugin"]


def test_strangers_go_by_their_name(installed: Installed, clone: Path) -> None:
    """VLLM and others are on an index, wherever rlvr came from."""
    installed("rlvr", editable(clone))

    assert line("vllm") == ["vllm"]
    assert line("tinker==0.38.*") == ["tinker==0.38.*"]


def test_a_clone_that_nobody_installed(installed: Installed) -> None:
    """On PYTHONPATH alone: the folders of the clone, and rlvr itself, which it needs."""
    assert line("rlvr-torch") == ["-e", str(ROOT / "plugins" / "rlvr-torch"), "-e", str(ROOT)]


def find_spec(monkeypatch: pytest.MonkeyPatch, found: object) -> None:
    finder = types.SimpleNamespace(find_spec=lambda name: found)
    monkeypatch.setattr("rlvr.install.PathFinder", finder)


def test_a_finder_that_warns_is_not_asked_for_pip(
    installed: Installed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of setuptools does before Python 3.12, where distutils was imported."""

    class Finder:
        def find_spec(self, *_: object) -> None:
            warnings.warn("Setuptools is replacing distutils", UserWarning, stacklevel=1)

    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    with pytest.warns(UserWarning, match="distutils"):
        importlib.util.find_spec("pip")
    assert pip_install("x").endswith("install x")


def test_the_pip_of_this_environment_is_meant(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By name where the shell finds it, else through this Python: another's is not meant."""
    here = Path(sys.executable).parent
    find_spec(monkeypatch, object())
    monkeypatch.setattr("shutil.which", lambda name: str(here / name))
    assert pip_install("x") == "pip install x"
    for found in (str(tmp_path / "pip"), None):
        monkeypatch.setattr("shutil.which", lambda name, found=found: found)
        assert pip_install("x") == f"{shlex.quote(sys.executable)} -m pip install x"


def test_where_uv_installed_rlvr_and_there_is_no_pip(
    installed: Installed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Uv makes environments without pip; a pip that the shell finds belongs to another one."""
    installed("rlvr", None, installer="uv")
    monkeypatch.setattr("shutil.which", lambda name: str(tmp_path / name))
    find_spec(monkeypatch, None)
    assert pip_install("x") == f"uv pip install --python {shlex.quote(sys.executable)} x"
    find_spec(monkeypatch, object())
    assert pip_install("x") == f"{shlex.quote(sys.executable)} -m pip install x"


@pytest.mark.parametrize(("prefix", "installer"), [("usr", "pip"), ("usr", "uv"), ("venv", "pip")])
def test_in_the_python_of_an_operating_system(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    prefix: str, installer: str,
) -> None:  # fmt: skip
    """PEP 668: pip and uv refuse to install there without the flag; an environment needs none."""
    installed("rlvr", installer=installer)
    monkeypatch.setattr(sys, "prefix", prefix)
    monkeypatch.setattr(sys, "base_prefix", "usr")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    (tmp_path / "EXTERNALLY-MANAGED").touch()

    command = pip_install("rlvr-algos")

    assert command.endswith("rlvr-algos")
    assert ("install --break-system-packages" in command) == (prefix == "usr")
    assert command.startswith("uv pip") == (installer == "uv")


def test_where_pipx_installed_rlvr(
    installed: Installed, clone: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Pipx is asked for the pip of its environment: the shell finds only the command `rlvr`."""
    (tmp_path / "rlvr-next").mkdir()
    (tmp_path / "rlvr-next" / "pipx_metadata.json").touch()
    monkeypatch.setattr("sys.prefix", str(tmp_path / "rlvr-next"))
    installed("rlvr", editable(clone))

    where = shlex.quote(str(clone / "rlvr-chess"))
    assert pip_install("rlvr-chess") == f"pipx runpip rlvr-next install -e {where}"


def test_no_message_writes_the_command_by_hand() -> None:
    """Every `pip install` in the code is made by `pip_install`; docstrings may name it."""
    import ast

    folders = [ROOT / "core", *ROOT.glob("plugins/*/rlvr_*"), *ROOT.glob("rlvr-*/rlvr_*")]
    by_hand = []
    for path in (p for folder in folders for p in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "pip" not in text or "install" not in text:
            continue
        tree = ast.parse(text)
        docs = {
            id(node.body[0].value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and node.body
            and isinstance(node.body[0], ast.Expr)
        }
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
            if is_text and id(node) not in docs and "pip install" in node.value:
                by_hand.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    allowed = {
        "core/rlvr/install.py",
        # told to a client elsewhere
        "plugins/rlvr-tinker-server/rlvr_tinker_server/api/handlers.py",
    }
    assert {place.partition(":")[0] for place in by_hand} <= allowed, by_hand


def test_a_command_of_ours_can_be_pasted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By its name where the shell finds this rlvr, else by its path; words with spaces quoted."""
    python, rlvr = (tmp_path / "env/bin" / name for name in ("python", "rlvr"))
    rlvr.parent.mkdir(parents=True)
    rlvr.write_text("#!/bin/sh\n")
    rlvr.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    assert rlvr_command("run", "--resume", "my runs/r") == "env/bin/rlvr run --resume 'my runs/r'"
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    assert rlvr_command("run") == f"{rlvr} run"
    monkeypatch.setenv("PATH", str(rlvr.parent))
    assert rlvr_command("run") == "rlvr run"
