"""The strength of each problem's harness, read from a file of `rlvr audit --json`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr import ConfigError

VERSION = 1


@frozen(kw_only=True)
class Audited:
    """
    One problem of an audit.

    Attributes:
        strength: Share of wrong answers that its harness rejected; None where it is not known.
        is_doubtful: The audit calls the harness weak or flaky.
    """

    strength: float | None
    is_doubtful: bool


def read_audit(path: Path) -> Mapping[str, Audited]:
    """
    The problems of an audit's JSON, by id.

    Raises:
        ConfigError: The file is not there, is not readable, or is not an audit of this version.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unread(path, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unread(path, f"not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("problems"), dict):
        raise _unread(path, 'no object with "problems"')
    if record.get("version") != VERSION:
        found = f"version {record.get('version')!r}, and this is read: {VERSION}"
        raise _unread(path, found)
    return {name: _audited(path, name, entry) for name, entry in record["problems"].items()}


def is_doubtful(audit: Mapping[str, Audited], name: str) -> bool:
    """Whether the audit calls the harness of a problem weak or flaky."""
    entry = audit.get(name)
    return entry is not None and entry.is_doubtful


def strength_weights(audit: Mapping[str, Audited], names: Iterable[str]) -> dict[str, float]:
    """The strength of each problem; if it is not known, the mean of the known ones."""
    found = {name: audit[name].strength if name in audit else None for name in names}
    known = [strength for strength in found.values() if strength is not None]
    usual = sum(known) / len(known) if known else 1.0
    return {name: usual if strength is None else strength for name, strength in found.items()}


def doubt_weights(audit: Mapping[str, Audited], names: Iterable[str]) -> dict[str, float]:
    """The strength of each doubtful problem (0 where it is not known); 1 for all others."""
    return {
        name: (audit[name].strength or 0.0) if is_doubtful(audit, name) else 1.0 for name in names
    }


def _audited(path: Path, name: str, entry: Any) -> Audited:
    if not isinstance(entry, dict) or not _is_share(entry.get("strength", "")):
        raise _unread(path, f'problem {name} has no "strength" of 0 to 1, or null')
    is_doubtful = entry.get("weak") is True or entry.get("flaky") is True
    return Audited(strength=entry["strength"], is_doubtful=is_doubtful)


def _is_share(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1


def _unread(path: Path, found: str) -> ConfigError:
    return ConfigError(
        f"the audit {path} was to be read (cvdp.audit).",
        f"found: {found}",
        "make one with: rlvr audit --plugin cvdp --dataset FILE --out AUDIT.json",
    )
