"""The folder that an agent's container sees as /code: filled before, read safely afterwards."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import frozen

from rlvr_cvdp.answers.text_scores import ANSWER_FILES
from rlvr_cvdp.paths import write_texts
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox.folders.root import work_folder

FOLDERS = ("docs", "rtl", "verif", "rundir")
"""The folders of a problem that the official runner mounts; none holds the harness."""
PROMPT = "prompt.json"
MAX_FILE = 2_000_000
"""Bytes of a file that is taken from an agent."""


@frozen(kw_only=True)
class Taken:
    """The files to write that an agent made or changed, and why others were left."""

    files: dict[str, str]
    left: dict[str, str]


@contextmanager
def workspace(problem: CvdpProblem) -> Iterator[Path]:
    """A folder with the problem's given files and its prompt; gone afterwards."""
    with work_folder() as folder:
        for name in FOLDERS:
            (folder / name).mkdir()
        given = {p: t for p, t in problem.context.items() if p.partition("/")[0] in FOLDERS}
        write_texts(folder, {**given, PROMPT: json.dumps({"prompt": problem.prompt})})
        yield folder


def take(folder: Path, problem: CvdpProblem) -> Taken:
    """
    The problem's files to write that differ from what was given, and nothing else.

    Links are never followed, in no part of a path: an agent may have put them there.
    """
    files: dict[str, str] = {}
    left: dict[str, str] = {}
    for path in problem.targets or ANSWER_FILES:
        if path.partition("/")[0] not in FOLDERS:
            continue
        try:
            raw = _read(folder, path)
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            left[path] = getattr(error, "strerror", None) or str(error)
            continue
        text = raw.decode(errors="replace")
        if text != problem.context.get(path):
            files[path] = text
    return Taken(files=files, left=left)


def _read(folder: Path, path: str) -> bytes:
    """
    The bytes of a regular file below a folder.

    Raises:
        OSError: There is none, or a link stands somewhere on the way.
        ValueError: It is no regular file, or longer than `MAX_FILE`.
    """
    *parents, name = path.split("/")
    here = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for parent in parents:
            below = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = below
        # without waiting: a pipe has nobody who writes
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=here)
    finally:
        os.close(here)
    with os.fdopen(file, "rb") as handle:
        found = os.fstat(handle.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("no regular file")
        if found.st_size > MAX_FILE:
            raise ValueError(f"{found.st_size} bytes, at most {MAX_FILE} are taken")
        return handle.read(MAX_FILE)
