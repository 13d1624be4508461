"""Which backend a model spec chooses, and what is refused."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from rlvr import BackendSpec, ConfigError, RewardSpec, SamplerSpec, TaskSpec
from rlvr.assembly.compatibility import check_fit
from rlvr.assembly.configure import configure
from rlvr.assembly.configured import Chosen
from rlvr.assembly.recipe import build_context
from rlvr.assembly.vetted_values import (
    backend_for_model,
    default_model,
    is_starter,
    vetted_layers,
)
from rlvr.config.core import RunOptions
from rlvr.plugins.host import PluginHost
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
"""


@pytest.mark.parametrize(
    ("model", "do"),
    [
        ("Qwen/Qwen3-0.6B", "write near:Qwen/Qwen3-0.6B or far:Qwen/Qwen3-0.6B"),
        ("gpt3", "write near:gpt3 or far:gpt3"),
        ("nera:gpt2", "choose another --model or --backend"),
        ("runs/a", "or far:runs/a/checkpoints/step-000020/model"),
    ],
)
def test_a_model_without_a_scheme_is_told_those_that_there_are(
    importable_site: PluginSite, monkeypatch: pytest.MonkeyPatch, model: str, do: str
) -> None:
    """How a name of a hub, a folder or a run's last weights is written is said."""
    monkeypatch.chdir(importable_site.home)
    for step in (3, 20):
        Path(f"runs/a/checkpoints/step-{step:06d}/model").mkdir(parents=True)
    importable_site.add("far", FAR)
    asked = Namespace(task="toy", model=model, backend="far")
    configured = configure(asked, PluginHost.load({"RLVR_PLUGINS": "far"}), needs="eval")

    with pytest.raises(ConfigError) as caught:
        build_context(configured, None)

    assert str(caught.value).endswith(do)


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
