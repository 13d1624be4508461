"""`rlvr` in the process of the tests, which has imported what the command needs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest import mock

from rlvr.cli.main import main


def rlvr_here(
    *words: str, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """
    What `rlvr WORDS` says: code, output and errors; a warning is an error, as in any test.

    For tests that ask the command line much, and of which others start it in a process of its own
    (`run_rlvr`): there its imports, its exit and its signals are tested.

    Args:
        words: Of the command line.
        cwd: Where it runs.
        env: Its environment, but for what libraries read when they are imported.
    """
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        err = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        stack.enter_context(contextlib.chdir(cwd))
        stack.enter_context(mock.patch.dict(os.environ, env or {}, clear=env is not None))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(words))
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read())
    return subprocess.CompletedProcess(list(words), code, *said)
