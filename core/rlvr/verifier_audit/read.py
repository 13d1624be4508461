"""Read the file of `rlvr audit`: how strong the verifier of each problem is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import ConfigError
from rlvr.verifier_audit.file import VERSION


def read_strengths(path: Path, asked_by: str) -> Mapping[str, float | None]:
    """
    Problem id to the share of wrong answers that its verifier rejected; None where not known.

    Args:
        path: What `rlvr audit --out` wrote.
        asked_by: The option that names it, for messages.

    Raises:
        ConfigError: The file is not there, is not readable, or is no audit of this version.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unread(path, asked_by, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unread(path, asked_by, f"not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("problems"), dict):
        raise _unread(path, asked_by, 'no object with "problems"')
    if record.get("version") != VERSION:
        found = f"version {record.get('version')!r}, and this is read: {VERSION}"
        raise _unread(path, asked_by, found)
    for name, entry in record["problems"].items():
        if not isinstance(entry, dict) or not _is_share(entry.get("strength", "")):
            found = f'problem {name} has no "strength" of 0 to 1, or null'
            raise _unread(path, asked_by, found)
    return {name: entry["strength"] for name, entry in record["problems"].items()}


def _is_share(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _unread(path: Path, asked_by: str, found: str) -> ConfigError:
    return ConfigError(
        f"the audit {path} was to be read ({asked_by}).",
        f"found: {found}",
        "make one with: rlvr audit --plugin NAME --dataset FILE --out AUDIT.json",
    )
