"""
`rlvr` in a process of its own that need not import PyTorch first.

A server imports what is slow and not ours, once for all tests of a worker, and forks for each
command. The child has its own arguments, folder, environment, output and exit, imports rlvr and
its plugins anew, and runs what is registered for its exit.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path

_IMPORTED = ("attrs", "matplotlib.backends.backend_agg", "matplotlib.figure", "numpy", "pluggy")
_IMPORTED += ("rich.console", "safetensors.torch", "structlog", "sympy", "tokenizers", "torch")
_THREADS = {"OMP_NUM_THREADS": "1"}
_MODULE = ("-m", "rlvr.cli.main")
_server: tuple[subprocess.Popen[bytes], socket.socket] | None = None


def run_rlvr(
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 280,
    forks: bool = True,
) -> subprocess.CompletedProcess[str]:
    """
    What `rlvr WORDS` says: code, output and errors; one thread computes where it is forked.

    An interpreter of its own is started where `forks` is false, where `env` has a variable that
    Python or OpenMP reads when it starts, and where a module of the tests takes the place of one
    that is imported before the fork.

    Raises:
        subprocess.TimeoutExpired: The command took longer; it was killed.
    """
    command = [sys.executable, *_MODULE, *words]
    wanted = dict(os.environ if env is None else env)
    differs = _read_at_start(wanted) != _read_at_start({**os.environ, **_THREADS})
    if not forks or differs or _replaces(wanted, cwd or Path.cwd()):
        return subprocess.run(
            command, cwd=cwd, env=wanted, timeout=timeout_s,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    request = [list(words), str(cwd or Path.cwd()), wanted]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        code = _forked(
            command, json.dumps(request).encode(), [out.fileno(), err.fileno()], timeout_s
        )
        return subprocess.CompletedProcess(command, code, _text(out.fileno()), _text(err.fileno()))


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


def _text(file: int) -> str:
    os.lseek(file, 0, os.SEEK_SET)
    with open(file, encoding="utf-8", closefd=False) as reader:
        return reader.read()


def _forked(command: list[str], request: bytes, files: list[int], timeout_s: float) -> int:
    global _server
    if _server is None:
        ours, its = socket.socketpair()
        with its:
            started = [sys.executable, __file__, str(its.fileno())]
            env = {**os.environ, **_THREADS, "PYTHONPATH": ""}
            process = subprocess.Popen(
                started, pass_fds=[its.fileno()], env=env, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )  # fmt: skip
        _server = process, ours
        atexit.register(_end)
    link, pid, code = _server[1], 0, None
    try:
        link.settimeout(None)
        socket.send_fds(link, [len(request).to_bytes(4, "big")], files)
        link.sendall(request)
        pid = _number(link)
        link.settimeout(timeout_s)
        with contextlib.suppress(TimeoutError):
            code = _number(link)
        if code is None:
            os.kill(pid, signal.SIGKILL)
            link.settimeout(None)
            _number(link)
    except BaseException:  # also where pytest ends the test: no command is left behind
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _end()
        raise
    if code is None:
        raise subprocess.TimeoutExpired(command, timeout_s)
    return code


def _end() -> None:
    global _server
    if _server is not None:
        (process, link), _server = _server, None
        link.close()
        process.wait()


def _number(link: socket.socket) -> int:
    return int.from_bytes(_bytes(link, 4), "big", signed=True)


def _bytes(link: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        if not (more := link.recv(count - len(found))):
            raise EOFError("the other side of the socket has ended")
        found += more
    return found


def _serve(link: socket.socket) -> None:
    """Fork for each request until the tests have ended; returns in the child, ready to run."""
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):  # a command that needs it says what is missing
            importlib.import_module(name)
    gc.freeze()  # the children share what is imported
    while True:
        size, files, _, _ = socket.recv_fds(link, 4, 2)
        if not size:
            sys.exit()
        words, folder, env = json.loads(_bytes(link, int.from_bytes(size, "big")))
        if pid := os.fork():
            for file in files:
                os.close(file)
            with contextlib.suppress(BrokenPipeError):  # the tests went on without the command
                link.sendall(pid.to_bytes(4, "big", signed=True))
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                link.sendall(code.to_bytes(4, "big", signed=True))
            continue
        link.close()
        for number, file in enumerate(files, start=1):
            os.dup2(file, number)
            os.close(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(env)
        sys.path[:1] = [folder, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
        sys.argv[1:] = words
        return


def _run() -> None:
    """Run the command and leave, without taking apart what the server imported."""
    code: object = 0
    try:
        runpy.run_module(_MODULE[1], run_name="__main__", alter_sys=True)
    except SystemExit as leaving:
        code = leaving.code
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()  # type: ignore[attr-defined]
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))  # type: ignore[call-overload]


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _run()
