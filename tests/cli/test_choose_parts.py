"""Another advantage or loss with any algorithm, and `config show` of any subset of parts."""

from __future__ import annotations

import json
from argparse import Namespace

import pytest

from rlvr import PluginError
from rlvr.assembly.configure import configure
from rlvr.config.layers import Layer
from rlvr.plugins.host import PluginHost
from tests.cli.conftest import toy_with_presets

pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")


def show(site, *words):
    """What `config show --json` says by key, and what it said on standard error."""
    done = site.rlvr("config", "show", "--json", *words)
    assert done.returncode == 0, done.stderr
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(done.stdout)}
    return rows, done.stderr


def test_another_loss_brings_its_options_and_none_of_the_algorithms_own(plugin_site):
    """GRPO with GSPO's loss: its own defaults, grpo.* gone, the rest of GRPO as vetted."""
    rows, _ = show(plugin_site, "--plugin", "toy", "--algo", "grpo", "run.loss=gspo")

    assert rows["run.loss"] == ("gspo", "command line")
    assert rows["gspo.clip_high"] == (4e-4, "default")
    assert rows["advantage.normalise_std"] == (True, "algorithm grpo")
    assert not [key for key in rows if key.startswith("grpo.")]


def test_a_value_for_the_replaced_advantage_is_none_for_another_with_the_same_key(plugin_site):
    """REINFORCE++ vets advantage.kl_coef for its own advantage, not for rloo's of that name."""
    own, _ = show(plugin_site, "--plugin", "toy", "--algo", "reinforce++")
    other, _ = show(plugin_site, "--plugin", "toy", "--algo", "reinforce++", "run.advantage=rloo")

    assert own["advantage.kl_coef"] == (0.001, "algorithm reinforce++")
    assert other["advantage.kl_coef"] == (0.0, "default")
    assert other["train.problems"][1] != "default"
    assert "advantage.discount" not in other


def test_the_algorithms_own_part_may_be_named(plugin_site):
    """Then nothing is replaced, and its vetted values stay."""
    rows, _ = show(plugin_site, "--plugin", "toy", "--algo", "grpo", "run.loss=algos/grpo")

    assert rows["grpo.clip_high"] == (0.28, "algorithm grpo")


TWINS = """
    from attrs import frozen
    from rlvr import AlgorithmSpec, BackendSpec, CallbackSpec, CheckpointerSpec, hookimpl

    RLVR_API = 1

    @hookimpl
    def rlvr_callbacks():
        yield CallbackSpec(name="curve", target="none:Here")

    @hookimpl
    def rlvr_checkpointers():
        yield CheckpointerSpec(name="file", target="none:Here")

    @hookimpl
    def rlvr_algorithms():
        yield AlgorithmSpec(name="grpo", advantage="group", loss="grpo", sampler="group")

    @hookimpl
    def rlvr_backends():
        yield BackendSpec(name="torch", target="none:Here", default_model="twin:model")
"""


@pytest.mark.parametrize(
    ("option", "name", "asked"),
    [
        ("callbacks", "curve", "--callback builtin/curve"),
        ("checkpointer", "file", "run.checkpointer=builtin/file"),
        ("algo", "grpo", "--algo algos/grpo"),
        ("backend", "torch", "--backend torch/torch"),
    ],
)
def test_a_default_means_our_part_whoever_has_another_of_its_name(site_here, option, name, asked):
    """A plugin changes no run that does not name its parts; a name that is typed must be clear."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    site_here.add("a_twin", TWINS)  # whose parts come first
    host = PluginHost.load()
    args = Namespace(plugin="toy", overrides=[])

    configured = configure(args, host)
    assert {p.provider for p in configured.chosen.parts()} <= {"builtin", "algos", "torch"}
    assert "preset starter" in configured.options.origin.values()
    args.base = Layer("run r", {f"run.{option}": [name] if option == "callbacks" else name})
    configure(args, host)  # the value of a run that goes on
    args.overrides = [f"run.{option}={name}"]
    with pytest.raises(PluginError, match=f"offered by 2 plugins.*\n.*{asked}"):
        configure(args, host)


def test_an_unknown_loss_suggests(plugin_site):
    """With the names that there are, and exit status 3."""
    done = plugin_site.rlvr("run", "--plugin", "toy", "run.loss=gsop")

    assert done.returncode == 3
    assert "did you mean 'gspo'?" in done.stderr


def test_a_reward_called_none_is_none_of_those_there_are(plugin_site):
    """It is not the empty place of a command without a task."""
    done = plugin_site.rlvr("score", "--plugin", "toy", "--golden", "--reward", "none")

    assert done.returncode == 3
    assert "no reward plugin named 'none'" in done.stderr


def test_options_of_the_replaced_loss_are_refused_with_the_way_to_have_them(plugin_site):
    """They would change nothing."""
    done = plugin_site.rlvr(
        "config", "show", "--plugin", "toy", "run.loss=gspo", "grpo.clip_high=0.3"
    )

    assert done.returncode == 2
    assert "choose run.loss=grpo" in done.stderr


def test_help_shows_the_options_of_the_chosen_loss(plugin_site):
    """`run.loss=` narrows the help as `--algo` does, alone or with it."""
    both = plugin_site.rlvr("run", "--plugin", "toy", "--algo", "grpo", "run.loss=gspo", "--help")
    alone = plugin_site.rlvr("run", "--plugin", "toy", "run.advantage=rloo", "--help")

    assert "options of algos/group" in both.stdout
    assert "options of algos/gspo" in both.stdout
    assert "options of algos/grpo" not in both.stdout
    assert "options of algos/rloo" in alone.stdout
    assert "(one of k1, k2, k3) [k3]" in both.stdout
    assert "Answers cut at the token limit: keep, mask or penalise [keep]" in alone.stdout


def test_a_preset_may_choose_the_loss(plugin_site):
    """With its options; a person's choice outranks both."""
    preset = {"run.loss": "gspo", "gspo.clip_high": 5e-4}
    plugin_site.add("brief", toy_with_presets(sequences=preset))
    words = ("--task", "brief", "--preset", "sequences")

    chosen, _ = show(plugin_site, *words)
    other, _ = show(plugin_site, *words, "run.loss=cispo")

    assert chosen["run.loss"] == ("gspo", "preset sequences")
    assert chosen["gspo.clip_high"] == (5e-4, "preset sequences")
    assert "grpo.clip_high" not in chosen
    assert other["run.loss"] == ("cispo", "command line")
    assert not [key for key in other if key.startswith(("gspo.", "grpo."))]


def test_a_run_has_the_loss_that_was_chosen_and_resumes_with_it_alone(plugin_site):
    """`run.json` says it; another one is another run."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    small = ("train.problems=2", "sampler.group_size=2", "eval.samples=0", "run.loss=gspo")
    run = ("run", "--plugin", "toy", "--algo", "grpo", "--out", "here", *small)

    done = plugin_site.rlvr(*run, "--steps", "1")
    again = plugin_site.rlvr("run", "--resume", "here", "--steps", "2")
    other = plugin_site.rlvr("run", "--resume", "here", "--steps", "3", "run.loss=cispo")

    assert done.returncode == 0, done.stderr
    record = json.loads((plugin_site.home / "here" / "run.json").read_text(encoding="utf-8"))
    assert record["config"]["run.loss"] == "gspo"
    assert "gspo.clip_high" in record["config"]
    assert again.returncode == 0, again.stderr
    assert other.returncode == 2
    assert "run.loss ('gspo' -> 'cispo')" in other.stderr


@pytest.mark.parametrize(
    ("words", "there", "gone"),
    [
        ((), ("run.seed", "grpo.clip_low"), "toy."),
        (("--plugin", "toy"), ("toy.letters", "grpo.clip_low"), "dapo."),
        (("--algo", "sft"), ("train.lr",), "grpo."),
        (("--algo", "gspo"), ("gspo.clip_low",), "grpo."),
        (("--reward", "toy"), ("train.lr",), "toy."),
        (("--curriculum", "pass-rate"), ("curriculum.target",), "toy."),
        (("run.loss=cispo",), ("cispo.clip_low",), "grpo."),
        (("--algo", "opd", "advantage.teacher=starter"), ("advantage.teacher",), "grpo."),
    ],
)
def test_config_show_takes_any_subset_of_parts(plugin_site, words, there, gone):
    """It shows what is known of them; nothing need be named."""
    rows, _ = show(plugin_site, *words)

    assert set(there) <= set(rows)
    assert not [key for key in rows if key.startswith(gone)]


@pytest.mark.parametrize("backend", ["torch", "vllm"])
def test_config_show_takes_a_backend_alone(plugin_site, backend):
    """One that only samples, too: no task is to be trained on yet."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_servers", reason="rlvr-servers is not installed")

    rows, _ = show(plugin_site, "--backend", backend)

    assert rows["run.backend"] == (backend, "command line")


def test_config_show_names_default_parts_that_are_not_installed(plugin_site):
    """With the core alone the rest is shown; what a person names must be there."""
    lonely = {"RLVR_PLUGINS": "builtin"}
    done = plugin_site.rlvr("config", "show", "--plugin", "toy", "--json", **lonely)
    named = plugin_site.rlvr("config", "show", "--plugin", "toy", "--algo", "grpo", **lonely)

    assert done.returncode == 0, done.stderr
    assert "toy.letters" in {row["key"] for row in json.loads(done.stdout)}
    assert "rlvr: not shown: " in done.stderr
    assert "grpo" in done.stderr
    assert "torch" in done.stderr
    assert named.returncode == 3
