"""Where sandboxes live: one folder a process, swept when its process is gone."""

from __future__ import annotations

import atexit
import compileall
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import rlvr_cvdp
from rlvr import PrerequisiteError
from rlvr_cvdp.sandbox.folders import tidy
from rlvr_cvdp.sandbox.folders.tidy import FolderSnapshot, clear

_PACKAGE = Path(rlvr_cvdp.__file__).parent
_INSIDE = _PACKAGE / "inside"
TREE = ("rtl", "verif", "docs", "src", "rundir")


def root() -> Path:
    """The folder of all sandboxes of this user: `$TMPDIR/rlvr-cvdp-UID`."""
    return Path(tempfile.gettempdir()) / f"rlvr-cvdp-{os.getuid()}"


@functools.cache
def _own_folder(pid: int) -> Path:
    folder = root()
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            raise PrerequisiteError(f"{folder} belongs to somebody else; set TMPDIR")
        sweep()
        made = Path(tempfile.mkdtemp(prefix="new-", dir=folder))  # which nobody sweeps
        _lock(made)  # until this process ends, and all that it forks
        own = made.rename(made.with_name(made.name.replace("new", str(pid), 1)))
    except OSError as error:
        if isinstance(error, PrerequisiteError):
            raise
        raise PrerequisiteError(
            "verifying CVDP problems needs a folder for temporary files.",
            f"found: {folder} cannot be written ({error.strerror})",
            "try: TMPDIR=/a/writable/folder",
        ) from None
    atexit.register(_remove, own, pid)
    return own


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        remove_folder(folder)


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None where another process holds it."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or a file system without locks
        os.close(handle)
        return None
    return handle


def sweep() -> int:
    """
    Remove what processes that are gone left behind; gives how many folders there were.

    A process that `/proc` does not show may live in another container that shares the folder: it
    holds the lock of its own.
    """
    removed = 0
    for folder in root().iterdir():
        owner = folder.name.partition("-")[0]
        if owner.isdecimal() and not Path("/proc", owner).exists():
            with contextlib.suppress(OSError):  # another process was faster
                if (handle := _lock(folder)) is not None:
                    remove_folder(folder)
                    os.close(handle)
                    removed += 1
    return removed


@contextmanager
def work_folder() -> Iterator[Path]:
    """A fresh folder for one verification; gone afterwards, whatever happened."""
    folder = new_folder()
    try:
        yield folder
    finally:
        remove_folder(folder)


def new_folder() -> Path:
    """A fresh folder; the caller removes it."""
    return Path(tempfile.mkdtemp(prefix="v", dir=_own_folder(os.getpid())))


def remove_folder(folder: Path) -> None:
    """Take a folder away with all that is in it; what cannot be taken away stays."""
    with contextlib.suppress(OSError):
        clear(folder)
        folder.rmdir()


def make_slot_folder(folder: Path) -> None:
    """Fill an empty folder for a slot: `tree`, `out`, `control` and the scan's lists."""
    for name in (*(f"tree/{part}" for part in TREE), "out", "control"):
        (folder / name).mkdir(parents=True)
    for name in ("answer", "allowed"):
        (folder / name).touch()


def slot_places(folder: Path) -> FolderSnapshot:
    """
    What a problem can write in a slot's folder, to be made again as it is now.

    `tree`, `tree/src` and `out` themselves stay: a sandbox is bound to them.
    """
    return FolderSnapshot([str(folder / "tree"), str(folder / "out")])


@functools.cache
def inside_folder(pid: int, python: str) -> Path:
    """The sandbox's own programs, made once a process; `python` is what runs them inside."""
    folder = Path(tempfile.mkdtemp(prefix="inside", dir=_own_folder(pid)))
    (folder / "python").mkdir()
    (folder / "bin").mkdir()
    (folder / "empty").touch()
    (folder / "nothing").mkdir()
    for name in sorted(place.name for place in _INSIDE.glob("*.py")):
        shutil.copyfile(_INSIDE / name, folder / "python" / name)
    shutil.copyfile(_PACKAGE / "verify" / "forbidden_calls.py", folder / "scan.py")
    shutil.copyfile(Path(tidy.__file__), folder / "python" / "rlvr_tidy.py")
    # No sandbox could keep the bytecode; it names the place inside, none of this machine.
    compileall.compile_dir(str(folder / "python"), ddir="/rlvr/python", quiet=2)
    for script, names in (
        ("iverilog.sh", ("iverilog",)),
        ("vvp.sh", ("vvp",)),
        ("nothing.sh", ("pip", "pip3")),
        ("tool.sh", ("yosys", "verilator")),
    ):
        text = (_INSIDE / script).read_text().replace("@PYTHON@", python)
        for name in names:
            place = folder / "bin" / name
            place.write_text(text)
            place.chmod(0o755)
    return folder
