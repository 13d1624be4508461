"""Write the file of `--out` in one piece, with a clear message when the disk is full."""

from __future__ import annotations

import errno
from pathlib import Path

from rlvr.errors import CheckpointError
from rlvr.records.run_directory import write_atomic

DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


def write_out(path: Path, content: str | bytes) -> None:
    """
    Write the results of a command to the file that `--out` names.

    Raises:
        CheckpointError: The disk is full or fails; a file that was there before is left as it was.
    """
    try:
        write_atomic(path, content)
    except OSError as error:
        if error.errno not in DISK_TROUBLE:
            raise
        raise CheckpointError(
            f"results were to be written to {path}.",
            f"found: {error.strerror}",
            "free space, or choose another disk with --out; verdicts are kept in the store",
        ) from error
