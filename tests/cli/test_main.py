"""The command line as a whole: help, mistakes, exit codes."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

import rlvr
from rlvr.cli.main import COMMANDS, main
from rlvr.cli.parser import CommandParser

RLVR = (sys.executable, "-m", "rlvr.cli.main")
HEAVY = {"torch", "tinker", "docker", "cocotb", "chess", "transformers", "numpy", "structlog"}


def test_help_names_every_command_and_ends_with_three_examples(plugin_site):
    """A person sees on one screen what there is and what to paste."""
    done = plugin_site.rlvr("--help")

    assert done.returncode == 0
    assert all(f"  {command} " in done.stdout for command in COMMANDS)
    assert len(done.stdout.splitlines()) <= 35
    *_, title, one, two, three = done.stdout.rstrip().splitlines()
    assert title == "examples:"
    assert all(line.startswith("  rlvr ") for line in (one, two, three))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_fits_a_screen(plugin_site, command):
    """Every command explains itself, with three examples at the end."""
    done = plugin_site.rlvr(command, "--help")

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) <= 50
    *_, title, one, two, three = done.stdout.rstrip().splitlines()
    assert title == "examples:"
    assert all("rlvr " in line for line in (one, two, three))


def test_help_imports_nothing_heavy():
    """Help loads neither plugins nor the libraries that make commands slow."""
    code = (
        "import sys\nfrom rlvr.cli.main import main\nmain(['--help'])\n"
        "print(sorted(sys.modules), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )

    loaded = {name.strip("' [],") for name in done.stderr.split()}
    assert not HEAVY & loaded
    assert not {
        name
        for name in loaded
        if name.startswith(("rlvr_", "rlvr.training", "rlvr.assembly", "rlvr.plugins"))
    }


@pytest.mark.serial
def test_help_is_fast():
    """`rlvr --help` takes less than 0.3 s; best of seven, for the machine has other work."""

    def once() -> float:
        started = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "rlvr.cli.main", "--help"],
            capture_output=True,
            check=True,
            timeout=240,
        )
        return time.perf_counter() - started

    assert min(once() for _ in range(7)) < 0.3


def test_version(plugin_site):
    """--version prints name and version on standard output."""
    assert plugin_site.rlvr("--version").stdout == f"rlvr {rlvr.__version__}\n"


def test_no_command_shows_help(plugin_site):
    """`rlvr` alone is a question, not a mistake."""
    done = plugin_site.rlvr()

    assert done.returncode == 0
    assert "commands:" in done.stdout


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["plugins", "lst"], "did you mean 'list'?"),
        (["run", "--plugn", "x"], "did you mean '--plugin'?"),
        (["plugins", "list", "--jsn"], "did you mean '--json'?"),
        (["run", "--task", "toy", "--train.lr=3"], "train.lr=3"),
        (["run", "toy"], "'toy' is not key=value"),
        (["run", "--task", "toy", "train.lrr=3"], "did you mean 'train.lr'?"),
        (["run", "--steps", "many"], "invalid int value: 'many'"),
        (["plugins"], "list|show"),
        (["--jso"], "unknown argument '--jso'"),
    ],
)
def test_mistakes_exit_2_with_a_hint(plugin_site, words, hint):
    """A misspelt command, flag or option is a usage error: a suggestion, no traceback."""
    done = plugin_site.rlvr(*words, "--out", "x") if "run" in words else plugin_site.rlvr(*words)

    assert done.returncode == 2
    assert hint in done.stderr
    assert done.stderr.startswith("rlvr: ")
    assert done.stderr.endswith("(exit 2)\n")
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_debug_shows_the_traceback_of_a_mistake(plugin_site):
    """--debug before or after the command, or RLVR_DEBUG=1."""
    before = plugin_site.rlvr("--debug", "run", "--task", "toy", "train.lrr=3")
    after = plugin_site.rlvr("run", "--task", "toy", "train.lrr=3", "--debug")
    variable = plugin_site.rlvr("run", "--task", "toy", "train.lrr=3", RLVR_DEBUG="1")

    assert [d.returncode for d in (before, after, variable)] == [2, 2, 2]
    assert all("Traceback" in done.stderr for done in (before, after, variable))


def test_a_missing_first_party_plugin_says_what_to_install(plugin_site):
    """The command of a plugin that is disabled or absent exits 3 with the remedy."""
    done = plugin_site.rlvr("run", "--plugin", "cvpd")

    assert done.returncode == 3
    assert "did you mean 'cvdp'?" in done.stderr


def test_help_of_a_plugin_shows_its_own_options(plugin_site):
    """`--help` beside `--task` or `--plugin` adds the options of what is named."""
    general = plugin_site.rlvr("run", "--help")
    narrowed = plugin_site.rlvr("run", "--task", "toy", "--help")

    assert "toy." not in general.stdout
    assert "toy.letters" in narrowed.stdout
    assert narrowed.stdout.rstrip().splitlines()[-4] == "examples:"


def test_help_of_an_unusable_plugin_is_still_help(plugin_site):
    """The reason stands in the help page; the exit code is that of help."""
    plugin_site.add("bad", "import a_module_that_is_not_installed\n")

    done = plugin_site.rlvr("run", "--plugin", "bad", "--help")

    assert done.returncode == 0
    assert "a_module_that_is_not_installed" in done.stdout
    assert "examples:" in done.stdout


def test_flags_may_stand_between_options(plugin_site):
    """key=value words and flags mix in any order."""
    done = plugin_site.rlvr(
        "config", "show", "train.lr=0.5", "--task", "toy", "run.steps=3", "--seed", "9", "--json"
    )

    assert done.returncode == 0, done.stderr
    assert '"value": 0.5' in done.stdout


def test_a_path_after_an_equals_sign_is_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shells leave the ~ of `--out=~/v.jsonl`; it made a folder of that name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()

    assert main(["score", "--plugin", "toy", "--golden", "--out=~/v.jsonl"]) == 0
    assert (tmp_path / "home" / "v.jsonl").is_file()
    assert [path.name for path in tmp_path.iterdir()] == ["home"]


def test_a_reader_that_goes_away_is_no_error(plugin_site):
    """`rlvr plugins list | head -0` prints no traceback."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*RLVR, "plugins", "list"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=240,
    )
    os.close(writing)

    assert "Error" not in done.stderr  # a busy machine may say that it is at work
    assert done.returncode == 141


SAYS = """
    from rlvr import TaskSpec, hookimpl

    RLVR_API = 1

    @hookimpl
    def rlvr_tasks():
        yield TaskSpec(name="t", target="m:T", reward="toy", summary="says \\xe9\\u6f22 \\x1b[31m")
"""


def test_any_text_can_be_shown_whatever_standard_output_holds(plugin_site):
    """An encoding without the character writes it out; JSON stays JSON."""
    plugin_site.add("says", SAYS)
    ascii_only = {"PYTHONIOENCODING": "ascii"}

    told = plugin_site.rlvr("plugins", "show", "says", **ascii_only)
    as_json = plugin_site.rlvr("plugins", "show", "says", "--json", **ascii_only)

    assert (told.returncode, as_json.returncode) == (0, 0), told.stderr + as_json.stderr
    assert r"says \xe9\u6f22" in told.stdout
    (task,) = json.loads(as_json.stdout)["offers"]["tasks"]
    assert task["summary"] == "says \xe9\u6f22 \x1b[31m"


def test_a_terminal_obeys_no_text_of_a_plugin(plugin_site):
    """Results too show control characters in place of sending them."""
    plugin_site.add("says", SAYS)
    ours, its = pty.openpty()

    subprocess.run(
        [*RLVR, "plugins", "show", "says"],
        stdout=its,
        env={**os.environ, "PYTHONPATH": str(plugin_site.path)},
        check=True,
        timeout=240,
    )
    told = os.read(ours, 65536).decode()
    os.close(its)
    os.close(ours)
    assert r"\x1b[31m" in told
    assert "\x1b" not in told


def test_help_keeps_the_colours_that_argparse_gives_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.14 on, on a terminal."""
    told = io.StringIO()
    monkeypatch.setattr(told, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stdout", told)
    monkeypatch.setattr(CommandParser, "format_help", lambda _: "\x1b[1musage\x1b[0m")

    assert main(["score", "--help"]) == 0
    assert told.getvalue() == "\x1b[1musage\x1b[0m"
    assert main(["plugins", "list"]) == 0
    assert sys.stdout is told


@pytest.mark.parametrize("words", [("plugins", "list"), ("--help",), ("score", "--help")])
def test_a_full_disk_behind_standard_output_is_no_bug(words):
    """What was asked, found, and to do; no traceback, and the exit code that is told."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*RLVR, *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=240,
        )

    assert done.returncode == 6
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_full_disk_behind_standard_error_costs_the_lines_alone(tmp_path):
    """The command does its work: a night's training is not lost for a log."""
    with open("/dev/full", "w") as full:
        words = [*RLVR, "runs", "list"]  # "no runs in ..." goes there
        done = subprocess.run(words, stderr=full, cwd=tmp_path, check=False, timeout=240)

    assert done.returncode == 0


def test_a_closed_terminal_costs_the_lines_of_the_log_alone():
    """Where nothing ends the command as well: `disown`, or SIGHUP ignored."""
    ours, its = pty.openpty()
    code = "from rlvr.log import get; log = get('x'); log.error('told'); log.info('as_well')"
    with open(its, "w") as terminal:
        os.close(ours)
        words = [sys.executable, "-c", code]
        assert not subprocess.run(words, stderr=terminal, check=False, timeout=240).returncode


@pytest.mark.parametrize(
    "words",
    ["score --golden", "eval --completions a.jsonl", "audit", "run", "rescore r", "cvdp export"],
)
def test_a_dash_is_no_file_to_write(words, tmp_path, monkeypatch, capsys):
    """A file of that name is hard to remove, and is not what was meant: standard output."""
    for name in ("rlvr_cvdp", "rlvr_torch", "rlvr_algos"):
        pytest.importorskip(name, reason=f"{name} is not installed")
    monkeypatch.chdir(tmp_path)
    Path("a.jsonl").write_text('{"id": "toy_a", "completion": "aaaa"}\n')
    Path("r").mkdir()
    Path("r/run.json").write_text('{"config": {"run.task": "toy", "run.reward": "toy"}}')
    plugin = ["--plugin", "toy"] if words.split()[0] in ("score", "eval", "audit", "run") else []

    assert main([*words.split(), *plugin, "--out", "-"]) == 2
    assert "results were to be written to -.\n  found: no name of a file" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "r"]


@pytest.mark.parametrize(
    ("command", "reads"),
    [("score", "--completions"), ("eval", "--completions"), ("audit", "--dataset")],
)
def test_no_command_writes_over_what_it_reads(command, reads, tmp_path, capsys):
    """A person's answers are worth more than their verdicts."""
    file = tmp_path / "answers.jsonl"
    file.write_text('{"id": "toy_a", "completion": "aaaa"}\n')

    assert main([command, "--plugin", "toy", reads, str(file), "--out", str(file)]) == 2
    assert f"it is what {reads[2:]} names, which would be lost" in capsys.readouterr().err
    assert "aaaa" in file.read_text()


@pytest.mark.parametrize("kind", [RuntimeError, GeneratorExit, BaseException])
def test_a_bug_is_said_with_its_traceback(kind, monkeypatch, capsys):
    """Of any class; Python's own end of a process would have no sentence and no exit code."""

    def broken(_args):
        raise kind("ours")

    monkeypatch.setattr("rlvr.cli.doctor.main", broken)

    assert main(["doctor"]) == 1
    said = capsys.readouterr().err
    assert "Traceback" in said
    assert f"rlvr: this is a bug: {kind.__name__}: ours (exit 1)" in said


@pytest.mark.parametrize(
    "words", [["score", "--plugin", "toy", "--golden"], ["doctor"], ["plugins", "check", "torch"]]
)
def test_a_folder_that_was_removed_is_no_place_to_run_in(words, tmp_path, monkeypatch, capsys):
    """It is said before a library in C ends the process with a code of its own."""
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert main(words) == 4
    assert (
        "the working directory was to be used.\n  found: it was removed" in capsys.readouterr().err
    )


def test_ctrl_c_exits_130(plugin_site):
    """An interrupt is said in one line."""
    plugin_site.add(
        "slow",
        """
        from rlvr import hookimpl
        from rlvr import CommandSpec
        RLVR_API = 1

        @hookimpl
        def rlvr_commands():
            yield CommandSpec(name="wait", target=__name__ + ":wait")

        def wait(argv):
            raise KeyboardInterrupt
        """,
    )

    done = plugin_site.rlvr("slow", "wait")

    assert done.returncode == 130
    assert done.stderr == "rlvr: interrupted (exit 130)\n"
