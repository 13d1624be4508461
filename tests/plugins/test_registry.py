"""Names to specs, and the errors that say what to install."""

from __future__ import annotations

import re
from argparse import Namespace
from functools import partial
from pathlib import Path

import pytest

from rlvr import PluginError
from rlvr.assembly.configure import configure
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import NAMES, PLUGINS, distribution_for
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object

TASKS = """
    from rlvr import hookimpl
    from rlvr import TaskSpec
    RLVR_API = 1

    @hookimpl
    def rlvr_tasks():
        return [TaskSpec(name=name, target="a:B") for name in {names!r}]
"""


def registry(site, **plugins):
    """Install plugins with tasks of the given names, and load them alone."""
    for name, tasks in plugins.items():
        site.add(name, TASKS.format(names=tasks))
    return Registry(PluginHost.load({"RLVR_PLUGINS": ",".join(plugins)}))


def message_of(function, *args):
    """The message of the PluginError that the call raises."""
    with pytest.raises(PluginError) as caught:
        function(*args)
    assert caught.value.exit_code == 3
    return str(caught.value)


def test_by_name_and_by_full_name(importable_site):
    """A name is enough where one plugin offers it; the full name always is."""
    found = registry(importable_site, adder=["sums"])

    assert found.find("task", "sums") == found.find("task", "adder/sums")
    assert "sums" in found.names("task")


def test_a_name_twice_is_an_error_only_when_asked_for(importable_site):
    """Both providers are named, with the full names that settle it; each of those works."""
    found = registry(importable_site, one=["sums"], two=["sums"])

    message = message_of(found.find, "task", "sums")

    assert "one (rlvr-one 1.0), two (rlvr-two 1.0)" in message
    assert "--task one/sums, --task two/sums" in message
    assert found.find("task", "two/sums").provider == "two"
    assert {"one/sums", "two/sums"} <= set(found.names("task"))


TWIN = """
    import rlvr
    RLVR_API = 1
    AT = {{"name": "pairs", "target": "a:B"}}

    @rlvr.hookimpl
    def rlvr_tasks():
        yield rlvr.TaskSpec(**AT)
        yield rlvr.TaskSpec(name="{own}", target="a:B", reward="pairs")

    @rlvr.hookimpl
    def rlvr_rewards():
        yield rlvr.RewardSpec(**AT)

    @rlvr.hookimpl
    def rlvr_samplers():
        yield rlvr.SamplerSpec(**AT)

    @rlvr.hookimpl
    def rlvr_advantages():
        yield rlvr.AdvantageSpec(**AT)

    @rlvr.hookimpl
    def rlvr_losses():
        yield rlvr.LossSpec(**AT)

    @rlvr.hookimpl
    def rlvr_backends():
        yield rlvr.BackendSpec(name="{own}", target="a:B", sampler="pairs")

    @rlvr.hookimpl
    def rlvr_algorithms():
        pairs = dict.fromkeys(("sampler", "advantage", "loss"), "pairs")
        yield rlvr.AlgorithmSpec(name="{own}", **pairs)
"""
"""Of two such plugins each has parts that are all called `pairs`."""


@pytest.fixture
def twins(importable_site):
    """The plugins `one` and `two`, loaded."""
    for own in ("one", "two"):
        importable_site.add(own, TWIN.format(own=own))
    return PluginHost.load({"RLVR_PLUGINS": "one,two"})


@pytest.mark.parametrize("task", ["two/pairs", "two"])
@pytest.mark.parametrize(("needs", "count"), [("run", 4), ("eval", 2), ("score", 1)])
def test_a_record_means_the_parts_of_its_own_plugin(twins, task, needs, count):
    """What a task, an algorithm or a backend names is not put to the person."""
    asked = Namespace(task=task, algo="two", backend="two", model="two:x", callbacks="")

    chosen = configure(asked, twins, needs=needs, is_partial=needs == "run").chosen

    parts = [chosen.reward, chosen.sampler, chosen.advantage, chosen.loss]
    assert [part.full_name for part in parts if part is not None] == ["two/pairs"] * count


@pytest.mark.parametrize(
    ("kind", "flag"),
    [("reward", "--reward "), ("sampler", "--sampler "), ("loss", "run.loss=")],
)
def test_a_name_that_a_person_typed_is_put_back_with_its_flag(twins, kind, flag):
    """Of several plugins none is its home: what settles it can be pasted."""
    message = message_of(Registry(twins).find, kind, "pairs")

    assert f"choose one by its full name: {flag}one/pairs, {flag}two/pairs" in message
    assert Registry(twins).find(kind, "pairs", of="two").provider == "two"
    assert "is offered by 2 plugins" in message_of(Registry(twins).find, kind, "pairs", "builtin")


def test_an_unknown_name_suggests_the_nearest(importable_site):
    """What was asked, what is installed, what was probably meant."""
    message = message_of(registry(importable_site, adder=["sums"]).find, "task", "summs")

    assert "no task plugin named 'summs'." in message
    assert "installed: sums, toy" in message
    assert "did you mean 'sums'?" in message


def test_an_installed_package_without_an_entry_point_is_told(importable_site):
    """The package is named, and the section that its pyproject.toml lacks."""
    importable_site.add("counts", "RLVR_API = 1\n")
    entries = next(importable_site.path.glob("rlvr_counts-*/entry_points.txt"))
    entries.write_text("[console_scripts]\ncounts = counts:main\n")

    message = message_of(registry(importable_site).active, "counts")

    assert "no plugin named 'counts'." in message
    assert "rlvr-counts is installed and has no plugin" in message
    assert "if it is to have one, add [project.entry-points.rlvr]" in message


@pytest.mark.parametrize("entries", [b"[console_scripts]\ncounts\n", b"\xff\xfe["])
def test_an_unknown_name_of_a_package_with_damaged_metadata(entries, importable_site):
    """The name is unknown, as any other: what its package holds breaks nothing."""
    importable_site.add("counts", "RLVR_API = 1\n")
    next(importable_site.path.glob("rlvr_counts-*/entry_points.txt")).write_bytes(entries)

    assert "no plugin named 'counts'." in message_of(registry(importable_site).active, "counts")


PACKAGE = '[project]\nname = "{0}"\n[project.entry-points.rlvr]\ncounts = "counts"\n'


@pytest.mark.parametrize(
    ("folder", "kind", "name"),
    [
        ("rlvr-counts", "plugin", "counts"),
        ("my counts", "task", "counts"),
        ("other", "reward", "counts/even"),
        (".", "algorithm", "counts"),
    ],
)
def test_a_package_that_lies_here_is_to_be_installed(plugin_site, monkeypatch, folder, kind, name):
    """Whatever its folder and its distribution are called; what cannot be read is passed by."""
    monkeypatch.chdir(plugin_site.home)
    texts = {"a": "[project", "b": "project = 3", folder: PACKAGE.format(folder)}
    for place, text in texts.items():
        Path(place).mkdir(exist_ok=True)
        Path(place, "pyproject.toml").write_text(text)
    found = Registry(PluginHost.load({"RLVR_PLUGINS": ""}))

    find = found.active if kind == "plugin" else partial(found.find, kind)
    message = message_of(find, name)

    place = {".": "the working directory", "my counts": "'./my counts'"}.get(folder, f"./{folder}")
    assert re.search(r"which is not installed: .*install -e", message)
    assert message.endswith("-e ." if folder == "." else f"-e {place}")
    assert "installed: " in message
    assert "try: rlvr plugins list" in message_of(found.find, "task", "count")


def test_a_package_of_an_installed_plugin_is_not_to_be_installed(importable_site, monkeypatch):
    """A name that it does not offer is another mistake."""
    monkeypatch.chdir(importable_site.home)
    Path("pyproject.toml").write_text(PACKAGE.format("counts"))

    message = message_of(registry(importable_site, counts=["odd"]).find, "task", "counts/even")

    assert message.endswith("try: rlvr plugins list")


def test_a_first_party_name_says_what_to_install(importable_site, monkeypatch):
    """A missing distribution is named with its pip command and the extra that the name needs."""
    needed = "rlvr-later[fast]"
    monkeypatch.setattr("rlvr.plugins.registry.distribution_for", lambda kind, name: needed)

    message = message_of(registry(importable_site).find, "backend", "later")

    assert re.fullmatch(
        r"backend plugin 'later' is not installed: .*pip install 'rlvr-later\[fast\]'", message
    )


def test_the_name_of_a_broken_plugin_gives_its_reason(importable_site):
    """Not 'unknown': the plugin is there, and this is what is wrong with it."""
    importable_site.add("bad", "import a_module_that_is_not_installed\n")
    found = Registry(PluginHost.load({"RLVR_PLUGINS": "bad"}))

    for message in (
        message_of(found.find, "task", "bad"),
        message_of(found.find, "task", "bad/x"),
        message_of(found.default_task, "bad"),
    ):
        assert "plugin 'bad' (rlvr-bad 1.0) is broken: ModuleNotFoundError" in message
        assert "pip install --force-reinstall rlvr-bad" in message
    other = message_of(found.find, "task", "its")  # which it may offer when it is mended
    assert "broken, and may have it: bad; try: rlvr plugins list" in other


def test_the_name_of_a_disabled_plugin_gives_the_variable(importable_site):
    """A person who disabled a plugin is reminded of it."""
    importable_site.add("adder", TASKS.format(names=["sums"]))
    found = Registry(PluginHost.load({"RLVR_DISABLE_PLUGINS": "adder"}))

    assert "disabled by RLVR_DISABLE_PLUGINS" in message_of(found.default_task, "adder")


@pytest.mark.parametrize(("tasks", "default"), [(["x", "adder"], "adder"), (["x"], "x")])
def test_the_default_task(importable_site, tasks, default):
    """--plugin means the task of the plugin's name, or its only one."""
    assert registry(importable_site, adder=tasks).default_task("adder").name == default


def test_several_tasks_and_no_default(importable_site):
    """The choice is put to the person, in words that can be pasted."""
    message = message_of(registry(importable_site, adder=["x", "y"]).default_task, "adder")

    assert "adder/x, adder/y" in message
    assert "--task adder/x" in message


def test_a_plugin_without_tasks(importable_site):
    """A plugin that is no domain says which ones are."""
    message = message_of(registry(importable_site, adder=[]).default_task, "adder")

    assert "offers no task" in message
    assert "builtin" in message


def test_an_option_is_found_with_the_parts_that_have_it(importable_site):
    """By its key, where parts share a namespace too; one that cannot be loaded has none."""
    importable_site.add(
        "adder",
        """
        from rlvr import hookimpl
        from rlvr import CurriculumSpec
        RLVR_API = 1

        @hookimpl
        def rlvr_curricula():
            yield CurriculumSpec(
                name="lost", target="no:One", config="no:Where", namespace="curriculum"
            )
            for name in ("int", "copyright"):
                yield CurriculumSpec(
                    name=name, target="no:One", config="builtins:" + name, namespace="curriculum"
                )
        """,
    )
    found = Registry(PluginHost.load({"RLVR_PLUGINS": "adder"}))

    assert [s.name for s in found.owners("curriculum.audit")] == ["strength"]
    assert [s.full_name for s in found.owners("toy.letters")] == ["builtin/toy"]
    assert found.owners("curriculum.adit") == []
    assert "curriculum" in found.namespaces()
    ours = {"difficulty", "epochs", "pass-rate", "strength"}
    assert {*found.names("curriculum")} == ours | {"copyright", "int", "lost"}


def test_known_names_are_those_that_the_distributions_offer():
    """The static map neither misses a first-party name nor invents one."""
    host = PluginHost.load({})
    present = {s.name: s for s in host.plugins if s.name in PLUGINS}
    missing = sorted(name for name in PLUGINS if name not in present)
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")
    registry = Registry(host)
    offered = {
        kind: {
            n: s.distribution
            for n in registry.names(kind)
            for s in present.values()
            if registry.find(kind, n).provider == s.name
        }
        for kind in NAMES
        if kind != "plugin"
    }

    known = {
        kind: {n: needed.partition("[")[0] for n, needed in names.items()}
        for kind, names in NAMES.items()
        if kind != "plugin"
    }
    assert offered == known
    assert {s.name: s.distribution for s in present.values()} == dict(PLUGINS)


def test_distribution_of_full_names():
    """`algos/anything` is found by its plugin."""
    assert distribution_for("algorithm", "algos/new") == "rlvr-algos"
    assert distribution_for("callback", "mlflow") == "rlvr-trackers[mlflow]"
    assert distribution_for("task", "nobodys") is None


def test_load_object():
    """A target is imported when asked for."""
    assert load_object("rlvr.specs:TaskSpec").__name__ == "TaskSpec"


def test_a_target_whose_import_fails_names_plugin_module_and_command(importable_site):
    """The error is the plugin's: who, which module is missing, and the pip command."""
    importable_site.add("adder", "RLVR_API = 1\n", distribution="their-adder")
    (importable_site.path / "site_lazy.py").write_text("import not_there_at_all\n")

    message = message_of(load_object, "site_lazy:Part", "adder")

    assert "plugin 'adder' (their-adder)" in message
    assert "the module 'not_there_at_all' is not installed" in message
    assert "pip install --force-reinstall their-adder" in message


def test_a_target_that_names_nothing():
    """A module without the object is the plugin's mistake too."""
    assert "has no object 'Nothing'" in message_of(load_object, "rlvr.specs:Nothing")


@pytest.mark.parametrize(
    "text",
    [
        "raise SystemExit(0)",
        "raise BaseException('own')",
        "raise GeneratorExit",
        "import asyncio\nraise asyncio.CancelledError",
        "raise AttributeError('Part')",
        "class Mute(Exception):\n    def __str__(self):\n        1 / 0\nraise Mute",
        "def __getattr__(name):\n    raise SystemExit(0) if name == 'Part' else AttributeError",
        "def __getattr__(name):\n    raise KeyError(name) if name == 'Part' else AttributeError",
    ],
)
def test_whatever_a_target_raises_names_its_plugin(text, importable_site):
    """A module that leaves, or that raises where it is asked for the object."""
    importable_site.add("adder", "RLVR_API = 1\n", distribution="their-adder")
    (importable_site.path / "site_leaves.py").write_text(text)

    message = message_of(load_object, "site_leaves:Part", "adder")

    assert "plugin 'adder' (their-adder) could not load 'site_leaves:Part'" in message
    assert "site_leaves.py:" in message


def test_ctrl_c_at_an_import_stays_ctrl_c(importable_site):
    """It is nobody's fault."""
    (importable_site.path / "site_stopped.py").write_text("raise KeyboardInterrupt")

    with pytest.raises(KeyboardInterrupt):
        load_object("site_stopped:Part")


def test_errors_on_purpose_pass_through(importable_site):
    """A module that says what is missing (a GPU, a tool) is not called broken."""
    (importable_site.path / "site_picky.py").write_text(
        "from rlvr.errors import PrerequisiteError\nraise PrerequisiteError('no GPU')\n"
    )

    with pytest.raises(OSError, match="no GPU") as caught:
        load_object("site_picky:Part")

    assert caught.value.exit_code == 4
