"""The folder behind a slot: made, and emptied between two problems."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

TREE = ("rtl", "verif", "docs", "src", "rundir")


def make_slot_folder(folder: Path) -> None:
    """`tree`, `out`, `control` and the scan's lists in an empty folder."""
    for name in TREE:
        (folder / "tree" / name).mkdir(parents=True)
    for name in ("out", "control"):
        (folder / name).mkdir()
    for name in ("answer", "allowed"):
        (folder / name).touch()


def empty_slot_folder(folder: Path) -> None:
    """
    Take away everything that a problem left. Nothing may be running in the slot.

    `tree`, `tree/src` and `out` themselves stay: a sandbox is bound to them.
    """
    empty_folder(folder / "out")
    empty_folder(folder / "tree", keep=("src",))
    empty_folder(folder / "tree" / "src")
    for name in TREE:
        (folder / "tree" / name).mkdir(exist_ok=True)
    for name in ("answer", "allowed"):
        (folder / name).write_text("")


def empty_folder(folder: Path, keep: tuple[str, ...] = ()) -> None:
    """Take away all that is in a folder but `keep`, whatever it is; follows no link."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name in keep:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, onerror=_open_up)
            else:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(entry.path)


def _open_up(function: object, path: str, info: object) -> None:
    """A folder that a simulation closed to its owner is opened and removed."""
    for place in (os.path.dirname(path), path):
        with contextlib.suppress(OSError, NotImplementedError):  # the latter: it is a link
            os.chmod(place, 0o700, follow_symlinks=False)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            os.unlink(path)
