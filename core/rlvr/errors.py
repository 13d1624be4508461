"""Every error rlvr raises on purpose, and the exit code each one means.

One root, `RlvrError`; each class also inherits its standard-library kin, so `except ValueError`
keeps working. What an error says becomes its one argument: errors cross process borders
and must pickle.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from enum import IntEnum
from typing import Any

__all__ = ["BackendError", "CheckpointError", "ConfigError", "ExitCode", "PartError"]
__all__ += ["PluginError", "PrerequisiteError", "RlvrError", "RunInterruptedError", "TaskError"]
__all__ += ["UnknownNameError", "UnsupportedError", "VerifierError", "counted", "explain"]


class ExitCode(IntEnum):
    """The exit status of `rlvr` (a contract: scripts rely on it)."""

    DONE = 0
    BUG = 1
    USAGE = 2
    PLUGIN = 3
    PREREQUISITE = 4
    VERIFIER = 5
    BACKEND = 6
    PROMISE = 7
    INTERRUPTED = 130


def explain(asked: str, found: str = "", do: str = "") -> str:
    """
    The three sentences of a good error: what was asked, what was found, what to do.

    Empty parts are left out; each of the others stands on a line of its own.
    """
    return "\n  ".join(part for part in (asked, found, do) if part)


class RlvrError(Exception):
    """
    Root of all errors that rlvr raises on purpose.

    Args:
        asked: What was asked; the one argument of the error that is made.
        found: What was found, a sentence on a line of its own.
        do: What to do, the last line.
    """

    exit_code: ExitCode = ExitCode.BUG

    def __init__(self, asked: object = "", found: str = "", do: str = "") -> None:
        super().__init__(explain(str(asked), found, do))


class ConfigError(RlvrError, ValueError):
    """An option, a file or a combination of them cannot be used as given."""

    exit_code = ExitCode.USAGE


class UnknownNameError(ConfigError, LookupError):
    """A name (of an option, a file, a problem) that does not exist."""


class PluginError(RlvrError, ImportError):
    """A plugin is missing, broken, incompatible, disabled, or its name is ambiguous."""

    exit_code = ExitCode.PLUGIN


class PartError(PluginError):
    """A plugin's part raised, or gave something else than it promised; the cause is chained."""


class PrerequisiteError(RlvrError, OSError):
    """Something outside Python is missing: a simulator, an engine, a key, a GPU."""

    exit_code = ExitCode.PREREQUISITE


class VerifierError(RlvrError, RuntimeError):
    """
    A verifier could not run. Never a reward: says nothing about the answer.

    Raised by a reward for one trajectory (counted, left out of the baseline), and by the run
    itself when too many verifications of a step could not run.
    """

    exit_code = ExitCode.VERIFIER


class TaskError(RlvrError, ValueError):
    """A task yielded data that a run cannot use (a reference that fails, a group of one)."""

    exit_code = ExitCode.PLUGIN


class BackendError(RlvrError, RuntimeError):
    """Training, sampling or loading a model failed; also when sampler and trainer disagree."""

    exit_code = ExitCode.BACKEND


class UnsupportedError(BackendError, NotImplementedError):
    """A part was asked for what its capabilities do not promise."""


class CheckpointError(RlvrError, OSError):
    """A checkpoint could not be written, read or trusted."""

    exit_code = ExitCode.BACKEND


class RunInterruptedError(RlvrError, RuntimeError):
    """The run was asked to stop (Ctrl-C) and did so after writing a checkpoint."""

    exit_code = ExitCode.INTERRUPTED


DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)
_ALLOW = "run as its owner, or give yourself access: ls -ld PATH shows who has it"
_OTHER = "give another path: a part of this one is a file, or a link that leads to itself"
_DO_ABOUT = {errno.EACCES: _ALLOW, errno.EPERM: _ALLOW, errno.ENAMETOOLONG: "give a shorter name"}
_DO_ABOUT |= {errno.ENOTDIR: _OTHER, errno.ELOOP: _OTHER}
_DO_ABOUT[errno.EEXIST] = "give another path: something else has this name, or a link to nothing"


def refused(error: BaseException) -> RlvrError | None:
    """The error for people where the system refuses a path or has no disk; None for others."""
    code, path = getattr(error, "errno", None), getattr(error, "filename", None)
    if not isinstance(error, OSError) or code is None:
        return None
    if path and (do := _DO_ABOUT.get(code)):
        return ConfigError(f"{path} was to be used.", f"found: {error.strerror}", do)
    if code == errno.EIO:  # of a read or a write
        do = "look at the disk that it lies on, or use another"
        return CheckpointError(
            f"{path or 'a file'} was to be used.", f"found: {error.strerror}", do
        )
    if code in DISK_TROUBLE:
        do = "free space on the disk that they go to, or write elsewhere"
        return CheckpointError("results were to be written.", f"found: {error}", do)
    return None


def counted(count: int, noun: str) -> str:
    """`1 step`, `2 steps`, `1 trajectory`, `0 trajectories`."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count} {noun if count == 1 else many}"


def text_of(value: object, write: Callable[[Any], str] = str, most: int = 300) -> str:
    """What `str` or `repr` writes of a foreign value, shortened; writing it may fail."""
    try:
        text = write(value)
    except BaseException as error:  # the plugin border: its __str__ is the plugin's
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"(its text raised {type(error).__name__})"
    return text if len(text) <= most else text[:most] + "..."
