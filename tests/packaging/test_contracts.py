"""The import contracts and the checks' configuration cover everything that there is."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TESTING = "testing"
"""The one module besides the door that plugins may import."""


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _packages() -> dict[str, Path]:
    """Import name to folder, of every plugin distribution of the workspace."""
    found = [*ROOT.glob("rlvr-*/pyproject.toml"), *ROOT.glob("plugins/*/pyproject.toml")]
    return {path.parent.name.replace("-", "_"): path.parent for path in found}


def test_every_module_of_the_core_is_behind_the_door() -> None:
    """Plugins import `rlvr` and `rlvr.testing`; a new module of the core is forbidden to them."""
    core = ROOT / "core" / "rlvr"
    modules = {p.stem for p in core.glob("*.py")} | {p.parent.name for p in core.glob("*/*.py")}
    (contract,) = [
        c for c in _project()["tool"]["importlinter"]["contracts"] if c["id"] == "public-door"
    ]

    forbidden = {name.removeprefix("rlvr.") for name in contract["forbidden_modules"]}

    assert modules - {"__init__", TESTING} == forbidden


def test_every_plugin_is_under_contract() -> None:
    """Each distribution of the workspace is in every contract, type-checked and tested."""
    tool = _project()["tool"]
    packages = _packages()
    contracts = {c["id"]: c for c in tool["importlinter"]["contracts"]}

    assert packages
    assert set(packages) == set(tool["importlinter"]["root_packages"]) - {"rlvr"}
    assert set(packages) == set(contracts["public-door"]["source_modules"])
    assert set(packages) == set(contracts["domains-are-strangers"]["modules"])
    assert set(packages) <= set(contracts["core-stands-alone"]["forbidden_modules"])
    assert set(packages) <= set(tool["mypy"]["packages"])
    for folder in packages.values():
        tests = str((folder / "tests").relative_to(ROOT))
        assert tests in tool["pytest"]["ini_options"]["testpaths"]


def test_every_package_has_floors() -> None:
    """All its rooms and modules stand on a floor, so that a new one has to be given its own."""
    contracts = _project()["tool"]["importlinter"]["contracts"]
    floors = [c for c in contracts if c["type"] == "layers"]

    assert {name for c in floors for name in c["containers"]} == {"rlvr", *_packages()}
    assert [c["id"] for c in floors if not c.get("exhaustive")] == []


def test_only_rlvr_chess_takes_what_is_gpl() -> None:
    """python-chess is GPL-3.0-or-later: one distribution depends on it, and a contract holds it."""
    packages = _packages()
    contracts = {c["id"]: c for c in _project()["tool"]["importlinter"]["contracts"]}
    contract = contracts["chess-alone-takes-gpl"]

    assert contract["forbidden_modules"] == ["chess"]
    assert set(contract["source_modules"]) == {"rlvr", *packages} - {"rlvr_chess"}
    for name, folder in {"rlvr": ROOT, **packages}.items():
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        needs = [re.match(r"[\w-]+", need) for need in project["dependencies"]]
        takes = "chess" in {match[0] for match in needs if match}
        assert takes == (name == "rlvr_chess"), name
        assert ("GPL" in project["license"]) == takes, name


def test_each_distribution_has_its_pages() -> None:
    """A README with content, whose links lead somewhere on a package index too, and a CHANGELOG."""
    for folder in (ROOT, *_packages().values()):
        project = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]
        readme = (folder / project["readme"]).read_text("utf-8")
        assert len(readme) > 200, folder.name
        assert not re.findall(r"\]\((?!https:)[^)]*", readme), folder.name
        assert "##" in (folder / "CHANGELOG.md").read_text("utf-8"), folder.name


def test_each_ignored_rule_has_its_reason() -> None:
    """A lint rule that is switched off says why on the same line."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    section = text[text.index("[tool.ruff.lint]") : text.index("[tool.ruff.lint.isort]")]

    rules = [line for line in section.splitlines() if re.match(r'\s*"[A-Z]+\d+"', line)]
    assert rules
    assert not [line for line in rules if "#" not in line]
