"""`rlvr eval` on files of answers, and options of parts as flags, as a person uses them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_process import start_rlvr

from tests.conftest import LEAN, PluginSite

Call = Callable[..., "subprocess.CompletedProcess[str]"]
EVAL = ("eval", "--plugin", "toy", "--completions", "a.jsonl")


def write(folder: Path, *lines: object) -> None:
    (folder / "a.jsonl").write_text(
        "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
    )


def line(letter: str, text: str) -> dict[str, str]:
    return {"id": f"toy_{letter}", "completion": text}


def test_answers_of_others_are_evaluated_without_a_model(rlvr: Call, tmp_path: Path) -> None:
    """Two samples a problem, one problem without, a broken line, a foreign id: all told."""
    write(
        tmp_path,
        line("a", "aaaa"), line("b", "x"), line("c", "cccc"), "{",
        line("a", "aaaa"), line("b", "bbbb"), line("z", "zzzz"),
    )  # fmt: skip

    done = rlvr(*EVAL, "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)

    assert (summary["n"], summary["problems"], summary["samples"]) == (2, 4, 8)
    assert summary["pass_at"] == {"1": 0.5, "2": 0.75}
    assert summary["runs"] == [0.5, 0.5]
    assert (summary["missing"], summary["missing_counts_as"]) == (3, "wrong")
    assert len(summary["unusable"]) == 2
    assert "a.jsonl: line 4: not JSON" in done.stderr
    assert "line 7: no problem 'toy_z'" in done.stderr


def test_a_wrong_option_is_told_to_be_the_command_lines(rlvr: Call, tmp_path: Path) -> None:
    """The Python function gives options of its own the same way."""
    write(tmp_path, line("a", "aaaa"))

    assert "eval.samples cannot be 'x' (from command line)" in rlvr(*EVAL, "eval.samples=x").stderr


def test_missing_answers_can_be_left_out(rlvr: Call, tmp_path: Path) -> None:
    """`--missing skip` reports what is there, and says that something is missing."""
    write(tmp_path, line("a", "aaaa"), line("b", "x"))

    done = rlvr(*EVAL, "--missing", "skip")

    assert done.returncode == 0, done.stderr
    assert "pass@1 n=1: 50.00%" in done.stdout
    assert "2 missing answers counted not at all" in done.stdout
    assert "some lack samples" not in done.stdout  # one run, so there is no spread to quote


def test_the_table(rlvr: Call, tmp_path: Path) -> None:
    """One line a slice, the line to quote, and what is in no number."""
    write(tmp_path, *[line(letter, letter * 4) for letter in "abcabd"])

    lines = rlvr(*EVAL).stdout.splitlines()

    assert lines[0].split() == [
        "LABEL", "VALUE", "PROBLEMS", "SAMPLES", "PASS@1", "95", "%", "INTERVAL", "STD", "OF",
        "REPEATS", "TOKENS", "VERIFY", "S",
    ]  # fmt: skip
    assert lines[1].split()[:4] == ["all", "4", "8", "75.00%"]
    assert "pass@1 n=2: 75.00% ± 35.36% (mean and standard deviation of 2 repeats)" in lines


def test_runs_that_lack_samples_say_so(rlvr: Call, tmp_path: Path) -> None:
    """Two answers to one problem and one to another: the second run is of one problem alone."""
    write(tmp_path, line("a", "aaaa"), line("a", "x"), line("b", "bbbb"))

    done = rlvr(*EVAL, "--missing", "skip")

    assert "some lack samples: quote the interval below instead" in done.stdout
    assert "pass@1 75.0%" in done.stdout


def test_failed_verifications_past_the_limit_exit_5(rlvr: Call, tmp_path: Path) -> None:
    """The report is printed all the same, and no such answer is wrong."""
    write(tmp_path, *[line(letter, letter * 4) for letter in "abcd"])

    done = rlvr(*EVAL, "--json", "--fail-share", "1.0")
    allowed = rlvr(*EVAL, "--json", "--fail-share=1.0", "verify.max_failures=1")

    assert (done.returncode, allowed.returncode) == (5, 0)
    assert "4 of 4 verifications could not run" in done.stderr
    summary = json.loads(done.stdout)
    assert (summary["failed"], summary["samples"], summary["pass_at"]) == (4, 0, {})


def test_options_of_the_task_are_flags(rlvr: Call) -> None:
    """`config show` names the command line as their origin; help lists them."""
    shown = rlvr("config", "show", "--plugin", "toy", "--for", "score", "--letters", "xy", "--json")
    rows = {row["key"]: row for row in json.loads(shown.stdout)}
    assert (rows["toy.letters"]["value"], rows["toy.letters"]["origin"]) == ("xy", "command line")

    assert "toy.fail_share, --fail-share" in rlvr("eval", "--plugin", "toy", "--help").stdout
    scored = rlvr("score", "--plugin", "toy", "--golden", "--letters", "xyz", "--json")
    assert json.loads(scored.stdout.splitlines()[-1])["answers"] == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "starter"], "would sample a model"),
        (["--backend", "torch"], "would sample a model"),
        (["--samples", "0"], "set --samples 1 or more"),
        (["--letter", "xy"], "did you mean '--letters'?"),
        (["--missing", "perhaps"], "invalid choice"),
    ],
)
def test_what_does_not_go_together_is_refused(
    rlvr: Call, tmp_path: Path, words: list[str], message: str
) -> None:
    """Exit 2: no flag is accepted and ignored."""
    write(tmp_path, line("a", "aaaa"))

    done = rlvr(*EVAL, *words)

    assert done.returncode == 2
    assert message in done.stderr


def test_missing_needs_a_file_of_answers(rlvr: Call) -> None:
    """A model's samples are never missing."""
    done = rlvr("eval", "--plugin", "toy", "--missing", "skip")

    assert done.returncode == 2
    assert "no --completions" in done.stderr


def test_a_file_without_any_answer_is_no_zero(rlvr: Call, tmp_path: Path) -> None:
    """The wrong file must not read as a model that is always wrong."""
    write(tmp_path, {"id": "other_0001", "completion": "x"})

    done = rlvr(*EVAL)

    assert done.returncode == 2
    assert "none for any of the 4 problems" in done.stderr


SLOW = """
    import asyncio, pathlib
    from rlvr import RewardFn, RewardSpec, hookimpl

    RLVR_API = 1

    class Slow(RewardFn):
        def __init__(self, *given):
            pass

        async def __aenter__(self):
            return self

        async def __aexit__(self, *_):
            pathlib.Path("closed").touch()

        async def __call__(self, problem, trajectory):
            pathlib.Path("asked").touch()
            await asyncio.sleep(600)

    @hookimpl
    def rlvr_rewards():
        yield RewardSpec(name="slow", target=__name__ + ":Slow", summary="Takes ten minutes")
"""


@pytest.mark.parametrize(
    ("words", "number"),
    [
        (("eval", "--completions", "a.jsonl"), signal.SIGTERM),
        (("score", "--golden"), signal.SIGHUP),
        (("audit",), signal.SIGTERM),
    ],
    ids=["eval", "score", "audit"],
)
def test_a_signal_closes_what_is_open(
    words: tuple[str, ...], number: signal.Signals, plugin_site: PluginSite
) -> None:
    """A service that is stopped and a terminal that is closed end a command as Ctrl-C does."""
    plugin_site.add("slow", SLOW)
    write(plugin_site.home, line("a", "aaaa"))
    env = {**os.environ, **LEAN, "PYTHONPATH": str(plugin_site.path), "OMP_NUM_THREADS": "1"}
    words = (*words, "--plugin", "toy", "run.reward=slow")
    running = start_rlvr(*words, cwd=plugin_site.home, env=env)
    while not (plugin_site.home / "asked").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.02)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 130, said
    assert said.endswith("rlvr: interrupted (exit 130)\n")
    assert (plugin_site.home / "closed").exists()
