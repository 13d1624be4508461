"""`rlvr plugins` against installed plugins that work, break, clash and lie."""

from __future__ import annotations

import json
import re

import pytest

from rlvr.cli.main import main

GOOD = """
    from rlvr import hookimpl
    from rlvr import CommandSpec, TaskSpec

    RLVR_API = 1

    @hookimpl
    def rlvr_tasks():
        yield TaskSpec(name="sums", target="nowhere:Task", summary="Add numbers")

    @hookimpl
    def rlvr_commands():
        yield CommandSpec(name="hello", target=__name__ + ":hello", summary="Say hello")
        yield CommandSpec(name="crash", target=__name__ + ":crash")

    def hello(argv):
        print("hello", *argv)
        return 0

    def crash(argv):
        raise RuntimeError("the plugin's own bug")
"""

BROKEN = {
    "import error": ("import a_module_that_is_not_installed\n", "a_module_that_is_not_installed"),
    "any exception": ("RLVR_API = 1\nraise ValueError('at import')\n", "ValueError: at import"),
    "exit": ("import sys\nsys.exit(3)\n", "SystemExit"),
    "syntax": ("def (\n", "SyntaxError"),
    "no API": ("x = 1\n", "no RLVR_API"),
    "unknown hook": (
        "from rlvr import hookimpl\nRLVR_API = 1\n@hookimpl\ndef rlvr_taks():\n    return []\n",
        "uses unknown hook 'rlvr_taks', did you mean 'rlvr_tasks'?",
    ),
    "unknown argument": (
        "from rlvr import hookimpl\nRLVR_API = 1\n"
        "@hookimpl\ndef rlvr_run_started(run, colour):\n    pass\n",
        "colour",
    ),
    "hook raises": (
        "from rlvr import hookimpl\nRLVR_API = 1\n@hookimpl\ndef rlvr_tasks():\n    1 / 0\n",
        "rlvr_tasks: ZeroDivisionError",
    ),
    "wrong record": (
        "from rlvr import hookimpl\nfrom rlvr.specs import RewardSpec\nRLVR_API = 1\n"
        "@hookimpl\ndef rlvr_tasks():\n    yield RewardSpec(name='x', target='a:b')\n",
        "rlvr_tasks yielded RewardSpec, expected TaskSpec",
    ),
    "no iterable": (
        "from rlvr import hookimpl\nRLVR_API = 1\n@hookimpl\ndef rlvr_tasks():\n    pass\n",
        "rlvr_tasks gave NoneType, expected an iterable of TaskSpec",
    ),
    "async hook": (
        "from rlvr import hookimpl\nRLVR_API = 1\n"
        "@hookimpl\nasync def rlvr_tasks():\n    return []\n",
        "rlvr_tasks is async",
    ),
    "wrapper": (
        "from rlvr import hookimpl\nRLVR_API = 1\n"
        "@hookimpl(wrapper=True)\ndef rlvr_tasks():\n    return (yield)\n",
        "rlvr_tasks is a hook wrapper",
    ),
    "one name twice": (
        "from rlvr import hookimpl\nfrom rlvr.specs import TaskSpec\nRLVR_API = 1\n"
        "@hookimpl\ndef rlvr_tasks():\n    return [TaskSpec(name='x', target='a:b')] * 2\n",
        "rlvr_tasks yielded the name 'x' twice",
    ),
}


def listed(site, *words, **environ):
    """What `rlvr plugins list --json` says, by plugin name."""
    done = site.rlvr("plugins", "list", "--json", *words, **environ)
    assert done.returncode == 0, done.stderr
    return {plugin["name"]: plugin for plugin in json.loads(done.stdout)}


def test_a_working_plugin_is_active_with_its_offers(plugin_site):
    """An installed distribution is found by its entry point and listed with what it offers."""
    plugin_site.add("sums", GOOD, distribution="their-sums", version="2.5")

    sums = listed(plugin_site)["sums"]

    assert (sums["distribution"], sums["version"]) == ("their-sums", "2.5")
    assert sums["status"] == "active"
    assert sums["offers"] == {"tasks": ["sums"], "commands": ["hello", "crash"]}


def test_the_table_has_the_columns_of_the_design(plugin_site):
    """People read name, distribution with version, status and offers (or the reason)."""
    plugin_site.add("sums", GOOD)
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    done = plugin_site.rlvr("plugins", "list")

    header, *rows = done.stdout.splitlines()
    assert header.split() == ["NAME", "DISTRIBUTION", "STATUS", "OFFERS"]
    row = next(row for row in rows if row.startswith("sums"))
    assert row.split("  ")[0] == "sums"
    assert "rlvr-sums 1.0" in row
    assert "tasks: sums · commands: hello, crash" in row
    bad = next(row for row in rows if row.startswith("bad"))
    assert bad.endswith("pip install --force-reinstall rlvr-bad")


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_plugin_breaks_only_itself(plugin_site, case):
    """Whatever a plugin does wrong, listing exits 0, says why, and its neighbour works."""
    source, reason = BROKEN[case]
    plugin_site.add("bad", source)
    plugin_site.add("sums", GOOD)

    plugins = listed(plugin_site)

    assert plugins["bad"]["status"] == "broken"
    assert reason in plugins["bad"]["reason"]
    assert plugins["bad"]["offers"] == {}
    assert plugins["sums"]["status"] == "active"


@pytest.mark.parametrize("case", BROKEN)
def test_help_never_fails(plugin_site, case):
    """`rlvr --help` loads no plugin, so no plugin can break it."""
    plugin_site.add("bad", BROKEN[case][0])

    done = plugin_site.rlvr("--help")

    assert done.returncode == 0
    assert done.stderr == ""
    assert "examples:" in done.stdout


def test_a_plugin_of_a_newer_api_is_incompatible(plugin_site):
    """Another API version is told apart from a bug, with what to install."""
    plugin_site.add("next", "RLVR_API = 2\n", version="3.4.5")

    status = listed(plugin_site)["next"]

    assert status["status"] == "incompatible"
    assert "built for plugin API 2" in status["reason"]
    assert "upgrade rlvr, or install rlvr-next<3.4" in status["reason"]


def test_a_newer_api_is_recognised_where_the_import_fails_for_it(plugin_site):
    """A plugin that imports what only a later rlvr has is incompatible, not broken."""
    plugin_site.add("next", "RLVR_API = 2\nfrom rlvr.specs import FromTheFuture\n")

    assert listed(plugin_site)["next"]["status"] == "incompatible"


def test_an_older_api_says_to_upgrade_the_plugin(plugin_site):
    """The remedy for an old plugin is a newer plugin."""
    plugin_site.add("old", "RLVR_API = 0\n")

    assert "pip install --upgrade rlvr-old" in listed(plugin_site)["old"]["reason"]


def test_two_distributions_of_one_plugin_name_conflict(plugin_site):
    """Neither wins by chance; each names the other."""
    plugin_site.add("sums", GOOD, distribution="one")
    plugin_site.add("sums", GOOD, distribution="two")

    done = plugin_site.rlvr("plugins", "list", "--json")

    sums = [p for p in json.loads(done.stdout) if p["name"] == "sums"]
    assert [p["status"] for p in sums] == ["conflict", "conflict"]
    assert "two 1.0" in sums[0]["reason"]
    assert "one 1.0" in sums[1]["reason"]
    assert "is in conflict: the name" in plugin_site.rlvr("run", "--plugin", "sums").stderr


def test_nobody_takes_the_builtin_plugins_name(plugin_site):
    """A stranger that calls itself builtin does not replace the core's own parts."""
    plugin_site.add("builtin", GOOD, distribution="stranger")

    done = plugin_site.rlvr("plugins", "list", "--json")

    states = {p["distribution"]: p["status"] for p in json.loads(done.stdout)}
    assert states["rlvr"] == "active"
    assert states["stranger"] == "conflict"


def test_damaged_metadata_hides_no_other_plugin(plugin_site):
    """Distributions are read one at a time."""
    plugin_site.add("sums", GOOD)
    info = plugin_site.path / "damaged-1.0.dist-info"
    info.mkdir()
    (info / "entry_points.txt").write_text("[rlvr]\nno equals sign here\n", encoding="utf-8")

    plugins = listed(plugin_site)

    assert plugins["sums"]["status"] == "active"
    assert plugins["damaged"]["status"] == "broken"


def test_disabled_plugins_are_not_imported(plugin_site):
    """RLVR_DISABLE_PLUGINS keeps even a crashing module from running."""
    plugin_site.add("bad", "raise SystemExit('imported')\n")

    bad = listed(plugin_site, RLVR_DISABLE_PLUGINS="bad,sums")["bad"]

    assert (bad["status"], bad["reason"]) == ("disabled", "disabled by RLVR_DISABLE_PLUGINS")


def test_only_named_plugins_load(plugin_site):
    """RLVR_PLUGINS is the whole list; empty means none but the built-in one."""
    plugin_site.add("sums", GOOD)
    plugin_site.add("more", GOOD)

    some = listed(plugin_site, RLVR_PLUGINS="sums")
    none = listed(plugin_site, RLVR_PLUGINS="")

    assert some["sums"]["status"] == "active"
    assert some["more"]["status"] == "disabled"
    assert {p["status"] for n, p in none.items() if n != "builtin"} == {"disabled"}
    assert none["builtin"]["status"] == "active"


def test_the_builtin_plugin_cannot_be_disabled(plugin_site):
    """The core's parts are always there."""
    assert listed(plugin_site, RLVR_DISABLE_PLUGINS="builtin")["builtin"]["status"] == "active"


def test_a_control_variable_that_names_nothing_is_reported(plugin_site):
    """A typing mistake in RLVR_PLUGINS is not silently an empty list."""
    plugin_site.add("sums", GOOD)

    done = plugin_site.rlvr("plugins", "list", RLVR_PLUGINS="summs")

    assert done.returncode == 0
    assert "RLVR_PLUGINS names 'summs', which is not installed. did you mean 'sums'?" in done.stderr


def test_strict_stops_at_the_first_failure(plugin_site):
    """RLVR_STRICT_PLUGINS=1 is for plugin authors: exit 3, with the traceback."""
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    done = plugin_site.rlvr("plugins", "list", RLVR_STRICT_PLUGINS="1")

    assert done.returncode == 3
    assert "plugin 'bad' (rlvr-bad 1.0) is broken" in done.stderr
    assert "Traceback" in done.stderr


def test_trace_prints_each_hook_call(plugin_site):
    """RLVR_TRACE_PLUGINS=1 shows which plugin was asked what, on standard error."""
    plugin_site.add("sums", GOOD)

    done = plugin_site.rlvr("plugins", "list", "--json", RLVR_TRACE_PLUGINS="1")

    assert "rlvr: trace: rlvr_tasks -> sums" in done.stderr
    json.loads(done.stdout)


def test_list_by_hook(plugin_site):
    """--hook keeps the plugins that implement it; an unknown hook is a usage error."""
    plugin_site.add("sums", GOOD)

    with_commands = listed(plugin_site, "--hook", "rlvr_commands")
    wrong = plugin_site.rlvr("plugins", "list", "--hook", "rlvr_comands")

    assert "sums" in with_commands
    assert "builtin" not in with_commands
    assert wrong.returncode == 2
    assert "did you mean 'rlvr_commands'?" in wrong.stderr


def test_show_tells_offers_and_options(plugin_site):
    """`show` prints each offer's summary and, where it has them, options with defaults."""
    done = plugin_site.rlvr("plugins", "show", "builtin", "--json")

    offers = json.loads(done.stdout)["offers"]
    toy, curricula = offers["tasks"][0], {c["name"]: c for c in offers["curricula"]}
    assert done.returncode == 0
    assert toy["name"] == "toy"
    assert {"key", "default", "help", "type"} <= toy["options"][0].keys()
    assert set(curricula) == {"epochs", "difficulty", "pass-rate", "strength"}
    assert [o["key"] for o in curricula["strength"]["options"]] == ["curriculum.audit"]


def test_show_of_a_broken_plugin_says_why(plugin_site):
    """Showing works for every status, since that is when it is needed."""
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    done = plugin_site.rlvr("plugins", "show", "bad")

    assert done.returncode == 0
    assert "broken" in done.stdout
    assert "a_module_that_is_not_installed" in done.stdout


def test_show_of_an_unknown_plugin(plugin_site):
    """Exit 3 and the nearest name."""
    done = plugin_site.rlvr("plugins", "show", "bultin")

    assert done.returncode == 3
    assert "did you mean 'builtin'?" in done.stderr


def test_what_a_plugins_command_logs_stays_out_of_its_results(plugin_site):
    """Logs go to standard error also where the plugin logs by structlog itself."""
    log = "import structlog; structlog.get_logger().info('heard')"
    plugin_site.add("sums", GOOD.replace('print("hello", *argv)', f'{log}; print("hello", *argv)'))

    done = plugin_site.rlvr("sums", "hello")

    assert done.stdout == "hello\n"
    assert "heard" in done.stderr


def test_a_plugins_command_runs(plugin_site):
    """`rlvr PLUGIN COMMAND WORDS` passes the words on and returns the command's exit code."""
    plugin_site.add("sums", GOOD)

    done = plugin_site.rlvr("sums", "hello", "you", "--flag")

    assert done.returncode == 0
    assert done.stdout == "hello you --flag\n"


PARSED = """
    import argparse, sys

    def hello(argv):
        parser = argparse.ArgumentParser(prog="rlvr sums hello")
        verbs = parser.add_subparsers(dest="verb", required=True)
        say = verbs.add_parser("say")
        say.add_argument("--loud", choices=["yes", "no"])
        say.add_argument("count", type=int)
        parser.parse_args(argv)
        sys.exit("nothing to say\\n")
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "rlvr: the following arguments are required: verb"),
        (["sya"], "did you mean 'say'?"),
        (["say"], "rlvr: the following arguments are required: count"),
        (["say", "x"], "rlvr: argument count: invalid int value: 'x'"),
        (["say", "1", "--lod", "no"], "did you mean '--loud'?"),
        (["say", "1", "--loud", "nay"], "there are: yes, no"),
        (["say", "1", "2"], "'2'"),
        (["say", "1"], "rlvr: nothing to say"),
    ],
)
def test_a_plugins_own_parser_refuses_as_ours_does(plugin_site, words, said):
    """One message that begins with `rlvr:` and ends with the code; no usage of argparse's."""
    plugin_site.add("sums", GOOD.replace("def hello(argv):", "def unused(argv):") + PARSED)

    done = plugin_site.rlvr("sums", "hello", *words)

    assert done.returncode == 2
    assert said in done.stderr
    assert done.stderr.startswith("rlvr: ")
    assert done.stderr.rstrip().endswith("(exit 2)")
    assert "usage:" not in done.stderr
    assert "choose from" not in done.stderr


def test_a_plugins_help_is_its_own(plugin_site):
    """`--help` is no mistake."""
    plugin_site.add("sums", GOOD.replace("def hello(argv):", "def unused(argv):") + PARSED)

    done = plugin_site.rlvr("sums", "hello", "say", "--help")

    assert (done.returncode, done.stderr) == (0, "")
    assert "--loud" in done.stdout


def test_a_plugins_commands_are_listed(plugin_site):
    """`rlvr PLUGIN` alone shows what it can do."""
    plugin_site.add("sums", GOOD)

    done = plugin_site.rlvr("sums", "--help")

    assert done.returncode == 0
    assert ["hello", "Say", "hello"] in [line.split() for line in done.stdout.splitlines()]


def test_a_plugins_unknown_command(plugin_site):
    """Exit 2 with the nearest command."""
    plugin_site.add("sums", GOOD)

    done = plugin_site.rlvr("sums", "helo")

    assert done.returncode == 2
    assert "did you mean 'hello'?" in done.stderr


def test_a_command_of_a_broken_plugin(plugin_site):
    """Exit 3 with the plugin's reason; the traceback only with --debug."""
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    plain = plugin_site.rlvr("bad", "hello")
    debug = plugin_site.rlvr("--debug", "bad", "hello")

    assert plain.returncode == debug.returncode == 3
    assert "a_module_that_is_not_installed" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


@pytest.mark.parametrize(
    "error", ["RuntimeError('own')", "StopIteration()", "GeneratorExit()",
              "BrokenPipeError(32, 'gone')", "__import__('asyncio').CancelledError()",
              "type('Own', (BaseException,), {})('own')"],
)  # fmt: skip
def test_a_crash_in_a_plugins_command_is_its_fault(error, site_here, capsys):
    """Plugin, command and line are named; a pipe of its own is not that of the results (3)."""
    site_here.add("sums", GOOD.replace('RuntimeError("the plugin\'s own bug")', error))

    assert main(["sums", "crash"]) == 3

    said = capsys.readouterr().err
    assert "rlvr: plugin 'sums', command 'crash' did not keep its promise" in said
    assert "site_rlvr_sums_sums.py:21)" in said
    assert "Traceback" not in said
    assert main(["--debug", "sums", "crash"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_a_plugin_may_explain_its_errors(plugin_site):
    """rlvr_explain_error turns an exception into advice with an exit code, and no traceback."""
    plugin_site.add(
        "sums",
        GOOD
        + """
    from rlvr import ExitCode
    from rlvr import Advice

    @hookimpl
    def rlvr_explain_error(error):
        if isinstance(error, RuntimeError):
            return Advice(message="plug it in", exit_code=ExitCode.PREREQUISITE)
    """,
    )

    done = plugin_site.rlvr("sums", "crash")

    assert done.returncode == 4
    assert done.stderr.strip() == "rlvr: plug it in    (exit 4)"


TOP = """
    from rlvr import hookimpl
    from rlvr import CommandSpec

    RLVR_API = 1

    @hookimpl
    def rlvr_commands():
        yield CommandSpec(name="serve", target=__name__ + ":serve", is_top=True)
        yield CommandSpec(name="hidden", target=__name__ + ":serve")

    def serve(argv):
        print("{name}", *argv)
        return 0
"""


def test_a_top_command_is_a_word_of_its_own(plugin_site):
    """`rlvr serve` and `rlvr sums serve` are the same; other commands need their plugin's name."""
    plugin_site.add("sums", TOP.replace("{name}", "sums"))

    for words in (("serve",), ("sums", "serve")):
        done = plugin_site.rlvr(*words, "--port", "8")
        assert (done.returncode, done.stdout) == (0, "sums --port 8\n"), done.stderr
    hidden = plugin_site.rlvr("hidden")
    assert hidden.returncode == 2
    assert "unknown command 'hidden'" in hidden.stderr


def test_a_top_command_is_suggested(plugin_site):
    """A mistyped word of a plugin's names the right one (exit 2)."""
    plugin_site.add("sums", TOP.replace("{name}", "sums"))

    done = plugin_site.rlvr("serv")

    assert done.returncode == 2
    assert "did you mean 'serve'?" in done.stderr


def test_only_plugins_with_commands_are_words(plugin_site):
    """A plugin of parts alone offers nothing to call, and is not suggested."""
    plugin_site.add("sums", GOOD)
    plugin_site.add("hues", "RLVR_API = 1\n")

    done = plugin_site.rlvr("hue")

    listed = re.search(r"there are: (.*)", done.stderr)[1].split(", ")
    assert done.returncode == 2
    assert "sums" in listed
    assert not {"hues", "builtin", "algos"} & set(listed)
    assert "did you mean" not in done.stderr


def test_a_top_command_of_two_plugins_is_refused(plugin_site):
    """Nothing is called by chance: both plugins are named, and how to call one (exit 3)."""
    plugin_site.add("sums", TOP.replace("{name}", "sums"))
    plugin_site.add("sets", TOP.replace("{name}", "sets"))

    done = plugin_site.rlvr("serve")

    assert done.returncode == 3
    assert "several plugins offer it" in done.stderr
    assert plugin_site.rlvr("sets", "serve").stdout == "sets\n"


def test_a_plugins_name_goes_before_a_top_command(plugin_site):
    """A plugin called like another one's command keeps its word."""
    plugin_site.add("sums", TOP.replace("{name}", "sums"))
    plugin_site.add("serve", GOOD)

    assert plugin_site.rlvr("serve", "hello").stdout == "hello\n"


def test_a_command_of_ours_says_what_to_install(plugin_site):
    """`rlvr tinker-server` where its plugin is not active names the distribution (exit 3)."""
    done = plugin_site.rlvr("tinker-server", RLVR_DISABLE_PLUGINS="tinker-api")

    assert done.returncode == 3
    assert re.search(r"pip install .*rlvr-tinker-server", done.stderr)
