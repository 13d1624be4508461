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
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from rlvr_launch import Launch, Requests, build_and_end, design_of, is_running, read_list
from rlvr_record import REPORT_FD, pair
from rlvr_tidy import FolderSnapshot, writable_places
from rlvr_warm import (
    PLACEHOLDER,
    allow_a_look,
    base_path,
    end_quickly,
    fits,
    mark_as_simulation,
    preload,
    pytest_words,
    run_pytest,
    set_last_argument,
    settings,
)

CONTROL = "/rlvr/control/socket"
DESIGN_FD = 200
DESIGN = f"/proc/self/fd/{DESIGN_FD}"
_OUTSIDE = ("/code", "/rlvr/out")
"""What is made anew from outside, between two problems."""
_CLEAN_S = 2.0


class _Zygote:
    """The loop's state: the way out, the running command, and its simulations."""

    def __init__(self, scan: Any) -> None:
        self.scan = scan
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.connect(CONTROL)
        self.job = 0
        self.cpu_before = 0.0
        self.limits: Mapping[str, int] = {}
        self.launches: dict[int, Launch] = {}
        self.requests = Requests()
        with open("/proc/self/mountinfo") as file:
            self.places = FolderSnapshot(writable_places(file.read(), leave=_OUTSIDE))
        self.base = base_path()
        self.environment = dict(os.environ)
        self.settings = settings()
        self.wake_read, self.wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        # The first process of a sandbox gets no signal that it does not handle.
        self.interrupt = signal.signal(signal.SIGINT, signal.SIG_DFL)

    def loop(self) -> None:
        """Serve until the other side hangs up; returns only in a child that is to simulate."""
        self.control.sendall(b'{"ready": true}\n')
        while True:
            hearings = {
                launch.hearing.sock: launch.hearing
                for launch in self.launches.values()
                if launch.hearing is not None and launch.hearing.is_open
            }
            waiting = [self.control, self.requests.fd, self.wake_read, *hearings]
            ready, _, _ = select.select(waiting, [], [], 0.5 if self.launches else None)
            if self.wake_read in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake_read, 4096)
            for sock, hearing in hearings.items():
                if sock in ready:
                    hearing.hear()
            self._reap()
            if self.requests.fd in ready and self._serve_requests():
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
                self.requests.answer(launch.slot, launch.asker, str(code))

    def _end_job(self, code: int | None) -> None:
        # What is halted forks no more: else many processes could outrun the count of their time.
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGSTOP)
        cpu_s = round(self._cpu_seconds(), 3)
        is_clean = self._clean()
        self.job = 0
        answer = {"rc": code, "cpu_s": cpu_s, "clean": is_clean}
        self.control.sendall(json.dumps(answer).encode() + b"\n")

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

    def _clean(self) -> bool:
        """
        Kill everything else in the sandbox, and make anew what it could write besides /code.

        False where something lives on or is not as it was: then the sandbox is not used again.
        """
        end = time.monotonic() + _CLEAN_S
        while time.monotonic() < end:
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                break
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            time.sleep(0.001)
        else:
            return False
        for launch in self.launches.values():
            launch.close()
        self.launches.clear()
        self.requests.clear()
        return self.places.renew() and settings() == self.settings

    # --- simulations ------------------------------------------------------------------------

    def _serve_requests(self) -> bool:
        """Serve the wrappers of the sandbox; True in a child that is to simulate."""
        return any(self.job and self._start(*asked) for asked in self.requests.read())

    def _start(self, kind: str, asker: int, slot: int) -> bool:
        opened: list[int] = []
        hearing, report_fd = None, -1
        try:
            words = read_list(f"/proc/{asker}/cmdline")[2:]
            environment = dict(
                word.partition("=")[::2] for word in read_list(f"/proc/{asker}/environ")
            )
            launch = design_of(words, DESIGN, len(PLACEHOLDER)) if kind == "vvp" else None
            if kind == "vvp" and (launch is None or not fits(environment, self.environment)):
                self.requests.answer(slot, asker, "cold")
                return False
            for place, flags in (
                ("cwd", os.O_RDONLY | os.O_DIRECTORY),
                ("fd/7", os.O_RDONLY | os.O_NONBLOCK),
                ("fd/8", os.O_WRONLY | os.O_APPEND),
                ("fd/2", os.O_WRONLY | os.O_APPEND),
            ):
                opened.append(os.open(f"/proc/{asker}/{place}", flags))
            if launch is not None:
                os.stat(launch[0], dir_fd=opened[0])
            if kind == "vvp":
                hearing, report_fd = pair()
                opened.append(report_fd)
            child = os.fork()  # which fails in a container that is full
        except (OSError, IndexError):
            for fd in opened:
                os.close(fd)
            if hearing is not None:
                hearing.sock.close()
            self.requests.answer(slot, asker, "cold")
            return False
        folder, *streams = opened[:4]
        if child:
            self.launches[child] = Launch(kind, asker, slot, streams[1], hearing)
            for fd in opened:
                if fd != streams[1]:
                    os.close(fd)
            return False
        os.fchdir(folder)
        for number, fd in enumerate(streams):
            os.dup2(fd, number)
        self._leave()
        if kind == "build":
            build_and_end(self.scan, words, environment)
        os.dup2(report_fd, REPORT_FD)
        try:
            design, last = launch or ("", "")
            fd = os.open(design, os.O_RDONLY)
        except OSError:
            os._exit(1)
        set_last_argument(last)
        os.dup2(fd, DESIGN_FD)
        for low, high in ((3, DESIGN_FD), (REPORT_FD + 1, 4096)):
            os.closerange(low, high)
        self._take_environment(environment)
        mark_as_simulation()
        return True

    def _drop_orphans(self) -> None:
        """A simulation whose asker was killed ends too."""
        for child, launch in self.launches.items():
            if not is_running(launch.asker):
                launch.is_orphan = True
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)

    # --- children ---------------------------------------------------------------------------

    def _leave(self) -> None:
        """Become a plain process: nothing of the loop stays open, limits hold."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self.interrupt)
        allow_a_look(True)
        self.control.close()
        self.requests.close()
        os.close(self.wake_read)
        os.close(self.wake_write)
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
            arguments = pytest_words(words)
            if arguments is not None and fits(environment, self.environment):
                self._take_environment(environment)
                code = run_pytest(arguments, words)
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


def _scan() -> Any:
    """/rlvr/scan.py, loaded once."""
    sys.path.insert(0, "/rlvr")
    try:
        return importlib.import_module("scan")
    finally:
        sys.path.remove("/rlvr")


def serve() -> None:
    """Serve commands until the end; returns only in a child that is to simulate."""
    atexit.register(end_quickly)  # the first that is registered is the last that runs
    gc.disable()  # nearly all that is loaded stays: looking for garbage costs more than it frees
    preload()
    gc.freeze()
    gc.enable()
    allow_a_look(False)
    _Zygote(_scan()).loop()
