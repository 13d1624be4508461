"""Callbacks on the command line: chosen by name, with options of their own."""

from __future__ import annotations

import json
import shutil

import attrs
import pytest

PLUGIN = """
from attrs import frozen
from rlvr import hookimpl, option
from rlvr import Callback
from rlvr.specs import CallbackSpec

RLVR_API = 1

@hookimpl
def rlvr_callbacks():
    yield CallbackSpec(
        name="diary", target=__name__ + ":Diary", config=__name__ + ":DiaryOptions",
        summary="A line a fact",
    )
    yield CallbackSpec(name="cross", target=__name__ + ":Cross", summary="Fails at all it hears")

@frozen(kw_only=True)
class DiaryOptions:
    word: str = option("heard", "First word of a line")

class Diary(Callback):
    def __init__(self, config, context):
        self.word, self.path = config.word, context.run_dir / "diary.txt"

    async def __aenter__(self):
        self.write("opened")
        return self

    async def __aexit__(self, *error):
        self.write("closed")

    def write(self, what):
        with self.path.open("a") as file:
            file.write(f"{self.word} {what}\\n")

    def run_started(self, run): self.write("run_started")
    def evaluated(self, run, step, report): self.write(f"evaluated {step}")
    def groups_scored(self, run, step, groups): self.write(f"groups_scored {step} {len(groups)}")
    def step_finished(self, run, step, metrics): self.write(f"step_finished {step}")
    def checkpoint_saved(self, run, checkpoint): self.write(f"saved {checkpoint.step}")
    def run_finished(self, run, outcome): self.write(f"run_finished {outcome}")

class Cross(Callback):
    def __init__(self, config, context):
        pass

    def step_finished(self, run, step, metrics):
        raise ValueError("no network")
"""
SMALL = ("train.problems=2", "sampler.group_size=2", "eval.samples=1", "eval.problems=1")


@pytest.fixture
def site(plugin_site):
    """A site with a plugin that offers two callbacks."""
    plugin_site.add("noted", PLUGIN)
    return attrs.evolve(plugin_site, options={"RLVR_VERIFY__STORE": "off"})


def trained(site, *words):
    """A run of one step on the toy."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
    done = site.rlvr("run", "--plugin", "toy", "--steps", "1", "--out", "here", *SMALL, *words)
    assert done.returncode == 0, done.stderr
    return done


def test_a_run_tells_its_callbacks_everything_and_closes_them_last(site):
    """In the order of a run, with the callback's own option; the default one is not asked."""
    trained(site, "--callback", "diary", "--word", "noted")

    lines = (site.home / "here" / "diary.txt").read_text().splitlines()
    assert lines == [
        f"noted {what}"
        for what in (
            *("opened", "run_started", "evaluated 0", "groups_scored 1 2", "step_finished 1"),
            *("saved 1", "evaluated 1", "run_finished done", "closed"),
        )
    ]
    assert not (site.home / "here" / "curve.png").exists()


def test_a_failing_callback_ends_nothing_and_is_named(site):
    """The others are told, the log names plugin and callback, the run is done."""
    done = trained(site, "--callback", "cross,diary")

    diary = (site.home / "here" / "diary.txt").read_text()
    assert "heard run_finished done" in diary
    assert "plugin 'noted', callback 'cross'" in done.stderr


def test_a_resumed_run_may_have_other_callbacks(site):
    """They decide nothing that is trained."""
    trained(site, "--callback", "diary", "diary.word=noted")
    again = site.rlvr("run", "--resume", "here", "--steps", "2", "--callback", "none")
    other = site.rlvr("run", "--resume", "here", "--steps", "3", "--callback", "diary")

    assert again.returncode == 0, again.stderr
    assert other.returncode == 0, other.stderr
    record = json.loads((site.home / "here" / "run.json").read_text())
    assert record["config"]["run.callbacks"] == ["diary"]
    assert "run_finished" in (site.home / "here" / "diary.txt").read_text()


def test_a_resume_goes_on_with_what_the_one_before_changed(site):
    """Callbacks, their options, and the number of steps are those of the last command."""
    trained(site, "--callback", "none")
    added = ("--steps", "3", "--callback", "diary", "diary.word=noted")
    assert site.rlvr("run", "--resume", "here", *added).returncode == 0
    shutil.rmtree(site.home / "here" / "checkpoints" / "step-000003")

    done = site.rlvr("run", "--resume", "here")

    assert done.returncode == 0, done.stderr
    lines = (site.home / "here" / "diary.txt").read_text().splitlines()
    assert lines.count("noted step_finished 3") == 2
    record = json.loads((site.home / "here" / "run.json").read_text())
    assert (record["config"]["run.steps"], record["config"]["diary.word"]) == (3, "noted")
    assert record["origin"]["diary.word"] == "command line"


def test_the_curve_is_drawn_by_default_where_its_options_say(site):
    """`curve.png` of 880 x 495 pixels; another name and size if asked."""
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    usual = trained(site)
    whole = (site.home / "here" / "curve.png").read_bytes()
    done = site.rlvr(
        *("run", "--resume", "here", "--steps", "2", "--json"),
        *("curve.file=small.png", "curve.width=4", "curve.height=2", "curve.dpi=100"),
    )

    assert "here/curve.png" in usual.stdout
    assert _size(whole) == (880, 495)
    assert done.returncode == 0, done.stderr
    assert _size((site.home / "here" / "small.png").read_bytes()) == (400, 200)
    assert json.loads(done.stdout)["curve"].endswith("here/small.png")


def _size(png):
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_config_show_help_and_plugins_know_callbacks(site):
    """Their options, where they came from, and what a plugin offers."""
    lonely = {"RLVR_PLUGINS": "builtin,noted"}
    rows = site.rlvr("config", "show", "--callback", "diary", "--word", "x", "--json", **lonely)
    none = site.rlvr("config", "show", "run.callbacks=", "--json", **lonely)
    wrong = site.rlvr("config", "show", "--callback", "dairy", **lonely)
    shown = site.rlvr("plugins", "show", "noted", **lonely)
    listed = site.rlvr("plugins", "list", "--hook", "rlvr_callbacks", **lonely)
    helped = site.rlvr("run", "--plugin", "toy", "--callback", "diary", "--help", **lonely)

    found = {r["key"]: (r["value"], r["origin"]) for r in json.loads(rows.stdout)}
    assert found["run.callbacks"] == (["diary"], "command line")
    assert found["diary.word"] == ("x", "command line")
    assert "curve.file" not in found
    assert not [r for r in json.loads(none.stdout) if r["key"].startswith(("curve.", "diary."))]
    assert wrong.returncode == 3
    assert "did you mean 'diary'?" in wrong.stderr
    assert "diary.word = heard" in shown.stdout
    assert "noted" in listed.stdout
    assert "diary.word, --word" in helped.stdout
