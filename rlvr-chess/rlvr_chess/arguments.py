"""What the commands of chess ask of their arguments before any work is done."""

from __future__ import annotations

import argparse
import math
import os
from pathlib import Path

from rlvr.errors import ConfigError, UnknownNameError, explain

_COLDEST = 1e-6
"""Logits divided by much less are not finite in single precision."""


def temperature(text: str) -> float:
    """A number to divide logits by, or 0; argparse says what is wrong with it."""
    value = float(text)
    if not math.isfinite(value) or value < 0.0:
        raise argparse.ArgumentTypeError(f"{text} is not a finite number from 0 on")
    if 0.0 < value < _COLDEST:
        raise argparse.ArgumentTypeError(f"{text} is less than {_COLDEST:g}; the first choice is 0")
    return value


def check_writable(path: Path, *, makes_folder: bool = False) -> None:
    """
    Make sure that a file can be written; what stands there stays as it is.

    Args:
        path: The file.
        makes_folder: Make its folder where there is none; else that is a mistake.

    Raises:
        UnknownNameError: There is no such folder.
        ConfigError: It cannot be written for another reason.
    """
    try:
        if makes_folder:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.parent.is_dir():
            raise UnknownNameError(
                explain(f"{path} was to be written.", "found: no such folder", "make it first")
            )
        was_there = os.path.lexists(path)
        with path.open("ab"):
            pass
        if not was_there:
            path.unlink()
    except OSError as error:
        raise unwritable(path, error) from None


def unwritable(path: Path, error: OSError) -> ConfigError:
    """The error of a file that cannot be written, with the system's reason."""
    is_file = isinstance(error, FileExistsError | NotADirectoryError)  # the folder's name is taken
    reason = "a file where its folder should be" if is_file else error.strerror or error
    return ConfigError(
        explain(
            f"{path} was to be written.",
            f"found: {reason}",
            "choose another file, in a folder that you may write to",
        )
    )
