"""The folder of a slot: created, and emptied between two problems."""

from __future__ import annotations

from pathlib import Path

from rlvr_cvdp.sandbox.folders.tidy import Places, clear

TREE = ("rtl", "verif", "docs", "src", "rundir")


def make_slot_folder(folder: Path) -> None:
    """`tree`, `out`, `control` and the scan's lists in an empty folder."""
    for name in TREE:
        (folder / "tree" / name).mkdir(parents=True)
    for name in ("out", "control"):
        (folder / name).mkdir()
    for name in ("answer", "allowed"):
        (folder / name).touch()


def slot_places(folder: Path) -> Places:
    """
    What a problem can write in a slot's folder, to be made again as it is now.

    `tree`, `tree/src` and `out` themselves stay: a sandbox is bound to them.
    """
    return Places([str(folder / "tree"), str(folder / "out")])


def empty_folder(folder: Path) -> None:
    """Take away all that is in a folder, whatever it is; follows no link."""
    clear(str(folder))
