"""The small plugin type-checks, loads and does what it offers."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlvr import BuildContext
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object

SOURCE = Path(__file__).with_name("small_plugin.py")


@pytest.mark.serial
@pytest.mark.slow
def test_it_type_checks_under_strict():
    """A plugin that uses the public types as documented passes mypy --strict."""
    pytest.importorskip("mypy", reason="mypy is not installed")

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(SOURCE)],
        cwd=SOURCE.parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    assert done.returncode == 0, done.stdout


def test_its_parts_work_together(importable_site):
    """The references earn the top reward, through the same doors as any plugin's."""
    importable_site.add("sums", SOURCE.read_text(encoding="utf-8"))
    registry = Registry(PluginHost.load({"RLVR_PLUGINS": "sums"}))
    task_spec = registry.default_task("sums")
    reward_spec = registry.find("reward", task_spec.reward)
    config = load_object(task_spec.config, "sums")()
    task = load_object(task_spec.target, "sums")(config, BuildContext())
    reward = load_object(reward_spec.target, "sums")(None, BuildContext())

    outcomes = [asyncio.run(reward(p, task.reference(p))) for p in task.problems("test")]

    assert [outcome.value for outcome in outcomes] == [1.0] * 10


def test_its_curriculum_orders_its_problems(importable_site):
    """Chosen by name and built like any part; the first step has small sums only."""
    importable_site.add("sums", SOURCE.read_text(encoding="utf-8"))
    registry = Registry(PluginHost.load({"RLVR_PLUGINS": "sums"}))
    task_spec = registry.default_task("sums")
    task = load_object(task_spec.target, "sums")(
        load_object(task_spec.config, "sums")(), BuildContext()
    )
    spec = registry.find("curriculum", "small-first")
    curriculum = load_object(spec.target, "sums")(
        load_object(spec.config, "sums")(ramp_steps=10), BuildContext()
    )
    problems = list(task.problems("train"))

    def sums(step):
        chosen = curriculum.choose(problems, 20, seed=1, step=step, history={})
        return [problem.payload for problem in chosen]

    assert max(sums(0)) < 10
    assert max(sums(10)) >= 10


def test_its_command_and_check_run(plugin_site):
    """`rlvr sums add 1 2` and `rlvr doctor --plugin sums`."""
    plugin_site.add("sums", SOURCE.read_text(encoding="utf-8"))

    added = plugin_site.rlvr("sums", "add", "1", "2")
    checked = plugin_site.rlvr("doctor", "--plugin", "sums", "--json")

    assert (added.returncode, added.stdout) == (0, "3\n")
    assert json.loads(checked.stdout)["ok"]
