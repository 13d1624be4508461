"""`rlvr config show`: values and where they came from."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import toy_with_presets


def shown(site, *words, **environ):
    """What `config show --json` says about the toy task, by key."""
    done = site.rlvr(
        "config", "show", "--task", "toy", "--for", "score", "--json", *words, **environ
    )
    assert done.returncode == 0, done.stderr
    return {row["key"]: row for row in json.loads(done.stdout)}


def test_each_value_says_where_it_came_from(plugin_site):
    """Default, file, environment, command line: later ones win, each is named."""
    (plugin_site.home / "run.toml").write_text(
        "[train]\nlr = 0.1\nwarmup = 2\npasses = 3\n", encoding="utf-8"
    )

    rows = shown(
        plugin_site,
        "--config",
        "run.toml",
        "train.passes=5",
        RLVR_TRAIN__WARMUP="4",
        RLVR_TRAIN__PASSES="4",
    )

    found = {key: (row["value"], row["origin"]) for key, row in rows.items()}
    assert found["train.lr"] == (0.1, "run.toml")
    assert found["train.warmup"] == (4, "environment RLVR_TRAIN__WARMUP")
    assert found["train.passes"] == (5, "command line")
    assert found["train.decay"] == ("constant", "default")


def test_a_plugins_options_are_set_like_the_cores(plugin_site):
    """The toy task's own option, from the environment and from the command line."""
    from_environment = shown(plugin_site, RLVR_TOY__LENGTH="2")["toy.length"]
    from_words = shown(plugin_site, "toy.length=3")["toy.length"]

    assert (from_environment["value"], from_words["value"]) == (2, 3)


def test_the_table_is_for_people(plugin_site):
    """Three columns: option, value, origin."""
    done = plugin_site.rlvr("config", "show", "--task", "toy", "--for", "score", "--seed", "7")

    header, *rows = done.stdout.splitlines()
    assert header.split() == ["OPTION", "VALUE", "FROM"]
    assert ["run.seed", "7", "command", "line"] in [row.split() for row in rows]


def test_a_curriculum_brings_its_options(plugin_site):
    """With `--curriculum NAME` its options stand among the others, and no other curriculum's."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")

    done = plugin_site.rlvr(
        *("config", "show", "--task", "toy", "--json", "--max-staleness", "2"),
        *("--curriculum", "difficulty", "curriculum.ramp_steps=7"),
    )

    assert done.returncode == 0, done.stderr
    rows = {row["key"]: (row["value"], row["origin"]) for row in json.loads(done.stdout)}
    assert rows["run.curriculum"] == ("difficulty", "command line")
    assert rows["run.max_staleness"] == (2, "command line")
    own = {key: value for key, (value, _) in rows.items() if key.startswith("curriculum.")}
    assert own == {
        "curriculum.label": "difficulty",
        "curriculum.stages": [],
        "curriculum.ramp_steps": 7,
    }


def test_a_preset_may_choose_a_curriculum(plugin_site):
    """With its options; a person's choice outranks both, none too; an algorithm is no preset's."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
    curriculum = {"run.curriculum": "difficulty", "curriculum.ramp_steps": 7}
    presets = toy_with_presets(easy=curriculum, wrong={"run.algo": "ppo"})
    plugin_site.add("brief", presets)

    def rows(*words):
        done = plugin_site.rlvr("config", "show", "--task", "brief", "--json", *words)
        assert done.returncode == 0, done.stderr
        found = {row["key"]: (row["value"], row["origin"]) for row in json.loads(done.stdout)}
        return found["run.curriculum"], {k for k in found if k.startswith("curriculum.")}, found

    chosen, own, found = rows("--preset", "easy")
    assert chosen == ("difficulty", "preset easy")
    assert own == {"curriculum.label", "curriculum.stages", "curriculum.ramp_steps"}
    assert found["curriculum.ramp_steps"] == (7, "preset easy")
    other, own, _ = rows("--preset", "easy", "--curriculum", "pass-rate")
    assert other == ("pass-rate", "command line")
    assert "curriculum.target" in own
    none, own, _ = rows("--preset", "easy", "run.curriculum=")
    assert (none, own) == (("", "command line"), set())
    wrong = plugin_site.rlvr("config", "show", "--task", "brief", "--preset", "wrong")
    assert wrong.returncode == 3
    assert "it sets run.algo" in wrong.stderr


def test_options_of_a_curriculum_are_left_out_where_nothing_is_trained(plugin_site):
    """One run file serves `rlvr run` and `rlvr score`."""
    words = ("run.curriculum=pass-rate", "curriculum.target=0.3")

    assert not [key for key in shown(plugin_site, *words) if key.startswith("curriculum.")]


def test_help_shows_the_options_of_the_curriculum(plugin_site):
    """`rlvr run --plugin toy --curriculum NAME --help`: the task's options, then its own."""
    done = plugin_site.rlvr("run", "--plugin", "toy", "--curriculum", "pass-rate", "--help")

    _, _, own = done.stdout.partition("options of builtin/pass-rate")
    assert "options of builtin/toy" in done.stdout
    assert "curriculum.target, --target " in own
    assert "curriculum.explore, --explore " in own
    assert "curriculum.label" not in own


def test_an_unknown_variable_is_refused(plugin_site):
    """A misspelt environment variable is a usage error, not silence."""
    done = plugin_site.rlvr("config", "show", "--task", "toy", RLVR_TRAIN__LRR="1")

    assert done.returncode == 2
    assert "environment RLVR_TRAIN__LRR" in done.stderr


def test_what_suits_a_tasks_problems_stands_below_all_but_defaults(plugin_site):
    """Values of a task hold for every command and model, until somebody says otherwise."""
    plugin_site.add(
        "brief",
        """
        from rlvr import hookimpl
        from rlvr import TaskSpec

        RLVR_API = 1

        @hookimpl
        def rlvr_tasks():
            yield TaskSpec(
                name="brief", target="rlvr.builtin.toy:ToyTask", reward="toy",
                values={"sampler.max_tokens": 12, "train.lr": 0.5},
            )
        """,
    )
    rows = {}
    for words in ((), ("sampler.max_tokens=7",)):
        done = plugin_site.rlvr(
            "config", "show", "--task", "brief", "--for", "score", "--json", *words
        )
        assert done.returncode == 0, done.stderr
        rows[words] = {row["key"]: row for row in json.loads(done.stdout)}
    vetted = rows[()]["sampler.max_tokens"]
    assert (vetted["value"], vetted["origin"]) == (12, "task brief")
    assert rows[("sampler.max_tokens=7",)]["sampler.max_tokens"]["value"] == 7
    assert rows[()]["train.lr"]["origin"] == "default", "only a run has it"
