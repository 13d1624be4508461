"""Reference solutions in a file of their own, for data sets without them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr import ConfigError
from rlvr_cvdp.paths import answer_path


def read_references(path: Path) -> Mapping[str, Mapping[str, str]]:
    """
    Files of each reference, by problem id, of JSON Lines `{"id", "files": {path: text}}`.

    Raises:
        ConfigError: The file cannot be read, or a line of it is no reference.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig", errors="replace").split("\n")
    except OSError as error:
        raise ConfigError(
            f"references were to be read from {path} (cvdp.references).",
            f"found: {error.strerror or error}",
            'try: a file of JSON Lines {"id", "files": {path: text}}',
        ) from None
    found: dict[str, Mapping[str, str]] = {}
    for number, line in enumerate(lines, start=1):
        if line.strip():
            name, files = _read_line(path, number, line)
            found[name] = files
    return found


def _read_line(path: Path, number: int, line: str) -> tuple[str, Mapping[str, str]]:
    try:
        row: Any = json.loads(line)
        files = {answer_path(name): text for name, text in row["files"].items()}
        if not isinstance(row["id"], str) or not all(isinstance(t, str) for t in files.values()):
            raise TypeError("id and files must be texts")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ConfigError(
            f"references were to be read from {path} (cvdp.references).",
            f"found: line {number} is none: {error!r}",
            'try: JSON Lines {"id", "files": {path: text}}',
        ) from None
    return row["id"], {name: text for name, text in files.items() if name}
