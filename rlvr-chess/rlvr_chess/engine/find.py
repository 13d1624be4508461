"""Where the engine is on this machine."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from rlvr import PrerequisiteError

FIX = "apt-get install stockfish"
"""The command that installs it on Debian and Ubuntu."""
_FOLDERS = ("/usr/games", "/usr/local/bin", "/opt/homebrew/bin", "/usr/bin")


def find_engine(path: str = "") -> Path:
    """
    The engine's executable: `path` (`chess.engine`), else `stockfish`.

    Looks on PATH and where packages put it: Debian's /usr/games is not on every PATH.

    Raises:
        PrerequisiteError: It is not there, or is no file that may be run.
    """
    found = shutil.which(path or "stockfish")
    if found is None and not path:
        found = shutil.which("stockfish", path=os.pathsep.join(_FOLDERS))
    if found is not None:
        return Path(found).resolve()
    if path:
        is_there = Path(path).exists()
        what = "a file that may not be run" if is_there else "no such file, nor on PATH"
        asked, what = f"the chess engine chess.engine={path} cannot be used.", f"found: {what}"
    else:
        asked = "the chess engine Stockfish is needed, to score a position that no table holds."
        what = f"found: no stockfish on PATH nor in {', '.join(_FOLDERS)}"
    raise PrerequisiteError(asked, what, f"try: {FIX}, or chess.engine=PATH")
