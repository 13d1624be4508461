"""Sandboxes by bubblewrap: no network, no host files, everything limited, no daemon."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from rlvr import PrerequisiteError, VerifierError
from rlvr_cvdp.sandbox.base import Sandbox, SandboxLease, program_slots
from rlvr_cvdp.sandbox.confine.kernel_files import SHOWN, device_mounts, hidden_entries
from rlvr_cvdp.sandbox.confine.seccomp import bpf_program
from rlvr_cvdp.sandbox.folders.root import inside_folder, make_slot_folder, work_folder
from rlvr_cvdp.sandbox.fresh import FreshSlot
from rlvr_cvdp.sandbox.processes.process import LocalProcess, SandboxProcess, spawn
from rlvr_cvdp.sandbox.records import MEGABYTE
from rlvr_cvdp.sandbox.worker import zygote_command, zygote_environment
from rlvr_cvdp.toolchain.cocotb_stacks import Stack
from rlvr_cvdp.toolchain.toolchain import Toolchain
from rlvr_cvdp.toolchain.tools import require_tool

_TAKEN = ("code", "src", "rundir", "rlvr")


@functools.cache
def can_make_namespaces() -> bool:
    """Whether bubblewrap works here (inside of containers it often may not)."""
    command = [str(require_tool("bwrap")), "--unshare-all", "--ro-bind", "/", "/", "/bin/true"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=20, check=False, env={})
        return done.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


class BubblewrapSandbox(Sandbox):
    """
    Slots in bubblewrap, on this machine's tools or on a root folder's.

    Args:
        toolchain: Tools and stacks; with `root` their paths are inside of it.
        root: Folder that gives /usr, /etc and /opt; None: this machine's /usr.
        hidden: What no slot may show although it lies in a visible folder.
        disk_mb: Size of each of the slot's own file systems.
        warm: See `Sandbox`. A slot that is not kept warm has a bubblewrap for each command.
        workers: See `Sandbox`.
    """

    name = "bubblewrap"

    def __init__(
        self,
        toolchain: Toolchain,
        *,
        root: Path | None = None,
        hidden: Sequence[Path] = (),
        disk_mb: int = 100,
        warm: int = 0,
        workers: int = 1,
    ) -> None:
        super().__init__(toolchain, warm=warm, workers=workers)
        self._root, self._hidden, self._disk_mb = root, tuple(hidden), disk_mb

    async def __aenter__(self) -> Sandbox:
        """Keep slots warm from now on."""
        require_tool("bwrap")
        return await super().__aenter__()

    @asynccontextmanager
    async def slot(self, stack: Stack) -> AsyncIterator[SandboxLease]:
        """A slot: a warm one inside `async with`, else one that is made for this problem."""
        require_tool("bwrap")
        if self._most:
            async with super().slot(stack) as lease:
                yield lease
            return
        async with program_slots(self._workers):
            with work_folder() as folder:
                make_slot_folder(folder)
                yield FreshSlot(folder, functools.partial(self._begin, folder, stack))

    async def _launch(self, folder: Path, stack: Stack) -> SandboxProcess:
        command, variables = zygote_command(stack), zygote_environment(stack)
        words = (command, "/code/rundir", variables, 'exec "$@"')
        try:
            return LocalProcess(await self._begin(folder, stack, *words, is_warm=True))
        except OSError as error:
            raise VerifierError(f"the sandbox could not be started: {error}") from None

    async def _begin(
        self, folder: Path, stack: Stack, argv: Sequence[str], working_dir: str,
        environment: Mapping[str, str], start: str, *, is_warm: bool = False,
    ) -> asyncio.subprocess.Process:  # fmt: skip
        """
        Start a command in a slot's folder.

        What bubblewrap itself is told goes through a descriptor: its command line, which the first
        process inside keeps, names no path of this machine.
        """
        settings = [word for item in environment.items() for word in ("--setenv", *item)]
        with _memory_file(bpf_program()) as rules:
            words = [
                *("--unshare-all", "--die-with-parent", "--new-session", "--hostname", "sandbox"),
                # Root would keep its capabilities, and could look into the worker.
                *("--cap-drop", "ALL", "--clearenv", "--seccomp", str(rules)),
                # A worker that is the first process gets no signal from the others.
                *(["--as-pid-1"] if is_warm else []),
                *(*self._mounts(folder, stack, is_warm), *settings, "--chdir", working_dir),
            ]
            with _memory_file(b"".join(os.fsencode(word) + b"\0" for word in words)) as arguments:
                command = [str(require_tool("bwrap")), "--args", str(arguments)]
                command += ["/bin/sh", "-c", start, "rlvr", *argv]
                return await spawn(command, inherit=(rules, arguments))

    def _mounts(self, folder: Path, stack: Stack, is_warm: bool) -> list[str]:
        tools = {name: Path(tool) for name, tool in self.toolchain.covered().items()}
        inside = inside_folder(os.getpid(), str(stack.python))
        tree, size = folder / "tree", str(self._disk_mb * MEGABYTE)
        mounts: list[str] = ["--ro-bind", f"{self._root or ''}/usr", "/usr"]
        # Before the stack, which may itself lie below /tmp.
        mounts += ["--size", size, "--tmpfs", "/tmp"]
        for name in ("bin", "sbin", "lib", "lib64"):
            mounts += ["--symlink", f"usr/{name}", f"/{name}"]
        if self._root is None:
            mounts += self._host_mounts(stack, list(tools.values()), inside)
        else:
            for name in ("etc/alternatives", "etc/ld.so.cache", "opt"):
                mounts += ["--ro-bind-try", str(self._root / name), f"/{name}"]
        for name, tool in tools.items():
            real = tool if self._root is None else self._root / tool.relative_to("/")
            mounts += ["--ro-bind", str(real), f"/rlvr/real/{name}"]
            mounts += ["--ro-bind", str(inside / "bin" / name), str(tool)]
        for place, leads in self.toolchain.companions().items():
            mounts += ["--symlink", leads, f"/rlvr/real/{place}"]
        for name in ("bin", "python", "scan.py"):
            mounts += ["--ro-bind", str(inside / name), f"/rlvr/{name}"]
        for name in ("answer", "allowed"):
            mounts += ["--ro-bind", str(folder / name), f"/rlvr/{name}"]
        mounts += ["--bind", str(folder / "out"), "/rlvr/out"]
        mounts += [*_kernel_mounts(inside, is_warm), *device_mounts(folder), "--size", size]
        mounts += ["--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        mounts += ["--bind", str(tree), "/code", "--ro-bind", str(tree / "src"), "/code/src"]
        mounts += ["--ro-bind", str(tree / "src"), "/src"]
        mounts += ["--size", size, "--tmpfs", "/rundir", "--dir", "/rundir/harness"]
        mounts += ["--ro-bind", str(folder / "control"), "/rlvr/control"]
        if is_warm:
            mounts += ["--size", str(MEGABYTE), "--tmpfs", "/rlvr/run"]
        return [*mounts, "--remount-ro", "/"]

    def _host_mounts(self, stack: Stack, tools: Sequence[Path], inside: Path) -> list[str]:
        mounts = []
        for path in ("/etc/alternatives", "/etc/ld.so.cache"):
            mounts += ["--ro-bind-try", path, path]
        folders = [*stack.prefixes, *(t.parent.parent for t in tools)]
        folders = [folder for folder in folders if not folder.is_relative_to("/usr")]
        for prefix in dict.fromkeys(folders):
            if prefix.parts[1:2] in [(name,) for name in _TAKEN]:
                raise PrerequisiteError(
                    f"the sandbox was to show {prefix}.",
                    "found: harnesses themselves use /code, /src and /rundir",
                    "put the Python environment somewhere else, in a home folder for example",
                )
            mounts += ["--ro-bind", str(prefix), str(prefix)]
        for secret in self._hidden:
            for prefix in (*folders, Path("/usr")):
                if secret.is_relative_to(prefix.resolve()):
                    place = prefix / secret.relative_to(prefix.resolve())
                    cover = ["--ro-bind", str(inside / "empty")]
                    mounts += [*(["--tmpfs"] if secret.is_dir() else cover), str(place)]
        return mounts


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    """A descriptor from which a process that inherits it reads some bytes."""
    descriptor = os.memfd_create("rlvr")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _kernel_mounts(inside: Path, is_warm: bool) -> list[str]:
    """
    /proc with little in it, and no terminals.

    Bubblewrap's own first process is covered; a warm worker that is the first covers itself.
    """
    mounts = ["--proc", "/proc"]
    for entry in hidden_entries():
        cover = inside / ("nothing" if os.path.isdir(entry) else "empty")
        mounts += ["--ro-bind", str(cover), entry]
    for name in SHOWN:
        mounts += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
    if not is_warm:
        mounts += ["--ro-bind", str(inside / "nothing"), "/proc/1"]
    return [*mounts, "--dev", "/dev", "--ro-bind", str(inside / "nothing"), "/dev/pts"]
