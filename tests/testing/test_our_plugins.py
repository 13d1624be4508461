"""Every plugin of this repository keeps its promises: by its own suite, or by `plugins check`."""

from __future__ import annotations

import json
import os
import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import run_rlvr

from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from tests.conftest import LEAN

pytestmark = [pytest.mark.slow, pytest.mark.integration, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
PROJECTS = {
    name: (project["name"], module, path.parent)
    for pattern in ("pyproject.toml", "plugins/*/pyproject.toml", "rlvr-*/pyproject.toml",
                    "examples/*/pyproject.toml")
    for path in sorted(ROOT.glob(pattern))
    for project in [tomllib.loads(path.read_text("utf-8"))["project"]]
    for name, module in project.get("entry-points", {}).get("rlvr", {}).items()
}  # fmt: skip
OWN = {"algos", "chess", "cvdp", "rtx4090", "servers", "tinker", "torch", "trackers"}
"""Plugins whose own suites run the contract kit on each of their parts."""
WORDS = {
    "distill": ["distill.teacher=gpt2:there"],
    "household": ["house.train=32", "house.test=32"],
    "sad": ["--dataset", "logs.jsonl"],
}
"""What a person gives the parts that ask for something."""
REFUSED = {
    "builtin": {"curriculum strength"},
    "cvdp": {"sampler agent", "backend agent"},
    "rtx4090": {"backend rtx4090"},
    "sad": {"reward recorded", "sampler replay", "teacher file"},
    "servers": {
        *(f"sampler {name}" for name in ("chat", "vllm", "sglang", "openai")),
        *(f"backend {name}" for name in ("server", "vllm", "sglang", "openai")),
        *(f"teacher {name}" for name in ("server", "vllm", "sglang")),
    },
    "tinker": {"backend tinker", "teacher tinker"},
}
"""Parts that need a server, a card, an image or a log of their own: their own tests hold them."""


def _installed(name: str, module: str, folder: Path, site: Path) -> dict[str, str]:
    """The environment in which the distribution is installed; an example is put there as by pip."""
    environment = {**os.environ, **LEAN}
    try:
        distribution(name)
    except PackageNotFoundError:
        if folder.parent.name != "examples":
            pytest.skip(f"{name} is not installed")
        info = site / f"{name.replace('-', '_')}-0.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
        (info / "entry_points.txt").write_text(f"[rlvr]\n{folder.name[5:]} = {module}\n")
        environment["PYTHONPATH"] = os.pathsep.join([str(site), str(folder)])
    return environment


@pytest.mark.parametrize("plugin", [name for name in PROJECTS if name not in OWN])
def test_it_keeps_its_promises(plugin: str, tmp_path: Path) -> None:
    """Every part that can be checked here holds every promise; what refuses is known."""
    turns = [
        [{"role": "user", "content": f"{n}?"}, {"role": "assistant", "content": f"> {n}\nyes"}]
        for n in range(12)
    ]
    lines = [json.dumps({"messages": messages}) for messages in turns]
    (tmp_path / "logs.jsonl").write_text("\n".join(lines))
    environment = _installed(*PROJECTS[plugin], tmp_path)
    places = {name: str(tmp_path / name) for name in ("RLVR_CACHE_DIR", "TRACKIO_DIR")}
    words = ["plugins", "check", plugin, "--json", *WORDS.get(plugin, [])]

    done = run_rlvr(*words, cwd=tmp_path, env=environment | places, timeout_s=540)

    if done.returncode == 4 and not done.stdout:
        pytest.skip(done.stderr.strip().replace("\n", " "))
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["findings"] == []
    assert set(report["refused"].values()) <= REFUSED.get(plugin, set())
    wanted = 2 if report["refusing"] else 4 if report["is_missing_something"] else 0
    assert done.returncode == wanted, done.stderr
    left = {path.name for path in tmp_path.iterdir() if path.suffix != ".dist-info"}
    assert left <= {"logs.jsonl", *places}, "a check leaves nothing in the folder"
    held = {part for part, counts in report["counts"].items() if counts.get("hold")}
    assert held >= report["counts"].keys() - set(report["refused"].values())


@pytest.mark.parametrize("plugin", sorted(OWN))
def test_its_own_suite_runs_the_kit(plugin: str) -> None:
    """On the plugin itself and on each kind of part that can be built here."""
    name, module, folder = PROJECTS[plugin]
    _installed(name, module, folder, folder)
    parts = [spec for spec in Registry(PluginHost.load()).parts() if spec.provider == plugin]
    kinds = {s.kind for s in parts if f"{s.kind} {s.name}" not in REFUSED.get(plugin, set())}

    code = "\n".join(file.read_text("utf-8") for file in folder.rglob("test_*.py"))
    run = set(re.findall(r"^class \w+\((\w+)Contract\):$", code, re.MULTILINE))
    assert run >= {"Plugin", *map(str.capitalize, kinds)}


def test_none_is_forgotten() -> None:
    """The plugins come from the projects' files; those named above are among them."""
    assert len(PROJECTS) >= 16
    assert PROJECTS.keys() >= {*OWN, *WORDS, *REFUSED, "countdown"}
