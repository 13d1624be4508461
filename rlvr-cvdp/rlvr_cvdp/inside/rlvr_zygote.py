"""The warm worker: one simulator process with Python, pytest and cocotb loaded, that forks.

It is started as the simulator itself and reaches `serve` while its embedded Python starts, before
any design is read. From then on it takes commands from outside, one at a time, and forks:

- for the harness's pytest, a child that runs pytest where it stands;
- for any other command, a child that becomes it;
- for each simulation of a harness (asked for by `vvp.sh`), a child that returns from `serve`, so
  that the simulator goes on, reads the design and simulates, as if it had just been started.

Every child begins with the same fresh memory, so nothing goes from one command to the next. After
a command all processes in the sandbox but this one are killed, and its folders are emptied.
Standard library only; it runs inside the sandbox.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

OUT = "/rlvr/out"
CONTROL = "/rlvr/control/socket"
RUN = "/rlvr/run"
REQUESTS = f"{RUN}/ask"
REPLIES = 8
DESIGN_FD = 200
DESIGN = f"/proc/self/fd/{DESIGN_FD}"
_PR_SET_DUMPABLE = 4
_OWN = "/rlvr/python"
_SCRATCH = ("/tmp", "/rundir", "/dev/shm")
_PRELOADED: Mapping[str, tuple[str, ...]] = {
    "1": ("pytest", "cocotb", "cocotb.runner", "cocotb.triggers", "cocotb.clock", "cocotb.result"),
    "2": (
        *("pygpi.entry", "cocotb._init", "cocotb_tools._coverage", "cocotb.logging", "cocotb"),
        *("pytest", "cocotb_tools.runner", "cocotb.triggers", "cocotb.clock", "cocotb.result"),
        *("cocotb._xunit_reporter", "cocotb.types", "cocotb.queue"),
    ),
}
_MORE = (
    *("xml.etree.ElementTree", "logging", "subprocess", "random", "pathlib", "cocotb.regression"),
    *("cocotb.handle", "_pytest.assertion.rewrite", "_pytest.junitxml", "_pytest.logging"),
    *("_pytest.cacheprovider", "_pytest.unittest", "_pytest.doctest", "_pytest.python"),
    *("_pytest.capture", "_pytest.terminal", "_pytest.pathlib", "_pytest.tmpdir", "fractions"),
    *("unittest", "doctest", "pdb", "glob", "json", "find_libpython", "math"),
)
# Read by cocotb and Python while they are imported: a command that wants them otherwise than they
# were here gets processes of its own.
_FIXED = (
    *("COCOTB_ENABLE_PROFILING", "COCOTB_SCHEDULER_DEBUG", "COCOTB_PDB_ON_EXCEPTION", "COVERAGE"),
    *("COCOTB_TRUST_INERTIAL_WRITES", "COCOTB_INDEXING_CHANGED_WARNING", "COCOTB_RESOLVE_X"),
    *("COCOTB_ATTACH", "LIBPYTHON_LOC", "LD_PRELOAD", "LD_LIBRARY_PATH", "RLVR_COCOTB"),
    *("COCOTB_LIBRARY_COVERAGE", "PYGPI_USERS", "PYGPI_ENTRY_POINT", "RLVR_SHIM"),
)
_FREE_PYTHON = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")


is_simulation = False
"""True in a child that simulates."""
scan: Any = None
"""The scan of compiled simulations (/rlvr/scan.py)."""


class _Zygote:
    """The loop's state: the way out, the running command, and its simulations."""

    def __init__(self) -> None:
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.connect(CONTROL)
        self.job = 0
        self.cpu_before = 0.0
        self.limits: Mapping[str, int] = {}
        self.launches: dict[int, _Launch] = {}
        self.answered: dict[int, int] = {}
        os.mkfifo(REQUESTS, 0o600)
        self.requests = os.open(REQUESTS, os.O_RDWR | os.O_NONBLOCK)
        self.replies: list[int] = []
        for number in range(REPLIES):
            os.mkfifo(f"{RUN}/reply.{number}", 0o600)
            self.replies.append(os.open(f"{RUN}/reply.{number}", os.O_RDWR | os.O_NONBLOCK))
        self.carry = b""
        self.base = _base_path()
        self.environment = dict(os.environ)
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)

    def loop(self) -> None:
        """Serve until the other side hangs up; returns only in a child that is to simulate."""
        self.control.sendall(b'{"ready": true}\n')
        while True:
            waiting = [self.control, self.requests, self.wake_read]
            ready, _, _ = select.select(waiting, [], [], 0.5 if self.launches else None)
            if self.wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_read, 4096)
            self._reap()
            if self.requests in ready and self._serve_requests():
                return
            self._drop_orphans()
            if self.control in ready:
                self._serve_control()

    # --- commands from outside --------------------------------------------------------------

    def _serve_control(self) -> None:
        head, fds, _, _ = socket.recv_fds(self.control, 8, 1)
        if not head:
            os._exit(0)
        while len(head) < 8:
            head += self.control.recv(8 - len(head))
        (size,) = struct.unpack("!Q", head)
        body = bytearray()
        while len(body) < size:
            chunk = self.control.recv(min(1 << 16, size - len(body)))
            if not chunk:
                os._exit(0)
            body += chunk
        message = json.loads(bytes(body))
        if message["do"] == "stop":
            if self.job:
                self._end_job(None)
            return
        self._clean()
        self.limits = message["limits"]
        output = fds[0]
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu_before = usage.ru_utime + usage.ru_stime
        self.job = os.fork()
        if self.job == 0:
            self._become_command(message, output)
        os.close(output)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            code = os.waitstatus_to_exitcode(status)
            code = 128 - code if code < 0 else code
            if pid == self.job:
                self._end_job(code)
            elif pid in self.launches:
                launch = self.launches.pop(pid)
                if not launch.is_orphan:
                    launch.keep(code)
                launch.close()
                self._answer(launch.slot, launch.asker, str(code))

    def _answer(self, slot: int, asker: int, text: str) -> None:
        """Tell an asker; it is waiting, or about to, or was killed."""
        os.write(self.replies[slot], text.encode() + b"\n")
        self.answered[slot] = asker

    def _free_slots(self) -> None:
        """Slots are free once their asker is gone; what it did not read is thrown away."""
        for slot, asker in list(self.answered.items()):
            if not _is_running(asker):
                del self.answered[slot]
                _drain(self.replies[slot])
                with contextlib.suppress(OSError):
                    os.unlink(f"{RUN}/taken.{slot}")

    def _end_job(self, code: int | None) -> None:
        cpu_s = round(self._cpu_seconds(), 3)
        self._clean()
        self.job = 0
        self.control.sendall(json.dumps({"rc": code, "cpu_s": cpu_s}).encode() + b"\n")

    def _cpu_seconds(self) -> float:
        """Processor time of the command so far: of what lives, and of what has ended."""
        ticks = 0
        for name in os.listdir("/proc"):
            if name.isdecimal() and int(name) not in (1, os.getpid()):
                with contextlib.suppress(OSError), open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                    ticks += sum(int(number) for number in fields[11:15])
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        ended = usage.ru_utime + usage.ru_stime - self.cpu_before
        return ticks / os.sysconf("SC_CLK_TCK") + ended

    def _clean(self) -> None:
        """Kill everything else in the sandbox, and empty what it could write besides /code."""
        for _ in range(200):
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                break
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.001)
        for launch in self.launches.values():
            launch.close()
        self.launches.clear()
        self.answered.clear()
        self.carry = b""
        for fd in (self.requests, *self.replies):
            _drain(fd)
        for folder in (*_SCRATCH, RUN):
            _empty(folder)
        with contextlib.suppress(OSError):
            os.mkdir("/rundir/harness")

    # --- simulations ------------------------------------------------------------------------

    def _serve_requests(self) -> bool:
        """Serve the wrappers of the sandbox; True in a child that is to simulate."""
        self._free_slots()
        with contextlib.suppress(BlockingIOError):
            self.carry += os.read(self.requests, 1 << 16)
        *lines, self.carry = self.carry.split(b"\n")
        for line in lines:
            words = line.decode(errors="replace").split()
            if len(words) != 3 or not (words[1].isdecimal() and words[2].isdecimal()):
                continue
            kind, asker, slot = words[0], int(words[1]), int(words[2]) % REPLIES
            if self.job and self._start(kind, asker, slot):
                return True
        return False

    def _start(self, kind: str, asker: int, slot: int) -> bool:
        opened: list[int] = []
        try:
            words = _read_list(f"/proc/{asker}/cmdline")[2:]
            environment = dict(
                word.partition("=")[::2] for word in _read_list(f"/proc/{asker}/environ")
            )
            design = self._design_of(words)
            if kind == "vvp" and (design is None or not self._fits(environment)):
                self._answer(slot, asker, "cold")
                return False
            for place, flags in (
                ("cwd", os.O_RDONLY | os.O_DIRECTORY),
                ("fd/7", os.O_RDONLY | os.O_NONBLOCK),
                ("fd/8", os.O_WRONLY | os.O_APPEND),
                ("fd/2", os.O_WRONLY | os.O_APPEND),
            ):
                opened.append(os.open(f"/proc/{asker}/{place}", flags))
            if design is not None:
                os.stat(design, dir_fd=opened[0])
        except (OSError, IndexError):
            for fd in opened:
                os.close(fd)
            self._answer(slot, asker, "cold")
            return False
        folder, *streams = opened
        child = os.fork()
        if child:
            self.launches[child] = _Launch(kind, asker, slot, folder, streams[1], environment)
            for fd in (streams[0], streams[2]):
                os.close(fd)
            return False
        os.fchdir(folder)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        self._leave()
        if kind == "scan":
            _scan(words)
        try:
            fd = os.open(str(design), os.O_RDONLY)
        except OSError:
            os._exit(1)
        os.dup2(fd, DESIGN_FD)
        for low, high in ((3, DESIGN_FD), (DESIGN_FD + 1, 4096)):
            os.closerange(low, high)
        self._take_environment(environment)
        global is_simulation
        is_simulation = True
        return True

    def _design_of(self, words: Sequence[str]) -> str | None:
        """The design of a launch just like this process's own, None for any other launch."""
        own = _read_list("/proc/self/cmdline")[1:]
        if len(words) != len(own):
            return None
        place = own.index(DESIGN)
        theirs = [*words[:place], DESIGN, *words[place + 1 :]]
        same = [a == b or _same_place(a, b) for a, b in zip(theirs, own, strict=True)]
        return words[place] if all(same) else None

    def _drop_orphans(self) -> None:
        """A simulation whose asker was killed ends too."""
        for child, launch in self.launches.items():
            if not _is_running(launch.asker):
                launch.is_orphan = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    # --- children ---------------------------------------------------------------------------

    def _fits(self, environment: Mapping[str, str]) -> bool:
        """Whether what this process has loaded is what a fresh one would load."""
        for name in {*environment, *self.environment}:
            is_fixed = name in _FIXED or name.startswith("GPI_")
            is_python = name.startswith("PYTHON") and name not in _FREE_PYTHON
            if (is_fixed or is_python) and environment.get(name) != self.environment.get(name):
                return False
        return True

    def _leave(self) -> None:
        """Become a plain process: nothing of the loop stays open, limits hold."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _allow_a_look(True)
        self.control.close()
        for fd in (self.requests, self.wake_read, self.wake_write, *self.replies):
            os.close(fd)
        for name, value in self.limits.items():
            number = getattr(resource, name)
            soft = value
            hard = value + 5 if name == "RLIMIT_CPU" else value
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(number, (soft, hard))

    def _take_environment(self, environment: Mapping[str, str]) -> None:
        os.environ.clear()
        os.environ.update(environment)
        own = [entry for entry in environment.get("PYTHONPATH", "").split(":") if entry]
        sys.path[:] = [*own, *self.base]
        importlib.invalidate_caches()
        import sitecustomize

        sitecustomize.reseed()

    def _become_command(self, message: Mapping[str, Any], output: int) -> NoReturn:
        code = 127
        try:
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDONLY)
            os.dup2(nothing, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            self._leave()
            os.closerange(3, 4096)
            os.chdir(message["folder"])
            words, environment = message["argv"], message["environment"]
            pytest_words = _pytest_words(words)
            if pytest_words is not None and self._fits(environment):
                self._take_environment(environment)
                code = _run_pytest(pytest_words, words)
            else:
                signal.signal(signal.SIGPIPE, signal.SIG_DFL)
                os.execvpe(words[0], words, environment)
        except OSError as error:
            print(f"{message['argv'][0]}: {error.strerror}", file=sys.stderr)
        finally:
            with contextlib.suppress(BaseException):
                sys.stdout.flush()
            with contextlib.suppress(BaseException):
                sys.stderr.flush()
            os._exit(code)


class _Launch:
    """A simulation, or a scan, that runs for a wrapper."""

    def __init__(
        self,
        kind: str,
        asker: int,
        slot: int,
        folder: int,
        output: int,
        environment: Mapping[str, str],
    ) -> None:
        self.kind, self.asker, self.slot = kind, asker, slot
        self.folder, self.output = folder, output
        self.results = environment.get("COCOTB_RESULTS_FILE") or "results.xml"
        self.is_orphan = False

    def keep(self, code: int) -> None:
        """Keep what a simulation said, as the end of `vvp.sh` does."""
        if self.kind == "vvp":
            with contextlib.suppress(OSError):
                fd = os.open(self.results, os.O_RDONLY | os.O_NONBLOCK, dir_fd=self.folder)
                _copy(fd, f"{OUT}/{self.asker}.xml")
            if stat.S_ISREG(os.fstat(self.output).st_mode):
                fd = os.open(f"/proc/self/fd/{self.output}", os.O_RDONLY)
                _copy(fd, f"{OUT}/{self.asker}.log")
            with open(f"{OUT}/launches", "a") as file:
                file.write(f"{code} {self.asker}\n")

    def close(self) -> None:
        """Let go of what the asker had open; its output ends for whoever reads it."""
        os.close(self.folder)
        os.close(self.output)


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(") ")[2][:1] not in ("Z", "X", "")
    except OSError:
        return False


def _drain(fd: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(fd, 1 << 16):
            pass


def _copy(fd: int, place: str) -> None:
    with open(fd, "rb") as source, open(place, "wb") as target:
        if stat.S_ISREG(os.fstat(fd).st_mode):
            shutil.copyfileobj(source, target)


def _scan(words: Sequence[str]) -> NoReturn:
    code = 1
    try:
        code = scan.main(list(words))
    finally:
        sys.stderr.flush()
        os._exit(code)


def _pytest_words(words: Sequence[str]) -> list[str] | None:
    """What follows `pytest` where the command is pytest and nothing else."""
    if os.path.basename(words[0]) in ("pytest", "py.test") and "/" not in words[0]:
        return list(words[1:])
    if words[0] in ("python", "python3") and list(words[1:3]) == ["-m", "pytest"]:
        return list(words[3:])
    return None


def _run_pytest(arguments: list[str], words: Sequence[str]) -> int:
    import threading

    import pytest

    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    folder = os.path.dirname(sys.executable)
    is_module = words[0] != "pytest"
    sys.path.insert(0, os.getcwd() if is_module else folder)
    sys.argv = [os.path.join(folder, "pytest"), *arguments]
    try:
        code = pytest.console_main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter itself ends
    atexit._run_exitfuncs()
    return int(code)


def _base_path() -> list[str]:
    """Where Python looks after what PYTHONPATH names: its own library, and the stack's packages."""
    return [entry for entry in sys.path if entry != _OWN]


def _same_place(one: str, other: str) -> bool:
    return "/" in one and os.path.realpath(one) == os.path.realpath(other)


def _read_list(path: str) -> list[str]:
    with open(path, "rb") as file:
        return [word.decode(errors="surrogateescape") for word in file.read().split(b"\0")[:-1]]


def _empty(folder: str) -> None:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path == REQUESTS or entry.path.startswith(f"{RUN}/reply."):
                continue
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(OSError):
                    os.chmod(entry.path, 0o700)
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _preload() -> None:
    for name in (*_PRELOADED[os.environ.get("RLVR_COCOTB", "2")], *_MORE):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _allow_a_look(is_allowed: bool) -> None:
    """Whether other processes of the sandbox may look into this one or change it."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, int(is_allowed), 0, 0, 0)


def _end_quickly() -> None:
    """
    Leave a simulation's Python as it stands when the interpreter ends.

    All that a harness registered has run by then. Taking every module apart would touch, and so
    copy, most of the memory that a fork shares with this worker: it costs more than the tests.
    """
    if is_simulation:
        sys.stdout.flush()
        sys.stderr.flush()
        gc.disable()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(dict(sys.modules)))
        gc.freeze()
        sys.modules.clear()


def serve() -> None:
    """Serve commands until the end; returns only in a child that is to simulate."""
    global scan
    atexit.register(_end_quickly)  # the first that is registered is the last that runs
    sys.path.insert(0, "/rlvr")
    scan = importlib.import_module("scan")
    sys.path.remove("/rlvr")
    _preload()
    gc.collect()
    gc.freeze()
    _allow_a_look(False)
    _Zygote().loop()
