"""A run that is refused leaves nothing behind, unless it has written something worth keeping."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr import RunInterruptedError
from rlvr.cli.main import main
from rlvr.training import session
from tests.conftest import PluginSite

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

PLUGIN = """
import os
from pathlib import Path
import rlvr
from rlvr import hookimpl
from rlvr.builtin.toy import ToyConfig, ToyReward, ToyTask
from rlvr.specs import *

RLVR_API = rlvr.API_VERSION

def told(name):
    return os.environ.get(name, "")

@hookimpl
def rlvr_tasks():
    yield TaskSpec(name="picky", target=__name__ + ":Task", reward="picky",
                   starter="rlvr.builtin.toy:starter")

@hookimpl
def rlvr_rewards():
    yield RewardSpec(name="picky", target=__name__ + ":Judge")

@hookimpl
def rlvr_callbacks():
    yield CallbackSpec(name="picky", target=__name__ + ":Watch", summary="it")

def at(moment):
    if told("WHEN") == moment:
        raise getattr(rlvr, told("ERROR"))("asked.", "found: " + moment, "do")

class Task(ToyTask):
    def __init__(self, config, context):
        at("task")
        super().__init__(ToyConfig(), context)

    def problems(self, split):
        at("problems")
        return super().problems(split)

    def episode(self, problem):
        at("episode")
        return super().episode(problem)

class Judge(ToyReward):
    def __init__(self, config, context):
        at("reward")

    async def __aenter__(self):
        at("open")
        return self

    async def __call__(self, problem, trajectory):
        at("judge")
        return await super().__call__(problem, trajectory)

class Watch(rlvr.Callback):
    def __init__(self, config, context):
        self.folder = context.run_dir
        at("callback")

    def run_started(self, run):
        if told("ERROR") == "UnknownNameError":
            (self.folder / "kept.txt").write_text("x")
"""
RUN = ("run", "--plugin", "picky", "--steps", "1", "--callback", "picky", "train.problems=2",
       "sampler.group_size=2", "sampler.max_tokens=4", "eval.samples=1")  # fmt: skip
CODES = {"ConfigError": 2, "PrerequisiteError": 4, "TaskError": 3}
MOMENTS = ("task", "problems", "reward", "open", "callback", "episode")


@pytest.fixture
def site(site_here: PluginSite) -> PluginSite:
    """The plugin, installed, and an empty folder to run in."""
    site_here.add("picky", PLUGIN)
    return site_here


@pytest.mark.parametrize("error", CODES)
@pytest.mark.parametrize("when", MOMENTS)
def test_a_refused_run_leaves_nothing(
    when: str, error: str, site: PluginSite, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Whatever refuses before the first result: neither the run, nor `runs/`, nor what is above."""
    monkeypatch.setenv("WHEN", when)
    monkeypatch.setenv("ERROR", error)

    for out in ([], ["--out", "a/b/c"]):
        assert main([*RUN, *out]) == CODES[error], capsys.readouterr().err
        assert f"found: {when}" in capsys.readouterr().err
        assert [*site.home.iterdir()] == []


@pytest.mark.parametrize("words", [["--dataset", "d"], ["sampler.max_tokens=99999"]])
def test_a_mistake_that_is_found_late_leaves_nothing(words: list[str], site: PluginSite) -> None:
    """A data set that nobody reads, a model too small: what was there before stays."""
    for path in ("d", "runs/mine.txt"):
        (site.home / path).parent.mkdir(exist_ok=True)
        (site.home / path).touch()

    assert main([*RUN, *words]) == 2
    assert sorted(path.name for path in site.home.rglob("*")) == ["d", "mine.txt", "runs"]


def test_a_run_without_references_leaves_nothing(
    site: PluginSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is refused before a step is made of groups without a trajectory."""
    source = PLUGIN.replace("picky", "bare")
    source = source.replace("class Judge", "    def reference(self, problem): ...\n\nclass Judge")
    site.add("bare", source)
    words = [word.replace("picky", "bare") for word in RUN]

    assert main([*words, "--algo", "sft", "eval.samples=0"]) == 2
    told = capsys.readouterr().err
    assert "found: none as text, for 2 problems" in told
    assert "step 1/1" not in told
    assert [*site.home.iterdir()] == []


def test_what_is_worth_keeping_is_kept(site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a callback, the traceback of a bug: the run directory stays."""
    monkeypatch.setenv("WHEN", "episode")
    monkeypatch.setenv("ERROR", "UnknownNameError")
    assert main([*RUN, "--out", "a/r"]) == 2
    assert {"run.json", "events.jsonl", "kept.txt"} <= {p.name for p in Path("a/r").iterdir()}

    monkeypatch.setenv("ERROR", "no such error")
    monkeypatch.setenv("WHEN", "task")
    assert main([*RUN, "--out", "b/r"]) == 3
    assert [path.name for path in Path("b/r").iterdir()] == ["traceback.txt"]


def test_a_run_that_has_begun_is_kept(site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """Evaluated once, then refused: its evaluation is a result."""

    async def stop(recipe, state, watch):
        watch.directory.append("eval.jsonl", {"step": 0})
        raise RunInterruptedError if stopped else session.ConfigError("late")

    monkeypatch.setattr(session, "train", stop)
    for stopped in (False, True):
        assert main([*RUN, "--out", f"r{stopped}"]) == (130 if stopped else 2)
        assert Path(f"r{stopped}", "eval.jsonl").is_file()
        assert Path(f"r{stopped}", "run.json").is_file()


def test_a_resume_that_is_refused_leaves_the_record_as_it_was(
    site: PluginSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that is done stays done, at its step, whatever refused to go on with it."""
    assert main([*RUN, "--out", "r"]) == 0
    before = Path("r/run.json").read_text()
    monkeypatch.setenv("ERROR", "PrerequisiteError")
    monkeypatch.delenv("RLVR_RUN__CALLBACKS")  # a resumed run would have them, not its own

    for when in MOMENTS[:-1]:
        monkeypatch.setenv("WHEN", when)
        assert main(["run", "--resume", "r", "--steps", "2"]) == 4, when
        assert Path("r/run.json").read_text() == before, when
