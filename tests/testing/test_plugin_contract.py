"""PluginContract passes on a right plugin, and finds each planted fault."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from rlvr.testing import PluginContract
from tests.testing.conftest import Broken

RIGHT = """
from attrs import frozen
from rlvr import hookimpl, option
from rlvr import AlgorithmSpec, LossSpec, TaskSpec

RLVR_API = 1

@frozen(kw_only=True)
class Options:
    beta: float = option(0.1, "How strong")

class MyLoss:
    def __init__(self, config, context):
        pass

@hookimpl
def rlvr_losses():
    return [LossSpec(name="mine", target=__name__ + ":MyLoss", config=__name__ + ":Options",
                     summary="a loss")]

@hookimpl
def rlvr_tasks():
    return [TaskSpec(name="mine", target=__name__ + ":MyLoss", summary="a task",
                     values={"sampler.max_tokens": 8}, presets={"more": {"train.problems": 4}})]

@hookimpl
def rlvr_algorithms():
    return [AlgorithmSpec(name="mine", sampler="group", advantage="group", loss="mine",
                          summary="an algorithm", values={"train.lr": 1e-4, "mine.beta": 0.2})]
"""


@pytest.fixture
def contract_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[str], type[PluginContract]]:
    """A function: the contract on a plugin module of that source text."""
    # importable here and in the subprocess of the contract
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    name = "planted_" + str(abs(hash(request.node.name)))

    def make(source: str) -> type[PluginContract]:
        (tmp_path / f"{name}.py").write_text(source, encoding="utf-8")

        class Case(PluginContract):
            module = name
            heavy = ("wave", *PluginContract.heavy)

        return Case

    return make


def test_a_right_plugin_holds_every_promise(
    contract_of: Callable[[str], type[PluginContract]], broken: Broken
) -> None:
    """The kit raises no false alarm."""
    assert broken(contract_of(RIGHT)) == set()


def test_public_names_that_it_imports_are_no_hooks(
    contract_of: Callable[[str], type[PluginContract]], broken: Broken
) -> None:
    """Also those that begin with rlvr_, or are given such a name."""
    imports = "from rlvr import *\nfrom rlvr import hookimpl as rlvr_hook, rlvr_command\n"

    assert broken(contract_of(imports + RIGHT)) == set()


@pytest.mark.parametrize(
    ("old", "new", "promise"),
    [
        ("RLVR_API = 1", "RLVR_API = 2", "states_the_api_it_was_built_for"),
        ("RLVR_API = 1", "", "states_the_api_it_was_built_for"),
        ("RLVR_API = 1", "RLVR_API = 1\nimport wave", "importing_it_is_light"),
        ("def rlvr_losses():", "def rlvr_loses():", "every_hook_is_known"),
        ("@hookimpl\ndef rlvr_losses", "def rlvr_losses", "every_hook_is_known"),
        ("def rlvr_losses():", "def rlvr_losses(step):", "every_hook_is_known"),
        ("def rlvr_losses():", "def rlvr_losses(x=1):", "every_hook_is_known"),
        ('summary="a loss"', 'summary=""', "offers_something"),
        ('":MyLoss"', '":YourLoss"', "targets_resolve"),
        ('":Options"', '":MyLoss"', "targets_resolve"),
        ("self, config, context", "self, config", "parts_take_config_and_context"),
        ('option(0.1, "How strong")', "0.1", "every_option_has_a_help_line_and_a_default"),
        ('"mine.beta"', '"mine.gamma"', "vetted_values_name_real_options"),
        ('"train.lr"', '"train.speed"', "vetted_values_name_real_options"),
        ('"train.lr"', '"lr"', "vetted_values_name_real_options"),
        ("8}", "'many'}", "vetted_values_name_real_options"),
        ("4}", "-1}", "vetted_values_name_real_options"),
        ("0.2}", "'strong'}", "vetted_values_name_real_options"),
        ('"sampler.max_tokens"', '"sampler.max_token"', "vetted_values_name_real_options"),
        ('"sampler.max_tokens"', '"smapler.max_tokens"', "vetted_values_name_real_options"),
        ('"train.problems"', '"train.problem"', "vetted_values_name_real_options"),
        ('summary="a loss")]', 'summary="a loss")] * 2', "names_are_unique"),
    ],
)
def test_faults_are_found(
    old: str,
    new: str,
    promise: str,
    contract_of: Callable[[str], type[PluginContract]],
    broken: Broken,
) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert old in RIGHT
    assert promise in broken(contract_of(RIGHT.replace(old, new)), promise)


def test_an_import_that_changes_the_process_is_found(
    contract_of: Callable[[str], type[PluginContract]],
) -> None:
    """Every command imports it; a thread that it leaves does not hold up the check."""
    acts = "import os, threading, time\nos.chdir('/')\n"
    acts += "threading.Thread(target=time.sleep, args=(99,), name='mine').start()\n"

    with pytest.raises(AssertionError, match="directory to /; it left running the thread mine"):
        contract_of(acts + RIGHT)().test_importing_it_is_light()


def test_a_record_of_options_that_can_be_changed_is_found(
    contract_of: Callable[[str], type[PluginContract]],
) -> None:
    """What a run writes down of it at the start would not hold."""
    text = RIGHT.replace("@frozen(", "@frozen(frozen=False, ")

    with pytest.raises(AssertionError, match="Options can be changed once it is made"):
        contract_of(text)().test_every_option_has_a_help_line_and_a_default()


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("", "a model spec is SCHEME:..., such as gpt2:PATH"),
        ("gpt2:", "a model spec is SCHEME:..., such as gpt2:PATH"),
        ("starter", "a model spec is SCHEME:..., such as gpt2:PATH"),
        ("gpt2:{here}/none?layers=1", "and no file is there"),
        ("gpt2:{here}/empty", "and no file is there"),
        ("gpt2:{here}/full", ""),
        ("gpt2:new?layers=1", ""),
        ("hf:some/name", ""),
    ],
)
def test_a_starter_names_a_model(
    model: str, said: str, contract_of: Callable[[str], type[PluginContract]], tmp_path: Path
) -> None:
    """Whether it can be opened is the backend's affair; a folder without files is no model."""
    (tmp_path / "full/of").mkdir(parents=True)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full/of/weights").touch()
    text = RIGHT.replace('summary="a task"', 'summary="a task", starter=__name__ + ":starter"')
    model = model.format(here=tmp_path)
    contract = contract_of(f"{text}\ndef starter():\n    return {model!r}\n")
    with pytest.raises(AssertionError, match=re.escape(said)) if said else nullcontext():
        contract().test_starters_name_a_model()
