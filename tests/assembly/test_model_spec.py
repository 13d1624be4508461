"""Which backend a model spec chooses, and what is refused."""

from __future__ import annotations

import json
import os
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import attrs
import pytest
from attrs import frozen

from rlvr import BackendSpec, CheckpointError, ConfigError, RewardSpec, SamplerSpec, TaskSpec
from rlvr.assembly.compatibility import check_fit
from rlvr.assembly.configure import configure
from rlvr.assembly.configured import Chosen, Configured
from rlvr.assembly.recipe import build_context
from rlvr.assembly.teachers import model_of
from rlvr.assembly.trained_model import lineage_in, other_sampling
from rlvr.assembly.vetted_values import (
    backend_for_model,
    default_model,
    is_starter,
    vetted_layers,
)
from rlvr.cli.eval_against import prepare
from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layers import resolve
from rlvr.plugins.host import PluginHost
from rlvr.records.lineage import lineage_of
from rlvr.records.manifest import seal
from rlvr.records.read_runs import Trained, checkpoints_at, weights_of
from tests.conftest import PluginSite


@frozen
class Host:
    """Offers these backends."""

    specs: tuple[BackendSpec, ...]

    def backends(self) -> tuple[BackendSpec, ...]:
        return self.specs


def backend(name: str, *models: str, **more: Any) -> BackendSpec:
    return BackendSpec(name=name, target="m:x", models=models, **more)


def sampler(name: str) -> SamplerSpec:
    return SamplerSpec(name=name, target="m:x")


@pytest.mark.parametrize(
    ("model", "backends", "chosen"),
    [
        ("far:URL#NAME", [backend("one", "far"), backend("two", "near")], "one"),
        ("far:x", [backend("one", "far"), backend("two", "far")], None),
        ("far:x", [backend("any")], None),
        ("starter", [backend("one", "starter")], None),
        ("server:http://h#m", [], "server"),
        ("gpt2:x", [backend("mine", "gpt2")], "mine"),
    ],
)
def test_the_scheme_chooses_where_one_backend_takes_it(
    model: str, backends: list[BackendSpec], chosen: str | None
) -> None:
    """One taker is meant; several, or none that is known, leave it to the option."""
    assert backend_for_model(model, Host(tuple(backends))) == chosen  # type: ignore[arg-type]


FAR = """
    import rlvr
    RLVR_API = 1

    @rlvr.hookimpl
    def rlvr_backends():
        yield rlvr.BackendSpec(name="far", target="m:x", models=("near", "far"), sampler="group")

    @rlvr.hookimpl
    def rlvr_tasks():
        yield rlvr.TaskSpec(name="bare", target="m:x", reward="toy")
"""


@pytest.mark.parametrize(
    ("model", "do"),
    [
        ("Qwen/Qwen3-0.6B", "write near:Qwen/Qwen3-0.6B or far:Qwen/Qwen3-0.6B"),
        ("gpt3", "write near:gpt3 or far:gpt3"),
        ("nera:gpt2", "choose another --model or --backend"),
    ],
)
def test_a_model_without_a_scheme_is_told_those_that_there_are(
    importable_site: PluginSite, model: str, do: str
) -> None:
    """How a name of a hub or a folder is written is said."""
    importable_site.add("far", FAR)
    asked = Namespace(task="toy", model=model, backend="far")
    configured = configure(asked, PluginHost.load({"RLVR_PLUGINS": "far"}), needs="eval")

    with pytest.raises(ConfigError) as caught:
        build_context(configured, None)

    assert str(caught.value).endswith(do)


def save_checkpoint(run: Path, step: int) -> Path:
    """A checkpoint of no weights, as whole as a run's own."""
    folder = run / f"checkpoints/step-{step:06d}"
    (folder / "model").mkdir(parents=True)
    seal(folder, step, {})
    return folder


@pytest.fixture
def run_a(importable_site: PluginSite, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run on the toy's starter preset, with two checkpoints, by a backend that is not chosen."""
    monkeypatch.chdir(importable_site.home)
    importable_site.add("far", FAR)
    run = Path("runs/a")
    for step in (3, 20):
        save_checkpoint(run, step)
    config = {"run.model": "starter", "run.backend": "far", "run.dataset": ""}
    record = {"id": "a", "task": "builtin/toy", "model_spec": "near:x?y=1", "config": config}
    origin = {"train.lr": "preset starter"}
    (run / "run.json").write_text(json.dumps(record | {"origin": origin}))
    return run


def configured_for(model: str, **more: Any) -> Configured:
    """A run on the toy's model, where the backends far and torch take the scheme near."""
    host = PluginHost.load({"RLVR_PLUGINS": "builtin,far,algos,torch"})
    return configure(Namespace(task="toy", model=model, **more), host, needs="run")


@pytest.mark.parametrize(
    ("model", "step"),
    [
        ("runs/a", 20),
        ("runs/a/", 20),
        ("./runs/../runs/a", 20),
        ("~/runs/a", 20),
        ("runs/a/checkpoints/step-000003", 3),
        ("runs/a/checkpoints/step-000003/model", 3),
    ],
)
def test_a_run_is_a_model(
    run_a: Path, model: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last weights or those of a checkpoint, its backend, and the preset that it had."""
    monkeypatch.setenv("HOME", "home")
    Path("home").symlink_to(".")
    run = Path(model.partition("/checkpoints")[0]).expanduser()
    folder = f"{run}/checkpoints/step-{step:06d}/model"

    found = configured_for(model)

    assert found.run.model == weights_of(model) == f"near:{folder}"
    assert (found.run.backend, found.options.origin["run.backend"]) == ("far", "run a")
    assert found.options.origin["train.lr"] == "preset starter"
    assert lineage_of(found.run.model).source.endswith("runs/a/run.json")
    assert model_of(model, TaskSpec(name="t", target="m:x")) == found.run.model


def test_a_run_on_a_runs_model_says_what_that_one_sampled_with(run_a: Path) -> None:
    """What it was given, where this one has another value: not what its algorithm chose."""
    record = json.loads((run_a / "run.json").read_text())
    options = {"max_tokens": 2, "stop": ["x"], "temperature": 0.5, "top_p": 1.0}
    record["config"] |= {f"sampler.{key}": value for key, value in options.items()}
    record["origin"] |= {f"sampler.{key}": "command line" for key in options}
    record["origin"] |= {"sampler.temperature": "algorithm sft"}
    (run_a / "run.json").write_text(json.dumps(record))

    told = other_sampling(configured_for("runs/a", overrides=["sampler.max_tokens=8"]))

    assert told["run"] == "runs/a"
    assert told["differs"] == "sampler.max_tokens 2, now 8, sampler.stop x, now empty"
    assert told["do"].endswith("sampler.max_tokens=2 sampler.stop=x")
    assert other_sampling(configured_for("near:elsewhere")) == {}
    starter = attrs.evolve(configured_for("near:x"), options=resolve(CORE_OPTIONS, []))
    os.chdir(run_a)  # it names no run, here either
    assert (starter.run.model, other_sampling(starter)) == ("starter", {})


def test_the_last_checkpoint_is_that_of_the_last_step(run_a: Path) -> None:
    """By number: as text, step-1000000 stands before step-999999. Names are no patterns."""
    for step in (999_999, 1_000_000):
        shutil.copytree(run_a / "checkpoints" / "step-000020", run_a / f"checkpoints/step-{step}")

    assert weights_of("runs/a") == "near:runs/a/checkpoints/step-1000000/model"
    assert [path.name for path in checkpoints_at(Trained(run_a))][-1] == "step-1000000"
    (run_a / "checkpoints/step-1000000/model/trained-on.json").write_text('{"families": ["found"]}')
    assert lineage_in(Trained(run_a)).families == ("found",)
    with pytest.raises(CheckpointError, match=r"no checkpoint step-\* of it"):
        weights_of("runs/a/checkpoints/step-*")


def test_a_checkpointer_of_another_plugin_keeps_its_own_manifest(run_a: Path) -> None:
    """Or none; that of rlvr's own is never missing."""
    (run_a / "checkpoints/step-000020/manifest.json").unlink()
    with pytest.raises(CheckpointError, match=r"step-000020 cannot be read"):
        weights_of("runs/a")
    record = json.loads((run_a / "run.json").read_text())
    record["config"]["run.checkpointer"] = "plain"
    (run_a / "run.json").write_text(json.dumps(record))
    assert weights_of("runs/a") == "near:runs/a/checkpoints/step-000020/model"


def test_a_run_without_weights_is_no_model(run_a: Path) -> None:
    """Nor is a checkpoint that is not there, or a run that names no kind of model."""
    with pytest.raises(CheckpointError, match=r"no checkpoint step-000004 of it\n.*last one"):
        configured_for("runs/a/checkpoints/step-000004")
    record = json.loads((run_a / "run.json").read_text())
    (run_a / "run.json").write_text(json.dumps(record | {"model_spec": ""}))
    with pytest.raises(ConfigError, match=r"'starter'\n.*SCHEME:runs/a/checkpoints/step-000020"):
        configured_for("runs/a")
    shutil.rmtree(run_a / "checkpoints")
    with pytest.raises(CheckpointError, match=r"no checkpoint of it\n.*--resume runs/a"):
        configured_for("runs/a")


@pytest.mark.parametrize("needs", ["run", "eval", "against"])
def test_a_task_without_a_starter_says_what_fits_the_command(
    importable_site: PluginSite, needs: str
) -> None:
    """Options of training where something is trained; the other side before this one is sampled."""
    importable_site.add("far", FAR)
    host = PluginHost.load({"RLVR_PLUGINS": "builtin,far,algos,torch"})
    args = Namespace(task="bare", against="starter", overrides=[], flag_options={}, samples=None)

    def begin() -> object:
        if needs == "against":
            return prepare(args, host, None)
        return build_context(configure(args, host, needs=needs), None)

    with pytest.raises(ConfigError, match="ships no starter") as caught:
        begin()

    assert ("train.lr" in str(caught.value)) is (needs == "run")
    assert ("--against RUN" in str(caught.value)) is (needs == "against")


def test_a_backend_that_only_samples_is_not_trained() -> None:
    """`rlvr run` refuses it, `rlvr eval` does not."""
    spec = backend("far", trains=False)

    with pytest.raises(ConfigError, match="it only samples"):
        check_fit(spec, None, trains=True)
    check_fit(spec, sampler("group"), trains=False)


def test_a_backend_with_a_sampler_of_its_own_takes_no_other() -> None:
    """Its policy is one that others cannot ask."""
    spec = backend("far", sampler="chat")

    with pytest.raises(ConfigError, match="goes with sampler chat only"):
        check_fit(spec, sampler("group"), trains=False)
    check_fit(spec, sampler("chat"), trains=False)


def test_a_backend_says_what_it_takes_where_nobody_names_a_model() -> None:
    """By its name or its full name; no other backend has a say."""
    host = Host(
        (backend("far", "far", default_model="far:", provider="p"), backend("near", "near"))
    )

    assert default_model("far", host) == "far:"  # type: ignore[arg-type]
    assert default_model("p/far", host) == "far:"  # type: ignore[arg-type]
    assert default_model("near", host) == ""  # type: ignore[arg-type]
    assert default_model("nobody", host) == ""  # type: ignore[arg-type]


LOOKS = iter(("far:only", ""))


def look() -> str:
    """What is there: a model at first, nothing that can be told later."""
    return next(LOOKS)


def test_a_backend_may_look_for_what_is_there() -> None:
    """What it finds is taken; where it finds nothing, or fails, what it says without looking."""
    host = Host((backend("far", "far", default_model="far:", find_model=f"{__name__}:look"),))

    assert default_model("far", host) == "far:only"  # type: ignore[arg-type]
    assert default_model("far", host) == "far:"  # type: ignore[arg-type]
    assert default_model("far", host) == "far:"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "looks", "is_it"),
    [
        ("starter", False, True),
        ("gpt2:mine-starter", False, False),
        ("far:mine-starter", True, True),
        ("far:task-starter", True, True),
        ("far:other-starter", True, False),
        ("far:", True, False),
    ],
)
def test_what_the_starter_model_is(model: str, looks: bool, is_it: bool) -> None:
    """By its own word, or by the name that a server of it has; never by the name of a folder."""
    presets = {"starter": {"train.lr": 1e-5}}
    task = TaskSpec(name="task", target="m:x", provider="mine", presets=presets)
    spec = backend("far", find_model="m:x" if looks else None)

    assert is_starter(model, task, spec) == is_it
    assert is_starter(model, task, None) == (model == "starter")
    chosen = Chosen(task=task, reward=RewardSpec(name="task", target="m:x"), backend=spec)
    found = [vetted_layers(chosen, RunOptions(model=model, dataset=d), None) for d in ("", "own")]
    assert [len(layers) for layers in found] == [is_it, 0], "its preset is for the task's own data"


@pytest.mark.parametrize("model", ["runs", "runs/a/checkpoints", "~/runs", "runs/b"])
def test_a_folder_that_is_no_run_is_refused_as_one(
    run_a: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, before a backend sees it; the error says how a run and a model are named."""
    monkeypatch.setenv("HOME", ".")
    missing, other = rf"no run or folder {Path.cwd()}/runs/b", r"neither a run \(no run.json\)"
    found = missing if model == "runs/b" else other

    with pytest.raises(ConfigError, match=rf"found: .*{found}.*torch takes.*\n.*write gpt2:"):
        build_context(configured_for(model), None)
