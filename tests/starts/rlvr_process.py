"""
`rlvr` in a process of its own that need not import PyTorch first.

A server imports the core, parts of our plugins and what is slow, once for all workers of a run of
the tests, and forks for each command. The child has its own arguments, folder, environment, output
and exit, finds and loads the plugins itself, and runs what is registered for its exit. Several
commands can run at once. Nothing that the server imports may have looked at its environment, or
found anything out: the child finds all that for itself.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

_IMPORTED: tuple[str, ...] = (
    "attrs",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "numpy",
    "pluggy",
)
_IMPORTED += ("httpx", "hypothesis", "numpy.random", "pytest", "safetensors.torch", "structlog")
_IMPORTED += (
    "rich.console",
    "sympy",
    "tokenizers",
    "torch",
    "torch.fx.experimental.symbolic_shapes",
)
_OURS = tuple(f"rlvr.cli.{name}" for name in ("audit", "evaluate", "plugins", "run", "runs"))
_OURS += tuple(f"rlvr.builtin.{name}" for name in ("file_checkpoints", "learning_curve", "toy"))
_OURS += tuple(f"rlvr_algos.{name}" for name in ("advantages.group", "losses.grpo"))
_OURS += ("rlvr_chess.task", "rlvr_cvdp.task", "rlvr_distill.loss", "rlvr_sad.task")
_OURS += ("rlvr_servers.backend", "rlvr_torch.backend")
_IMPORTED += _OURS
_THREADS = {"OMP_NUM_THREADS": "1"}
_MODULE = "rlvr.cli.main"
_server: socket.socket | None = None


def run_rlvr(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 280,
    forks: bool = True,
    program: str | Path = _MODULE,
) -> subprocess.CompletedProcess[str]:
    """
    What `rlvr WORDS` says: code, output and errors; one thread computes where it is forked.

    `program` is another module than the command line's, or the path of a script. An interpreter
    of its own is started where `forks` is false, where `env` has a variable that Python or OpenMP
    reads when it starts, and where a module of the tests takes the place of one that is imported
    before the fork.

    Raises:
        subprocess.TimeoutExpired: The command took longer; it was killed.
    """
    running = start_rlvr(*words, cwd=cwd, env=env, forks=forks, program=program)
    try:
        out, err = running.communicate(timeout=timeout_s)
    except BaseException:  # also where pytest ends the test: no command is left behind
        running.kill()
        running.wait()
        raise
    return subprocess.CompletedProcess(running.args, running.wait(), out, err)


Files = tuple[IO[Any], IO[Any]]
"""Open files for output and errors."""


class Forked:
    """A command that was forked: what tests need of `subprocess.Popen`."""

    def __init__(self, args: list[str], request: bytes, files: Files | None = None) -> None:
        self.args = args
        self.returncode: int | None = None
        self._said = "", ""
        self._files: tuple[IO[bytes], ...] = ()  # see wait
        if files is None:
            self._files = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self._link, its = socket.socketpair()
        with its:
            _ask(request, [*(file.fileno() for file in files or self._files), its.fileno()])
        self.pid = _number(self._link)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, or minus the signal that ended it."""
        if self.returncode is None:
            self._link.settimeout(timeout)
            try:
                self.returncode = _number(self._link)
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
            self._link.close()
            if self._files:
                self._said = _text(self._files[0]), _text(self._files[1])
        return self.returncode

    def poll(self) -> int | None:
        """The same of a command that has ended; else None."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Its output and its errors, when it has ended."""
        self.wait(timeout)
        return self._said

    def send_signal(self, number: int) -> None:
        """Nothing where it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()


Started = subprocess.Popen[str] | Forked


def start_rlvr(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    forks: bool = True,
    program: str | Path = _MODULE,
    files: Files | None = None,
) -> Started:
    """
    Start `rlvr WORDS` and go on beside it; else as `run_rlvr`.

    Args:
        words: Of the command line.
        cwd: Where it runs.
        env: Its environment.
        forks: False: an interpreter of its own.
        program: As in `run_rlvr`.
        files: Where it writes, for who reads while it runs; else `communicate` gives all.
    """
    is_script = isinstance(program, Path)
    command = [sys.executable, *([] if is_script else ["-m"]), str(program), *words]
    wanted = dict(os.environ if env is None else env)
    differs = _read_at_start(wanted) != _read_at_start({**os.environ, **_THREADS})
    if not forks or differs or _replaces(wanted, cwd or Path.cwd()):
        out, err = files or (subprocess.PIPE, subprocess.PIPE)
        return subprocess.Popen(command, cwd=cwd, env=wanted, stdout=out, stderr=err, text=True)
    asked = [str(program), is_script, words, str(cwd or Path.cwd()), wanted]
    return Forked(command, json.dumps(asked).encode(), files)


def _replaces(env: Mapping[str, str], cwd: Path) -> bool:
    """Whether a folder that is searched first has a module named as one of those imported."""
    folders = [cwd, *map(Path, filter(None, env.get("PYTHONPATH", "").split(os.pathsep)))]
    roots = {"sitecustomize", *(name.partition(".")[0] for name in _IMPORTED)}
    names = {name for root in roots for name in (root, f"{root}.py")}
    return any((folder / name).exists() for folder in folders for name in names)


def _read_at_start(env: Mapping[str, str]) -> dict[str, str]:
    names = {name for name in env if name.startswith("PYTHON") or name in ("LANG", "LC_ALL")}
    read = {name: env[name] for name in sorted(names - {"PYTHONPATH"})}
    return read | {name: env.get(name, value) for name, value in _THREADS.items()}


def _text(file: IO[bytes]) -> str:
    with file:
        file.seek(0)
        return file.read().decode()


def _ask(request: bytes, files: list[int]) -> None:
    global _server
    if _server is None:
        _server = _connected(f"\0rlvr-{os.environ.get('PYTEST_XDIST_TESTRUNUID', os.getpid())}")
        atexit.register(_end)
    try:
        socket.send_fds(_server, [len(request).to_bytes(4, "big")], files)
        _server.sendall(request)
    except BaseException:  # half a request
        _end()
        raise


def _connected(name: str) -> socket.socket:
    """A link to the server of that (abstract) name; who takes the name first starts it."""
    link = socket.socket(socket.AF_UNIX)
    while True:
        with socket.socket(socket.AF_UNIX) as listener:
            try:
                listener.bind(name)
            except OSError:  # another worker has it
                pass
            else:
                listener.listen()
                listener.set_inheritable(True)
                started = [sys.executable, __file__, str(listener.fileno())]
                env = {**os.environ, **_THREADS, "PYTHONPATH": ""}
                null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1)]
                os.waitpid(os.posix_spawn(sys.executable, started, env, file_actions=null), 0)
        try:
            link.connect(name)
        except ConnectionRefusedError:  # it does not listen yet, or has ended
            time.sleep(0.01)
        else:
            return link


def _end() -> None:
    global _server
    if _server is not None:
        link, _server = _server, None
        link.close()


def _number(link: socket.socket) -> int:
    return int.from_bytes(_bytes(link, 4), "big", signed=True)


def _bytes(link: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := link.recv(count - len(found))):
            raise EOFError("the other side of the socket has ended")
        found += more
    return found


def _serve(listener: socket.socket) -> tuple[str, bool]:
    """Fork for each request until all workers have ended; the child gets what is to run."""
    links = [listener.accept()[0]]
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):  # a command that needs it says what is missing
            importlib.import_module(name)
    for made in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        made.atexit = False  # a child takes nothing apart that was imported here
    gc.freeze()  # the children share what is imported
    ended, wakes = socket.socketpair()
    wakes.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    running: dict[int, socket.socket] = {}
    while links:
        ready, _, _ = select.select([listener, ended, *links], [], [])
        if ended in ready:
            ended.recv(4096)
            _tell_codes(running)
        if listener in ready:
            links.append(listener.accept()[0])
        link = next((link for link in links if link in ready), None)
        if link is None:
            continue
        size, files, _, _ = socket.recv_fds(link, 4, 3)
        if not size:
            links.remove(link)
            link.close()
            continue
        request = json.loads(_bytes(link, int.from_bytes(size, "big")))
        told = socket.socket(fileno=files.pop())
        if pid := os.fork():
            for file in files:
                os.close(file)
            running[pid] = told
            _tell(told, pid)
            continue
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for own in (listener, *links, ended, wakes, told, *running.values()):
            own.close()
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        program, is_script, words, folder, env = request
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        first = os.path.dirname(program) if is_script else folder
        sys.path[:1] = [first, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv[:] = [program, *words]
        return program, is_script
    sys.exit()


def _tell_codes(running: dict[int, socket.socket]) -> None:
    """To whom started it, of each child that has ended."""
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        with running.pop(pid) as told:
            _tell(told, os.waitstatus_to_exitcode(status))


def _tell(told: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the tests went on without it
        told.sendall(number.to_bytes(4, "big", signed=True))


def _run(program: str, is_script: bool) -> None:
    """Run the program and leave, without taking apart what the server imported."""
    code: object = 0
    try:
        if is_script:
            runpy.run_path(program, run_name="__main__")
        else:
            runpy.run_module(program, run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        code = leaving.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


if __name__ == "__main__":
    if os.fork():  # no child of the worker that starts it: that ends its own, and counts them
        os._exit(0)
    _run(*_serve(socket.socket(fileno=int(sys.argv[1]))))
