"""The generated pages are current."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlvr.cli.main import COMMANDS
from rlvr.cli.reference import main, pages
from rlvr.config.schema import options_of
from rlvr.plugins.controls import BUILTIN
from rlvr.plugins.discovery import discover
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import PLUGINS
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def _all_installed(monkeypatch):
    missing = set(PLUGINS.values()) - {found.distribution for found in discover()}
    if missing:
        pytest.skip(f"the reference covers plugins that are not installed here: {sorted(missing)}")
    monkeypatch.setenv("COLUMNS", "100")  # restored afterwards: the generator sets it


@pytest.mark.usefixtures("_all_installed")
def test_the_generated_pages_are_current(capsys):
    """docs/cli.md and docs/configuration.md are what the code would write."""
    assert main(["--check", "--docs", str(DOCS)]) == 0, capsys.readouterr().out


@pytest.mark.usefixtures("_all_installed")
def test_check_notices_a_difference(tmp_path, capsys):
    """A stale page fails the check, is named, and is mended without --check."""
    assert main(["--docs", str(tmp_path)]) == 0
    (tmp_path / "cli.md").write_text("old", encoding="utf-8")

    assert main(["--check", "--docs", str(tmp_path)]) == 1
    assert "out of date: cli.md" in capsys.readouterr().out
    assert (tmp_path / "cli.md").read_text(encoding="utf-8") == "old"
    assert main(["--docs", str(tmp_path)]) == 0
    assert main(["--check", "--docs", str(tmp_path)]) == 0


@pytest.mark.usefixtures("_all_installed")
def test_every_command_has_a_section():
    """No command is left out; the flags that all have are told once."""
    page = pages()["cli.md"]

    assert all(f"## `rlvr {command}`" in page for command in COMMANDS)
    assert page.count("common flags:") == page.count("  --debug ") == 1


@pytest.mark.usefixtures("_all_installed")
def test_no_two_headings_of_options_are_the_same():
    """Parts that share a namespace are told apart by their names."""
    headings = re.findall(r"^##+ .*$", pages()["configuration.md"], re.MULTILINE)

    assert "### `curriculum` of difficulty" in headings
    assert [h for h in headings if headings.count(h) > 1] == []


@pytest.mark.usefixtures("_all_installed")
def test_an_option_that_several_parts_have_is_explained_once():
    """Other parts name theirs, with a link to the explanation; none is left out."""
    page = pages()["configuration.md"]
    host = PluginHost.load({})

    for spec in Registry(host).parts():
        if spec.config is not None and spec.provider in {BUILTIN, *PLUGINS}:
            config = load_object(spec.config, spec.provider)
            assert all(f"`{key}`" in page for key in options_of({spec.option_namespace: config}))
    assert page.count("\n| `torch.device` |") == page.count("\n| `advantage.clip` |") == 1
    assert "\n| `gspo.kl_coef` |" not in page
    assert "none, tis-\\*, mis-\\* (token" in page  # asterisks, not italics
    assert "As under [`grpo`](#grpo): `gspo.kl_coef`, `gspo.kl_estimator`" in page
    assert "| meaning |\n| --- | --- | --- | --- |\n\n" not in page  # a table without a row
