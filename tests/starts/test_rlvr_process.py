"""A forked command is what a started one is: its output, exit, folder and environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import rlvr_process
from rlvr_process import Forked, run_rlvr, start_rlvr

TOLD = """
    import os, sys
    from rlvr import CommandSpec, hookimpl

    RLVR_API = 1

    @hookimpl
    def rlvr_commands():
        yield CommandSpec(name="tell", target=__name__ + ":tell")
        yield CommandSpec(name="wait", target=__name__ + ":wait")

    def tell(argv):
        print(argv, os.getcwd(), os.environ.get("TOLD"), os.environ.get("HOME"), sys.path[0])
        print(hash("a"), file=sys.stderr)
        if "raise" in argv:
            raise ValueError("its own bug")
        if "die" in argv:
            os.kill(os.getpid(), 9)
        return int(argv[0])

    def wait(argv):
        import time
        print(os.getpid(), file=open("pid", "w"), flush=True)
        time.sleep(600)
"""


@pytest.mark.parametrize("words", [("7",), ("0", "é"), ("1", "raise", "--debug"), ("0", "die")])
def test_a_forked_command_is_what_a_started_one_is(plugin_site, words):
    """Code (a signal's too), both outputs, folder, environment, path; nothing of the server's."""
    plugin_site.add("told", TOLD)
    env = {name: value for name, value in os.environ.items() if name != "HOME"}
    env |= {"PYTHONPATH": str(plugin_site.path), "TOLD": "1", "OMP_NUM_THREADS": "1"}
    told = ("told", "tell", *words)

    forked = run_rlvr(*told, cwd=plugin_site.home, env=env)
    started = run_rlvr(*told, cwd=plugin_site.home, env=env, forks=False)

    assert rlvr_process._server is not None
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.args == started.args
    assert ("Traceback" in forked.stderr) == ("raise" in words)
    lines = [
        [line for line in done.stderr.splitlines() if ": at work for " not in line]  # a slow start
        for done in (forked, started)
    ]
    assert lines[0][1:] == lines[1][1:]  # 0: the hash


def test_workers_share_a_server(tmp_path, monkeypatch):
    """What has no link yet gets one to the server that runs, which is the child of none."""
    (script := tmp_path / "script.py").write_text("import os\nprint(os.getppid())\n")
    first = run_rlvr(cwd=tmp_path, program=script).stdout
    with monkeypatch.context() as other:
        other.setattr(rlvr_process, "_server", None)
        second = run_rlvr(cwd=tmp_path, program=script).stdout
        rlvr_process._end()

    assert first == second == run_rlvr(cwd=tmp_path, program=script).stdout
    parent = Path(f"/proc/{int(first)}/stat").read_text().rpartition(") ")[2].split()[1]
    assert int(parent) not in (os.getpid(), os.getppid())


def test_a_forked_script_is_what_a_started_one_is(tmp_path):
    """Name, words, folder, path and code; what it imports may lie beside it."""
    (script := tmp_path / "script.py").write_text(
        "import os, sys, beside\nprint(__name__, sys.argv, os.getcwd(), sys.path[0])\nsys.exit(3)\n"
    )
    (tmp_path / "beside.py").touch()
    (tmp_path / "at").mkdir()

    forked, started = (
        run_rlvr("a", cwd=tmp_path / "at", program=script, forks=forks) for forks in (True, False)
    )

    assert (forked.args, forked.stderr) == (started.args, "")
    assert (forked.returncode, forked.stdout) == (started.returncode, started.stdout)
    assert forked.stdout.startswith("__main__ ")


def test_what_python_reads_when_it_starts_is_read(plugin_site):
    """Such a variable gets an interpreter of its own."""
    plugin_site.add("told", TOLD)
    words = ("told", "tell", "0")

    one, two, three = (plugin_site.rlvr(*words, PYTHONHASHSEED=seed).stderr for seed in "112")

    assert one == two != three


def test_a_module_of_the_tests_takes_the_place_of_an_imported_one(plugin_site):
    """It is what the command imports, as in a started process."""
    plugin_site.add("told", TOLD)
    (plugin_site.path / "numpy.py").write_text("raise ImportError('not here')\n", encoding="utf-8")
    asked = TOLD.replace("print(argv,", "import numpy; print(argv,")
    plugin_site.add("asked", asked.replace('"tell"', '"ask"').replace('"wait"', '"stay"'))

    assert "not here" in plugin_site.rlvr("asked", "ask", "0").stderr


def test_a_command_without_end_is_killed(plugin_site):
    """As by `subprocess.run`; the next command runs."""
    plugin_site.add("told", TOLD)
    env = {**os.environ, "PYTHONPATH": str(plugin_site.path), "OMP_NUM_THREADS": "1"}

    for seconds in (1, 3, 9, 27):  # until it had begun when it was killed
        with pytest.raises(subprocess.TimeoutExpired):
            run_rlvr("told", "wait", cwd=plugin_site.home, env=env, timeout_s=seconds)
        if (plugin_site.home / "pid").exists():
            break

    pid = (plugin_site.home / "pid").read_text().strip()
    assert not Path(f"/proc/{pid}").exists()
    assert plugin_site.rlvr("--version").returncode == 0


def test_commands_run_beside_each_other(plugin_site):
    """One that was started does not hold up the next; a signal reaches it alone."""
    plugin_site.add("told", TOLD)
    env = {**os.environ, "PYTHONPATH": str(plugin_site.path), "OMP_NUM_THREADS": "1"}

    with start_rlvr("told", "wait", cwd=plugin_site.home, env=env) as waiting:
        done = run_rlvr("told", "tell", "7", cwd=plugin_site.home, env=env)
        assert isinstance(waiting, Forked)
        assert (done.returncode, waiting.poll()) == (7, None)
        waiting.kill()

    assert waiting.returncode == -9
    assert waiting.communicate() == ("", "")


RECORD = """
import functools, gc, importlib, os, sys

class Recorded(dict):
    def __getitem__(self, name):
        read.add(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        read.add(name)
        return super().get(name, default)

    def __contains__(self, name):
        read.add(name)
        return super().__contains__(name)

    def __iter__(self):
        read.add("RLVR_*")
        return super().__iter__()

    items = keys = values = copy = lambda self: [*self]

theirs, ours = (text.split() for text in sys.argv[1:])
for name in theirs:
    importlib.import_module(name)
read, os.environ = set(), Recorded(os.environ)
for name in ours:
    importlib.import_module(name)
print(*(name for name in read if name.startswith("RLVR_")))
for each in gc.get_objects():
    if isinstance(each, functools._lru_cache_wrapper) and each.__module__.startswith("rlvr"):
        print(each.__module__, each.__qualname__, each.cache_info().currsize)
"""


@pytest.mark.thorough
def test_what_is_imported_before_the_fork_has_found_nothing_out() -> None:
    """No variable of rlvr is read and no cache is filled: a command does both in its own place."""
    ours = rlvr_process._OURS
    theirs = [name for name in rlvr_process._IMPORTED if name not in ours]
    words = [sys.executable, "-c", RECORD, " ".join(theirs), " ".join(ours)]
    read, *caches = subprocess.check_output(words, text=True).splitlines()

    assert read == ""
    assert len(caches) > 10
    assert [cache for cache in caches if not cache.endswith(" 0")] == []
