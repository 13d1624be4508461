"""docs/hooks.md and docs/exit-codes.md say what the code says."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from rlvr import Checkpoint, EvalReport, RunInfo, errors, hookspecs
from rlvr.plugins.host import PluginHost
from rlvr.plugins.offers import OFFERS, label

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "hooks.md").read_text(encoding="utf-8")
HOOKS = hookspecs.__all__


def signature(hook):
    """The hook's signature as a person writes it."""
    return f"{hook}{inspect.signature(getattr(hookspecs, hook))}".replace("'", "")


def example(hook):
    """The first Python block below the hook's heading."""
    section = PAGE.partition(f"### `{signature(hook)}`")[2].partition("\n### ")[0]
    return re.search(r"```python\n(.*?)```", section, re.S)[1]


def arguments():
    """One real value for every argument that an announcement has."""
    return {
        "run": RunInfo(
            id="r1",
            directory=Path("runs/r1"),
            plugin="toy",
            algo="grpo",
            model="starter",
            steps=2,
            seed=1,
        ),
        "step": 1,
        "report": EvalReport(
            split="test",
            scores={"a": (1.0,)},
            pass_at={1: 1.0},
            low=0.5,
            high=1.0,
            reward_mean=1.0,
            samples=1,
        ),
        "groups": (),
        "metrics": {"reward/mean": 0.5},
        "checkpoint": Checkpoint(path=Path("runs/r1/checkpoints/1"), step=1),
        "outcome": "done",
        "directory": Path(),
        "entries": {},
        "error": MemoryError(),
    }


@pytest.mark.parametrize("hook", HOOKS)
def test_each_hook_has_a_heading_with_its_exact_signature(hook):
    """A changed signature fails here until the page says so too."""
    assert PAGE.count(f"### `{signature(hook)}`\n") == 1


def test_no_heading_documents_a_hook_that_is_gone():
    """The page has no hook that the code lacks, and keeps the order of a run."""
    documented = re.findall(r"^### `(rlvr_\w+)\(", PAGE, re.M)
    ordered = sorted(HOOKS, key=lambda h: inspect.getsourcelines(getattr(hookspecs, h))[1])

    assert documented == ordered


@pytest.mark.parametrize("hook", HOOKS)
def test_each_example_runs_as_a_plugin(importable_site, hook, capsys):
    """The example, installed as it stands, is loaded, asked or told, and does what it says."""
    name = "doc" + hook.removeprefix("rlvr_").replace("_", "")
    importable_site.add(name, f"RLVR_API = 1\n{example(hook)}")

    host = PluginHost.load({"RLVR_PLUGINS": name})

    status = next(plugin for plugin in host.plugins if plugin.name == name)
    assert (status.status, status.reason) == ("active", "")
    assert status.hooks == (hook,)
    if hook in OFFERS:
        assert [r for r in getattr(host, label(hook))() if r.provider == name]
    elif hook == "rlvr_explain_error":
        assert host.explain_error(MemoryError()).message.startswith("out of memory")
        assert host.explain_error(KeyError()) is None
    else:
        given = arguments()
        wanted = inspect.signature(getattr(hookspecs, hook)).parameters
        failures = host.announce(hook, **{key: given[key] for key in wanted})
        assert [failure for failure in failures if failure[0] == name] == []
        assert capsys.readouterr().out or given["entries"]


def test_every_offering_hook_has_a_typed_method():
    """The host offers each offer; a new hook cannot be forgotten there."""
    offering = {h for h in HOOKS if "Iterable" in signature(h)}

    assert offering == set(OFFERS)
    assert all(callable(getattr(PluginHost, label(hook))) for hook in OFFERS)


def test_exit_codes_are_documented():
    """Each code and each error class stands in the table with its number."""
    page = (DOCS / "exit-codes.md").read_text(encoding="utf-8")

    for code in errors.ExitCode:
        assert re.search(rf"^\| {int(code)} \|", page, re.M), code
    classes = [
        cls
        for _, cls in inspect.getmembers(errors, inspect.isclass)
        if issubclass(cls, errors.RlvrError) and cls is not errors.RlvrError
    ]
    for cls in classes:
        assert re.search(rf"^\| `{cls.__name__}` \|.*\| {int(cls.exit_code)} \|$", page, re.M), cls
