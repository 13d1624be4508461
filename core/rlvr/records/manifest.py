"""The manifest of a checkpoint: its step and state, and by which hashes its files are whole."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.errors import CheckpointError
from rlvr.records.json_lines import object_in

MANIFEST = "manifest.json"


def seal(folder: Path, step: int, state: Mapping[str, Any]) -> str:
    """Write the manifest of a folder that is complete; gives the sha256 of what it says."""
    manifest = {"step": step, "state": dict(state), "files": _hashes(folder)}
    digest = _digest(manifest)
    text = json.dumps({**manifest, "seal": digest}, indent=2, sort_keys=True)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    return digest


def read_manifest(folder: Path) -> dict[str, Any]:
    """
    What a checkpoint's manifest says.

    Raises:
        CheckpointError: It is missing, cannot be read, or lacks a field.
    """
    try:
        manifest = object_in(folder / MANIFEST)
    except (OSError, ValueError) as error:
        raise _unreadable(folder, f"{MANIFEST}: {error}") from error
    for name, kind in {"step": int, "state": dict, "files": dict}.items():
        if not isinstance(manifest.get(name), kind):
            raise _unreadable(folder, f'{MANIFEST}: no "{name}" as it was written')
    return manifest


def check(folder: Path, digest: str = "", step: int | None = None) -> None:
    """
    Compare every file of a checkpoint with its manifest, and that with `digest` and `step`.

    Raises:
        CheckpointError: A file is missing, was added or differs, the manifest included.
    """
    manifest = read_manifest(folder)
    sealed = manifest.pop("seal", "")
    try:
        expected, found = dict(manifest["files"]), _hashes(folder)
    except OSError as error:
        raise _unreadable(folder, str(error)) from error
    is_another = digest not in ("", sealed) or step not in (None, manifest["step"])
    if _digest(manifest) != sealed or is_another:
        expected[MANIFEST] = "as it was sealed"
    wrong = sorted(n for n in {*expected, *found} if expected.get(n) != found.get(n))
    if wrong:
        raise CheckpointError(
            f"the checkpoint {folder} cannot be trusted.",
            f"found: {wrong[0]} is missing or differs from the manifest",
            _ANOTHER,
        )


_ANOTHER = "use another checkpoint of the run"


def _unreadable(folder: Path, found: str) -> CheckpointError:
    return CheckpointError(f"the checkpoint {folder} cannot be read.", f"found: {found}", _ANOTHER)


def _hashes(root: Path) -> dict[str, str]:
    hashes = dict[str, str]()
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.name != MANIFEST:
            with path.open("rb") as file:
                hashes[str(path.relative_to(root))] = hashlib.file_digest(
                    file, "sha256"
                ).hexdigest()
    return hashes


def _digest(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
