"""The plugin host: offers, announcements, advice."""

from __future__ import annotations

import builtins
import re
import sys

import pytest

from rlvr import Advice, ExitCode, PluginError, hookimpl
from rlvr.cli.run import _of_plugins
from rlvr.plugins import loading
from rlvr.plugins.host import PluginHost

OFFERING = """
    from rlvr import hookimpl
    from rlvr import TaskSpec
    RLVR_API = 1

    @hookimpl
    def rlvr_tasks():
        return [TaskSpec(name="sums", target="a:B", provider="a lie")]
"""


@pytest.fixture
def host():
    """A host with the built-in plugin alone."""
    return PluginHost.load({"RLVR_PLUGINS": ""})


class Observer:
    """Remembers what it was told."""

    def __init__(self, told):
        self.told = told

    @hookimpl
    def rlvr_step_finished(self, step):
        """Take one of the three arguments: fewer is allowed."""
        self.told.append((self, step))


class Failing:
    """Raises at every step."""

    @hookimpl
    def rlvr_step_finished(self, run, step, metrics):
        """Fail."""
        raise OSError("no space left")


def step(host, number):
    """Announce a finished step."""
    return host.announce("rlvr_step_finished", run=None, step=number, metrics={})


def test_records_say_who_provides_them(importable_site):
    """The provider is the entry point's name, whatever the plugin writes there."""
    importable_site.add("adder", OFFERING)

    host = PluginHost.load({"RLVR_PLUGINS": "adder"})

    (spec,) = [task for task in host.tasks() if task.name == "sums"]
    assert spec.provider == "adder"
    assert spec.full_name == "adder/sums"


def test_a_plugin_that_fails_late_offers_nothing(importable_site):
    """Half of a broken plugin is not on offer: all of its records go."""
    file = importable_site.add(
        "adder",
        OFFERING + "\n    @hookimpl\n    def rlvr_rewards():\n        raise RuntimeError('late')\n",
    )

    host = PluginHost.load({"RLVR_PLUGINS": "adder"})

    assert "sums" not in [task.name for task in host.tasks()]
    status = next(p for p in host.plugins if p.name == "adder")
    assert status.status == "broken"
    assert re.match(rf"rlvr_rewards: RuntimeError: late \({file}:\d+\)$", status.reason)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        ("builtins.print = None", "builtins['print']"),
        ("del builtins.open; 1 / 0", ""),
        ("raise BaseException('late')", ""),
        ("sys.modules['rlvr.plugins'] = sys", "sys.modules['rlvr.plugins']"),
        ("[sys.modules.pop(n) for n in [*sys.modules] if n[:5] == 'rlvr.']", "sys.modules['rlvr."),
    ],
)
def test_what_python_shares_is_put_back_after_an_import(importable_site, act, said):
    """A plugin that overwrites it breaks nothing but itself, also where its import then fails."""
    importable_site.add("bad", f"import builtins, sys\nRLVR_API = 1\n{act}\n")
    before = dict(vars(builtins)), dict(sys.modules)

    host = PluginHost.load({"RLVR_PLUGINS": "bad"})

    (status,) = [p for p in host.plugins if p.name == "bad"]
    assert status.status == "broken"
    assert status.reason.startswith(f"its import changed {said}" if said else ("Zero", "BaseEx"))
    assert vars(builtins).items() >= before[0].items()
    assert sys.modules.items() >= before[1].items()


def test_people_are_told_of_a_slow_import(importable_site, monkeypatch, capsys):
    """Its name, on standard error, while it goes on."""
    monkeypatch.setattr(loading, "_SLOW_S", 0.05)
    importable_site.add("slow", "import time\ntime.sleep(0.2)\nRLVR_API = 1\n")

    PluginHost.load({"RLVR_PLUGINS": "slow"})

    assert capsys.readouterr().err == "rlvr: still importing the plugin slow\n"


def test_announcements_reach_every_observer_in_order(host):
    """Observers are called one at a time, first registered first."""
    told = []
    first, second = Observer(told), Observer(told)
    host.register_observer(first, "first")
    host.register_observer(second, "second")

    assert step(host, 3) == []
    assert told == [(first, 3), (second, 3)]


def test_a_failing_observer_is_reported_and_stops_nobody(host):
    """The others still hear of it, and the caller learns who failed and why."""
    told = []
    host.register_observer(Failing(), "full-disk")
    host.register_observer(Observer(told), "after")

    ((name, error),) = step(host, 1)

    assert name == "full-disk"
    assert str(error) == "no space left"
    assert len(told) == 1


def test_plugins_add_to_the_summary_of_a_run(host, tmp_path, capsys):
    """One that fails takes nothing from the others, and is named."""

    class Adds:
        @hookimpl
        def rlvr_run_summarised(self, directory, entries):
            entries["mine"] = {"in": directory.name}

    class Fails:
        @hookimpl
        def rlvr_run_summarised(self):
            raise RuntimeError("no ledger")

    host.register_observer(Fails(), "fails")
    host.register_observer(Adds(), "adds")

    assert _of_plugins(host, tmp_path) == {"mine": {"in": tmp_path.name}}
    assert "no ledger" in "".join(capsys.readouterr())


def test_ctrl_c_passes_through_an_announcement(host):
    """KeyboardInterrupt is the person's, not the observer's."""

    class Interrupted:
        @hookimpl
        def rlvr_step_finished(self):
            raise KeyboardInterrupt

    host.register_observer(Interrupted(), "interrupted")

    with pytest.raises(KeyboardInterrupt):
        step(host, 1)


def test_an_observer_with_an_unknown_hook_is_refused(host):
    """A misspelt method would never be called, so it is an error at once."""

    class Misspelt:
        @hookimpl
        def rlvr_step_finishd(self, step):
            pass

    with pytest.raises(PluginError, match="did you mean 'rlvr_step_finished'"):
        host.register_observer(Misspelt(), "misspelt")
    assert step(host, 1) == []


def test_the_first_advice_counts(host):
    """One answer is enough; a plugin that fails to answer is passed over."""

    class Mute:
        @hookimpl
        def rlvr_explain_error(self, error):
            raise ValueError

    class Knowing:
        @hookimpl
        def rlvr_explain_error(self, error):
            return Advice(message=str(error), exit_code=ExitCode.BACKEND)

    host.register_observer(Mute(), "mute")
    host.register_observer(Knowing(), "knowing")

    advice = host.explain_error(RuntimeError("out of memory"))

    assert advice == Advice(message="out of memory", exit_code=ExitCode.BACKEND)


def test_no_advice_where_nobody_knows(host):
    """None means that nobody recognised the error."""
    assert host.explain_error(RuntimeError("what?")) is None


def test_strict_raises(importable_site):
    """RLVR_STRICT_PLUGINS turns the first failure into an error, with its cause."""
    importable_site.add("bad", "RLVR_API = 1\n1 / 0\n")

    with pytest.raises(PluginError) as caught:
        PluginHost.load({"RLVR_PLUGINS": "bad", "RLVR_STRICT_PLUGINS": "1"})

    assert isinstance(caught.value.__cause__, ZeroDivisionError)
