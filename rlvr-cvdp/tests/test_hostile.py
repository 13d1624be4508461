"""Hostile programs inside every sandbox: as a simulation's test, and as an agent's testbench."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hostile_corpus import LARGE, QUICK, all_of, each_of, program

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.episodes.tools import Ran, Tools
from rlvr_cvdp.sandbox.confine.seccomp import bpf_program
from rlvr_cvdp.sandbox.confine.syscalls import numbers

pytestmark = [
    pytest.mark.integration,
    pytest.mark.usefixtures("simulator"),
]

SECRET, WORD = "rlvr-secret-5d1c0f", f"rlvr-word-{os.getpid()}"
OWN = {"its own files"}
TIGHT = {"memory_mb": 500, "disk_mb": 8, "file_mb": 4, "processes": 100, "output_mb": 2}
TIGHT |= {"idle_s": 5}  # no program waits so long: another limit must stop it
NEEDS_ROOT = (
    *("capabilities", "another root", "a mount", "a device node", "devices of this machine"),
    *("the name of the machine is set", "a setting is opened to be written", "a packet socket"),
    *("modes of a device", "fanotify", "kernel log", "swap", "bpf"),
    *("settings and logs of the kernel", "typing into a terminal", "quota"),
    *("a file through another process's root", "a namespace that is there", "open by handle"),
)
"""What this machine itself refuses to other users: their control would fail."""


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A secret in every place outside that a program inside could look at."""
    folder = tmp_path_factory.mktemp("outside")
    places = [folder, Path.home(), Path("/var/tmp"), Path("/dev/shm")]
    files = [place / WORD for place in places if os.access(place, os.W_OK)]
    for file in files:
        file.write_text(SECRET)
    device = os.stat("/dev/full").st_mode
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    segment = libc.shmget(os.getpid(), 4096, 0o1600)
    ctypes.memmove(libc.shmat(segment, None, 0), SECRET.encode(), len(SECRET))
    add_key = {"x86_64": 248, "aarch64": 217}[platform.machine()]
    libc.syscall(add_key, b"user", WORD.encode(), SECRET.encode(), len(SECRET), -3)
    listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind(f"\0{WORD}")
    abstract.listen()
    outside = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)", WORD], env={"SECRET": SECRET}
    )
    accepting = threading.Thread(target=_accept, args=(listener,), daemon=True)
    accepting.start()
    try:
        yield {
            "SECRET": SECRET, "WORD": WORD, "KEY": WORD, "FILES": [str(f) for f in files],
            "NAME": socket.gethostname(), "SHM_KEY": os.getpid(), "PID": outside.pid,
            "PORT": listener.getsockname()[1], "WRITABLE": "/code/rundir", "IS_OUTSIDE": False,
            "TARGET": 1,
        }  # fmt: skip
        assert os.stat("/dev/full").st_mode == device, "a sandbox changed a device of this machine"
    finally:
        outside.kill()
        outside.wait()
        for file in files:
            file.unlink()
        libc.shmctl(segment, 0, None)
        listener.shutdown(socket.SHUT_RDWR)  # wakes `accept`, which closing does not
        accepting.join()
        listener.close()
        abstract.close()


def _accept(listener: socket.socket) -> None:
    try:
        while True:
            listener.accept()[0].close()
    except OSError:
        pass


# --- undefended, each succeeds -------------------------------------------------------------------


def _undefended(text: str, folder: Path) -> str:
    place = folder / "program.py"
    place.write_text(text)
    handle = os.memfd_create("secret", 0)
    try:
        os.write(handle, SECRET.encode())
        ran = subprocess.run(
            [sys.executable, str(place)],
            env={**os.environ, "SECRET": SECRET},
            pass_fds=(handle,),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=folder,
        )
    finally:
        os.close(handle)
    return ran.stdout if "SAID " in ran.stdout else ran.stdout + ran.stderr[-500:]


def _outside(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return {**facts, "WRITABLE": str(folder), "IS_OUTSIDE": True, "TARGET": facts["PID"]}


@pytest.fixture(scope="module")
def quick_undefended(facts, tmp_path_factory) -> dict[str, str]:
    """What each quick program says outside of a sandbox; they share one start of Python."""
    folder = tmp_path_factory.mktemp("undefended")
    values = _outside(facts, folder)
    programs = {name: program(script, values) for name, script in QUICK.items()}
    said = _undefended(f'{each_of(programs)}\nprint("SAID " + json.dumps(said))', folder)
    found: dict[str, str] = json.loads(said.partition("SAID ")[2])
    return found


@pytest.mark.parametrize("name", QUICK)
def test_each_quick_program_succeeds_undefended(name, quick_undefended):
    """The control: outside of a sandbox the same program reaches what it wants."""
    if name in NEEDS_ROOT and os.geteuid():
        pytest.skip("only root can do this outside; its control needs root")
    assert "REACHED" in quick_undefended[name], quick_undefended[name]


@pytest.mark.one_of(99, "memory", "disk", "large file", "temporary", "output")
@pytest.mark.parametrize("name", LARGE)
def test_each_large_program_succeeds_undefended(name, facts, tmp_path):
    """The same for what takes much: nothing but a sandbox's limit stops it."""
    said = _undefended(program(LARGE[name], _outside(facts, tmp_path)), tmp_path)
    assert "REACHED" in said, said[-700:]


# --- defended, none does -------------------------------------------------------------------------


@pytest.fixture
def outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys in this process's variables; a proxy with a password in Docker's settings."""
    for name in ("SECRET", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_SECRET"):
        monkeypatch.setenv(name, SECRET)


def _tight(bench, **options: Any) -> CvdpConfig:
    return CvdpConfig(**{"timeout_s": 60.0, **bench.place, **options})


def _by_tools(bench, text: str, **options: Any) -> list[Ran]:
    """
    A program in an agent's tool in place of the simulator, and after it an honest simulation.

    Verilog can do less than a program: that a simulator takes no command is not relied on.
    """
    config = _tight(bench, **options)
    honest = 'module tb; initial $display("honest"); endmodule\n'
    command = [(["python3", "-u", "/code/verif/program.py"], "/code/rundir")]

    async def play() -> list[Ran]:
        tools = Tools(bench.problem().payload, await bench.judged.sandbox(config), config)
        files = {"rtl/inc.sv": bench.right, "verif/program.py": text}
        return [
            await tools._run(files, command, "iverilog"),
            await tools.simulate({"verif/tb.sv": honest}, ["verif/tb.sv"]),
        ]

    return bench.judged.run(play())


TEST = """\
import subprocess, sys
import cocotb
from cocotb.triggers import Timer

@cocotb.test()
async def hostile(dut):
    ran = subprocess.run(["python3", "/src/program.py"], capture_output=True, text=True)
    await Timer(1, unit="ns")
    line = [line for line in ran.stdout.splitlines() if line.startswith("FOUND ")]
    assert line == ['FOUND {"its own files": "REACHED \\\\n"}'], line or ran.stderr[-300:]
"""


@pytest.mark.one_of(4, "docker")
def test_quick_programs_are_held_in_a_verdict(bench, place, facts, outside):
    """Run by a simulation's Python, none reaches anything but the problem's own files."""
    harness = {"src/test_inc.py": TEST, "src/program.py": all_of(facts)}
    reward = bench.rtl(bench.right, bench.problem(harness=harness), tests="share", timeout_s=60.0)
    assert reward.score01 == 1.0, reward.evidence


@pytest.mark.one_of(4)
@pytest.mark.places("rootfs", "fresh", "warm", "docker")
def test_quick_programs_are_held_in_an_agents_tools(bench, place, facts, outside):
    """Run by an agent's own testbench, none reaches anything but the agent's own files."""
    ran, honest = _by_tools(bench, all_of(facts))
    lines = [line for line in ran.output.splitlines() if line.startswith("FOUND ")]
    assert lines, ran.output[-1000:]
    assert set(json.loads(lines[0].removeprefix("FOUND "))) == OWN, lines[0]
    assert "honest" in honest.output


LARGE_TEST = TEST.partition("    line =")[0] + '    assert "REACHED" in ran.stdout\n'


@pytest.mark.one_of(4, "docker-memory in", "docker-disk", "warm-memory", "warm-disk without")
@pytest.mark.every_place
@pytest.mark.places("warm", "docker")
@pytest.mark.parametrize("name", LARGE)
def test_large_programs_are_held_in_a_verdict(bench, place, facts, name):
    """What takes too much is stopped by its limit; the machine and the next answer go on."""
    text = program(LARGE[name], facts)
    if name == "output":  # a test that prints much, not one whose output is collected
        test = LARGE_TEST.replace(", capture_output=True, text=True", "").replace(
            '"REACHED" in ran.stdout', "ran.returncode == 0"
        )
    else:
        test = LARGE_TEST
    harness = {"src/test_inc.py": test, "src/program.py": text}
    limit_s = 0.8 if name == "time" else 30.0
    problem = bench.problem(harness=harness)
    reward = bench.rtl(bench.right, problem, **TIGHT, timeout_s=limit_s)
    assert reward.score01 == 0.0, reward.evidence
    assert bench.rtl(bench.right, **TIGHT, timeout_s=30.0).score01 == 1.0


@pytest.mark.one_of(4, "processes")
@pytest.mark.parametrize("name", LARGE)
def test_large_programs_are_held_in_an_agents_tools(bench, place, facts, name):
    """The same where an agent's testbench starts it: its tool fails, the next one works."""
    options = {**TIGHT, "timeout_s": 0.8 if name == "time" else 30.0}
    ran, honest = _by_tools(bench, program(LARGE[name], facts), **options)
    assert "REACHED" not in ran.output, ran.output[-300:]
    assert "honest" in honest.output


def test_everything_can_be_killed_and_nothing_is_gained(bench, place, facts):
    """A testbench that kills all it can see fails as a tool; it is no failure of the sandbox."""
    text = program("os.kill(1, 9)\nos.kill(-1, 9)\ntime.sleep(2)\nreached()", facts)
    ran, honest = _by_tools(bench, text)
    assert not ran.ok
    assert "REACHED" not in ran.output
    assert "honest" in honest.output


# --- the filter ----------------------------------------------------------------------------------


def test_the_numbers_of_system_calls_are_the_kernels():
    """Each name has the number that libseccomp gives it on each machine."""
    try:
        library = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp2 is not installed: numbers cannot be compared")
    for column, machine in enumerate((0xC000003E, 0xC00000B7)):
        for name, pair in numbers().items():
            told = library.seccomp_syscall_resolve_name_arch(machine, name.encode())
            if told != -1:  # this libseccomp does not know the name
                assert (pair[column] if pair[column] is not None else -1) == max(told, -1), name


def test_the_filter_knows_its_machines():
    """Each known machine has a program that fits the kernel's limit; another is named."""
    from rlvr import PrerequisiteError

    for machine in ("x86_64", "aarch64", "riscv64"):
        assert 0 < len(bpf_program(machine)) <= 8 * 4096
    with pytest.raises(PrerequisiteError, match="m68k"):
        bpf_program("m68k")
