"""`rlvr plugins check` ends by itself where a part does not, and says which one and where."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import start_rlvr

from rlvr.cli import main as command_line
from rlvr.cli.main import main
from rlvr.cli.plugins_deadline import Deadline
from rlvr.cli.plugins_new import files_of
from rlvr.cli.plugins_report import Report
from rlvr.cli.watchdog import Watchdog
from rlvr.cli.watched_child import Step, descendants
from rlvr.heartbeat import heartbeat
from tests.conftest import LEAN, PluginSite

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

JUDGE = "        answer, right = trajectory.completion"
SLEEP = "__import__('time').sleep(999)  # HERE"
LOOP = "while True: pass  # HERE"
IN_C = "sum(range(10**12))  # HERE"
SWALLOW = """while True:  # HERE
            try:
                import time; time.sleep(999)  # HERE
            except Exception:
                continue
"""
HANGS: dict[str, tuple[str, str, str, str]] = {
    # name: kind of the plugin, text that is replaced, what by, the part that is named
    "import": ("task", "RLVR_API = 1", f"RLVR_API = 1\n{IN_C}", ""),
    "build": ("task", '"""Problems: here, sums with 1."""',
              f"def __init__(self, *given):\n        {SLEEP}", "task"),
    "listing": ("task", "question = ", f"{SLEEP}\n                question = ", "task"),
    "endless": ("task", "for number in range(20):",
                "for number in iter(int, 1):  # HERE\n            if not number:\n"
                "                continue  # HERE", "task"),
    "reference": ("task", "return Trajectory.from_text(problem.id, problem.payload)", LOOP, "task"),
    "blocking": ("task", JUDGE, f"        {SLEEP}\n{JUDGE}", "task"),
    "waiting": ("task", JUDGE, "        import asyncio\n"
                f"        await asyncio.Event().wait()  # HERE\n{JUDGE}", "task"),
    "thread": ("task", JUDGE, "        import asyncio, time\n"
               f"        await asyncio.to_thread(time.sleep, 999)  # HERE\n{JUDGE}", "task"),
    "swallowing": ("task", JUDGE, f"        {SWALLOW}\n{JUDGE}", "task"),
    "child": ("task", JUDGE, "        import subprocess\n"
                f"        subprocess.Popen(['sleep', '987']).wait()  # HERE\n{JUDGE}", "task"),
    "locked": ("task", JUDGE, "        import subprocess\n"
               f"        subprocess.Popen(['sleep', '987'])\n        {IN_C}\n{JUDGE}", "task"),
    "leaves": ("task", JUDGE, f"        __import__('os')._exit(3)  # HERE\n{JUDGE}", "task"),
    "fault": ("task", JUDGE, f"        __import__('ctypes').string_at(0)  # HERE\n{JUDGE}", "task"),
    "crash": ("task", '"""Problems: here, sums with 1."""',
              "def __init__(self, *given):\n        import os; os._exit(0)", "task"),
    "stopped": ("task", JUDGE, "        import faulthandler, os, signal, subprocess\n"
                "        subprocess.Popen(['sleep', '987'], start_new_session=True)\n"
                "        faulthandler.cancel_dump_traceback_later()\n"
                f"        os.kill(os.getpid(), signal.SIGSTOP)\n{JUDGE}", "task"),
    "closed": ("task", JUDGE, "        import os, subprocess\n"
               "        subprocess.Popen(['sleep', '987'])\n"
               f"        os.closerange(3, 256)\n        os._exit(0)\n{JUDGE}", "task"),
    "lasting": ("task", "RLVR_API = 1", "RLVR_API = 1\nimport atexit, subprocess, time\n"
                "atexit.register(lambda: time.sleep(99))  # HERE\n"
                "print('noise'); subprocess.Popen(['sleep', '987'])\n", ""),
    "behind": ("task", JUDGE, "        import atexit, os, time\n"
               "        os.waitpid(os.fork() or os._exit(0), 0)\n"
               f"        atexit.register(time.sleep, 99)\n{JUDGE}", ""),
    "beside": ("task", JUDGE, "        import threading, time\n"
               f"        threading.Thread(target=time.sleep, args=(99,)).start()\n{JUDGE}", ""),
    "plain": ("task", "async def __call__", "def __call__", "task"),
    "regex": ("task", JUDGE, "        import re\n"
              f"        re.match('(a*)*b', 'a' * 40)  # HERE\n{JUDGE}", "task"),
    "open": ("task", "    async def __call__", "    async def __aenter__(self):\n"
             "        import asyncio\n        await asyncio.sleep(999)  # HERE\n\n"
             "    async def __call__", "task"),
    "callback": ("callback", "with (run.directory", f"{LOOP}\n        with (run.directory",
                 "callback"),
    "order": ("curriculum", "return epochs(", f"{SLEEP}\n        return epochs(", "curriculum"),
    "check": ("check", "found = ", f"{SLEEP}\n    found = ", "check"),
    "advantage": ("advantage", "return [[value", f"{LOOP}\n        return [[value", "advantage"),
}  # fmt: skip


ENDED = {"import", "thread", "child", "locked", "crash", "stopped", "closed", "lasting"}
ENDED |= {"behind", "beside", "fault", "leaves"}
"""Cases of which the process, or one that it started, has to be ended."""


def install(site: PluginSite, name: str) -> Path:
    """The plugin of a row of the table."""
    kind, old, new, _ = HANGS[name]
    text = files_of(name, kind)[f"rlvr_{name}.py"]
    if old not in text:
        pytest.fail(text)
    text = text.replace(old, new, 1)
    if name == "plain":
        text = text.replace(JUDGE, f"        {SLEEP}\n{JUDGE}")
    return site.add(name, text, module=f"rlvr_{name}")


@pytest.mark.one_of(4, "listing", "build")
@pytest.mark.parametrize("name", sorted({*HANGS} - ENDED))
def test_a_part_that_does_not_return_is_a_finding(
    name: str, site_here: PluginSite, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 7; the part, what was asked of it, how long it had, its file and line; nothing lives."""
    file = install(site_here, name)
    begun, before = time.monotonic(), descendants(os.getpid())
    words = ["--limit", "1.5", "--slow", "1", "--problems", "1", "--json"]

    code = main(["plugins", "check", name, *words])
    assert code == 7, capsys.readouterr().err

    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    found = [f for f in report["findings"] if "did not return within 1.5 s" in f["found"]]
    assert found, report
    lines = [n for n, line in enumerate(file.read_text().splitlines(), 1) if "# HERE" in line]
    places = {f"{file}:{line}" for line in lines}
    assert any(place in f["found"] for f in found for place in places), found
    assert found[0]["part"].startswith(f"{HANGS[name][3]} "), found
    assert all("--limit" in f["do"] for f in found)
    assert descendants(os.getpid()) == before
    assert time.monotonic() - begun < 90


SLOW = "__import__('time').sleep(1)  # HERE"
AWAITS = "await __import__('asyncio').sleep(1)  # HERE"


@pytest.mark.parametrize(
    ("name", "start", "work"),
    [("holding", "async def", SLOW), ("threaded", "def", SLOW), ("awaiting", "async def", AWAITS)],
)
def test_a_silent_command_names_the_line_that_a_part_is_at(
    name: str, start: str, work: str, site_here: PluginSite, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Whether a reward holds the event loop, runs in a thread or waits."""
    text = files_of(name, "task")[f"rlvr_{name}.py"].replace(JUDGE, f"        {work}\n{JUDGE}", 1)
    text = text.replace("async def __call__", f"{start} __call__")
    file = site_here.add(name, text, module=f"rlvr_{name}")
    line = text.split("# HERE")[0].count("\n") + 1
    monkeypatch.setattr(command_line, "heartbeat", partial(heartbeat, interval_s=0.05))
    answer = site_here.home / "answer.jsonl"
    answer.write_text(json.dumps({"id": f"{name}-0", "completion": "1"}) + "\n")

    assert main(["score", "--plugin", name, "--completions", str(answer)]) == 0

    said = re.findall(r"rlvr: score: at work for .*; at (.*)", capsys.readouterr().err)
    assert f"{file}:{line} (__call__)" in said, said


def sleeping() -> set[str]:
    """Process ids of the programs that the plugin `child` starts."""
    found = set()
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):  # it ended meanwhile
            if Path(f"/proc/{pid}/cmdline").read_bytes() == b"sleep\x00987\x00":
                found.add(pid)
    return found


@pytest.mark.parametrize("name", ["thread", "child"])
def test_the_process_ends_although_its_threads_and_children_do_not(
    name: str, plugin_site: PluginSite
) -> None:
    """Python waits at its end for threads of a pool; a program that was started would live on."""
    install(plugin_site, name)
    before = sleeping()

    done = plugin_site.rlvr("plugins", "check", name, "--limit", "1.5", "--slow", "0.5")

    assert done.returncode == 7, done.stderr
    assert re.search(r"it did not return within 1.5 s; it was at .*:\d+ \(__call__\)", done.stdout)
    assert f"rlvr: waiting for reward {name}, at most 1.5 s (--limit): " in done.stderr
    assert sleeping() == before


@pytest.mark.parametrize(("name", "found"), [
    ("locked", r"it did not return within 4 s; it was at .*:\d+ \(__call__\)"),
    ("crash", r"it ended the process with exit code 0; it was at .*:\d+ \(__init__\)"),
    ("leaves", r"it ended the process with exit code 3; it was at .*:\d+ \(__call__\)"),
    ("fault", r"it ended the process by SIGSEGV; it was at .*:\d+ \(__call__\)"),
    ("closed", "it ended the process with exit code 0"),
    ("stopped", "it did not return within 4 s"),
])  # fmt: skip
def test_a_part_that_no_python_code_can_end_is_a_finding_too(
    name: str, found: str, plugin_site: PluginSite
) -> None:
    """Its parent ends the process, with all that it started and its folders, and reports."""
    install(plugin_site, name)
    before, files = sleeping(), plugin_site.home / "temporary"
    files.mkdir()

    done = plugin_site.rlvr("plugins", "check", name, "--limit", "4", "--json", TMPDIR=str(files))

    assert done.returncode == 7, done.stderr
    report = json.loads(done.stdout)
    last = report["findings"][-1]  # a busy machine may have others: starting Python takes long
    assert last["part"] == f"task {name}", report
    assert re.search(found, last["found"]), report
    assert any("the check ended here" in words for words in report["refused"]), report
    assert sleeping() == before
    assert [*files.iterdir()] == []


def test_the_end_of_the_process_is_limited_and_nothing_outlives_it(plugin_site: PluginSite) -> None:
    """Nor does what a plugin prints disturb the JSON."""
    file = install(plugin_site, "lasting")
    line, before = file.read_text().split("# HERE")[0].count("\n") + 1, sleeping()

    done = plugin_site.rlvr("plugins", "list", "--limit", "1", "--json")

    assert done.returncode == 3, done.stderr
    assert (
        f"process: it did not return within 1 s; it was at {file}:{line} (<lambda>)" in done.stderr
    )
    assert "noise" in done.stderr
    assert json.loads(done.stdout)
    assert sleeping() == before


def test_a_thread_that_a_part_left_is_named_and_not_waited_for(plugin_site: PluginSite) -> None:
    """The thread is the finding, and the process ends all the same."""
    install(plugin_site, "beside")
    begun = time.monotonic()

    done = plugin_site.rlvr("plugins", "check", "beside", "--problems", "1")

    assert done.returncode == 7, done.stderr
    assert re.search(r"it left running the thread Thread-\d+ \(sleep\)", done.stdout), done.stdout
    assert time.monotonic() - begun < 90


def test_a_thread_that_an_import_left_is_named(plugin_site: PluginSite) -> None:
    """The list is whole: Python waits for the thread at its own end, and only so long."""
    text = "import threading, time\nRLVR_API = 1\n"
    plugin_site.add("beside", f"{text}threading.Thread(target=time.sleep, args=(99,)).start()\n")

    done = plugin_site.rlvr("plugins", "list", "--limit", "1")

    assert done.returncode == 3, done.stderr
    assert "beside " in done.stdout
    held = r"a plugin held up the end of the process, which waits for 1 thread, the first "
    held += r"Thread-\d+ \(sleep\): it did not return within 1 s"
    assert re.search(held, done.stderr), done.stderr


def test_ctrl_c_behind_the_report_prints_no_second_one(plugin_site: PluginSite) -> None:
    """It ends the wait for what the part left; nothing was stopped before its end."""
    install(plugin_site, "behind")
    env = {**os.environ, **LEAN, "PYTHONPATH": str(plugin_site.path)}
    words, file = ("plugins", "check", "behind", "--json"), plugin_site.home / "out"
    with file.open("w") as out, open(os.devnull, "w") as nothing:
        running = start_rlvr(*words, cwd=plugin_site.home, env=env, files=(out, nothing))
        while "stopped_at" not in file.read_text() and running.poll() is None:
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        running.wait(20)
    assert json.loads(file.read_text())["findings"] == []


def test_options_that_do_not_return_are_named(plugin_site: PluginSite) -> None:
    """`plugins show` imports the module of a part's options."""
    text = files_of("slow", "task")["rlvr_slow.py"]
    reads = text.replace('reward="slow",', 'reward="slow", config="slow_options:Options",')
    plugin_site.add("slow", reads, module="rlvr_slow")
    (plugin_site.path / "slow_options.py").write_text(IN_C)

    done = plugin_site.rlvr("plugins", "show", "slow", "--limit", "1")

    assert done.returncode == 3
    assert re.search(r"did not return within 1 s; it was at .*slow_options.py:1", done.stderr)


def test_what_a_step_left_is_watched_until_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread or a `__del__` of a part may hang after it."""
    begun: list[Step] = []
    monkeypatch.setattr(Watchdog, "begin", lambda _, step: begun.append(step))
    with Deadline(0.5, 0.1, Report(), Watchdog()).on("task a", "it was built", "m:A"):
        pass
    assert [step.given[:2] for step in begun] == [("task a", "it was built")] * 2
    assert begun[1].limit_s > 5  # also what the check itself does between steps


@pytest.mark.one_of(99, "[locked-15]", "[child-1]", "[child-2]")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("name", ["locked", "child"])
def test_a_signal_ends_a_check_that_hangs(
    name: str, number: signal.Signals, plugin_site: PluginSite
) -> None:
    """
    Sent to the command alone; a second Ctrl-C waits for nothing.

    What was found is printed: here that the listing, before the hang, takes longer than it may.
    """
    file = install(plugin_site, name)
    slow = file.read_text().replace("question = ", "__import__('time').sleep(0.02); question = ", 1)
    file.write_text(slow)
    before, env = sleeping(), {**os.environ, **LEAN, "PYTHONPATH": str(plugin_site.path)}
    words = ["plugins", "check", name, "--slow", "0.1", *["--json"] * (number != signal.SIGTERM)]
    running = start_rlvr(*words, cwd=plugin_site.home, env=env)
    while sleeping() <= before and running.poll() is None:
        time.sleep(0.1)

    running.send_signal(number)
    time.sleep(0.3)
    running.send_signal(number)

    assert running.wait(20) == 128 + number
    assert sleeping() <= before
    out, err = running.communicate()
    where = f"task {name}: Reference answers are judged right"
    if number == signal.SIGTERM:
        assert "building it and listing its problems may take 0.1 s." in out
        assert f"stopped before the end of the check, at {where}" in out
    else:
        report = json.loads(out)
        assert any("building it" in finding["asked"] for finding in report["findings"]), report
        assert report["stopped_at"].startswith(where), report
    end = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
    assert f"rlvr: {end} (exit {128 + number})" in err


def test_a_module_that_does_not_end_is_named(plugin_site: PluginSite) -> None:
    """Before any part is there: a plugin's own module is imported; the others are listed."""
    file = install(plugin_site, "import")
    line = file.read_text().split("# HERE")[0].count("\n") + 1
    said = f"did not return within 0.5 s; it was at {file}:{line}"

    done = plugin_site.rlvr("plugins", "check", "import", "--limit", "0.5")
    assert done.returncode == 3, done.stdout + done.stderr
    assert said in done.stderr

    done = plugin_site.rlvr("plugins", "list", "--limit", "0.5", "--json")
    status = {plugin["name"]: plugin for plugin in json.loads(done.stdout)}
    assert done.returncode == 0, done.stderr
    assert status["import"]["status"] == "broken"
    assert said in status["import"]["reason"]
    assert status["builtin"]["status"] == "active"


@pytest.mark.parametrize("limit", ["-1", "nan", "inf", "1e300"])
def test_a_limit_is_a_time(limit: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Seconds; 0 means that the check waits for ever."""
    assert main(["plugins", "check", "algos", f"--limit={limit}"]) == 2
    assert "--limit" in capsys.readouterr().err
