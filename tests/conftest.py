"""Fixtures of the tests across packages."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from attrs import frozen
from rlvr_process import run_rlvr

LEAN = {"RLVR_RUN__CALLBACKS": "none", "RLVR_VERIFY__STORE": "off"}
"""
Options for a command in a process of its own, which no test of a curve or of kept verdicts needs.

To draw the curve and to read the reward's source take longer than all else that a short run does.
"""


@frozen
class PluginSite:
    """
    A folder on the import path that holds plugins as pip would have installed them.

    Each has a real `dist-info` folder with a real entry point; nothing is patched. Its commands
    have `options` in their environment.
    """

    path: Path
    home: Path
    options: Mapping[str, str] = LEAN

    def add(
        self,
        name: str,
        source: str,
        *,
        distribution: str | None = None,
        version: str = "1.0",
        module: str | None = None,
    ) -> Path:
        """Install a plugin whose module holds `source`; returns the module's file."""
        distribution = distribution or f"rlvr-{name}"
        module = module or f"site_{distribution.replace('-', '_')}_{name}"
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata, encoding="utf-8")
        entry = f"[rlvr]\n{name} = {module}\n"
        (info / "entry_points.txt").write_text(entry, encoding="utf-8")
        file = self.path / f"{module}.py"
        file.write_text(textwrap.dedent(source), encoding="utf-8")
        return file

    def rlvr(self, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
        """Run the command line in a process of its own; `environ` adds variables."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith("RLVR_")}
        kept["PYTHONPATH"] = str(self.path)
        kept["RLVR_CACHE_DIR"] = str(self.home / "cache")
        kept["COLUMNS"] = "100"
        kept |= self.options
        return run_rlvr(*words, cwd=self.home, env={**kept, **environ}, timeout_s=120)


@pytest.fixture
def plugin_site(tmp_path: Path) -> PluginSite:
    """An empty site folder and an empty working directory."""
    site, home = tmp_path / "site", tmp_path / "home"
    site.mkdir()
    home.mkdir()
    return PluginSite(site, home)


@pytest.fixture
def importable_site(
    plugin_site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PluginSite]:
    """The same, on the import path of this very process; its modules are forgotten afterwards."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(plugin_site.path)
    yield plugin_site
    for name in set(sys.modules) - before:
        if name.startswith("site_"):
            del sys.modules[name]
