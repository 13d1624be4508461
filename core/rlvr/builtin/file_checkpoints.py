"""Checkpoints as folders: written beside, verified, renamed; the old one stays until then."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen
from attrs.validators import ge

from rlvr.config.core import CheckpointOptions
from rlvr.config.fields import option
from rlvr.errors import CheckpointError
from rlvr.parts import Backend, BuildContext, Checkpointer
from rlvr.records.json_lines import object_in
from rlvr.records.lineage import FILE as TRAINED_ON
from rlvr.types import Checkpoint

MANIFEST = "manifest.json"


@frozen(kw_only=True)
class FileCheckpointOptions(CheckpointOptions):
    """When checkpoints are written, and how many are kept."""

    keep: int = option(2, "Checkpoints kept, besides the best one", validator=ge(1))


class FileCheckpointer(Checkpointer):
    """
    Keeps the newest checkpoints of a run under `RUN/checkpoints/step-NNNNNN`.

    A checkpoint is complete once its folder has its final name: `manifest.json` in it holds the
    state, the sha256 of every file, and a seal: the sha256 of all that it says itself.
    """

    def __init__(self, config: FileCheckpointOptions | None, context: BuildContext) -> None:
        if context.run_dir is None:
            raise CheckpointError("checkpoints need a run directory")
        self._root = context.run_dir / "checkpoints"
        self._keep = (config or FileCheckpointOptions()).keep
        self._pinned: int | None = None
        self._saved = -1
        """The step of the newest that this run wrote: what lies beyond it was passed by."""

    def pin(self, step: int | None) -> None:
        """Keep the checkpoint of this step besides the newest ones."""
        self._pinned = step
        self._prune()

    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        """
        Write a checkpoint; the previous one survives any failure.

        Raises:
            CheckpointError: The disk is full or not writable; names the last good checkpoint.
        """
        beside = self._root / f".writing-{os.getpid()}"
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            for left in self._root.glob(".*-*"):  # by a run that was killed as it wrote or removed
                shutil.rmtree(left, ignore_errors=True)
            (beside / "model").mkdir(parents=True)
            await backend.save(beside / "model")
            if lineage := state.get("lineage"):  # so that copied weights still say it
                (beside / "model" / TRAINED_ON).write_text(json.dumps(lineage), encoding="utf-8")
            manifest = {"step": step, "state": dict(state), "files": _hashes(beside)}
            seal = _seal(manifest)
            text = json.dumps({**manifest, "seal": seal}, indent=2, sort_keys=True)
            (beside / MANIFEST).write_text(text, encoding="utf-8")
            for path in beside.rglob("*"):
                _fsync(path)
            final = self._root / f"step-{step:06d}"
            with suppress(OSError):
                final.chmod(0o700)  # of one that was passed by because nobody may look into it
            shutil.rmtree(final, ignore_errors=True)
            if final.is_symlink() or final.is_file():
                final.unlink()
            beside.rename(final)
            _fsync(self._root)
        except OSError as error:
            shutil.rmtree(beside, ignore_errors=True)
            last = [one for one in self.list() if one.digest]
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written.",
                f"found: {error.strerror or error}; "
                f"last good checkpoint: {last[-1].path if last else 'none'}",
                "free space or choose another --out, then continue with --resume",
            ) from error
        self._saved = step
        self._prune()
        return Checkpoint(path=final, step=step, digest=seal)

    def _prune(self) -> None:
        whole = [one for one in self.list() if one.digest and one.step <= self._saved]
        for old in whole[: -self._keep]:
            if old.step != self._pinned:
                going = old.path.with_name(f".removing-{old.path.name}")  # never half of one
                with suppress(OSError):
                    old.path.rename(going)
                shutil.rmtree(going, ignore_errors=True)

    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        """Verify a checkpoint, restore the backend from it and give back the state."""
        self.verify(which)
        await backend.load(which.path / "model")
        state: dict[str, Any] = _manifest(which.path)["state"]
        return state

    def list(self) -> Sequence[Checkpoint]:
        """
        The checkpoints, oldest first; also damaged and unreadable ones, which `load` then names.

        Raises:
            CheckpointError: The folder of checkpoints is unreadable: a run would begin anew.
        """
        try:
            entries = [one for one in os.scandir(self._root) if one.name.startswith("step-")]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self._root, str(error)) from error
        found = []
        for entry in entries:
            path, number, seal = Path(entry), entry.name.partition("-")[2], ""
            is_there = entry.is_dir(follow_symlinks=False) or os.path.exists(entry)
            if number.isdecimal() and is_there:
                with suppress(CheckpointError):  # `verify` says it
                    seal = str(_manifest(path).get("seal", ""))
                found.append(Checkpoint(path=path, step=int(number), digest=seal))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def verify(self, checkpoint: Checkpoint) -> None:
        """
        Compare every file with the manifest.

        Raises:
            CheckpointError: A file is missing, was added or differs, the manifest included.
        """
        manifest = _manifest(checkpoint.path)
        seal = manifest.pop("seal", "")
        expected, found = dict(manifest["files"]), _hashes(checkpoint.path)
        if _seal(manifest) != seal or checkpoint.digest not in ("", seal):
            expected[MANIFEST] = "as it was sealed"
        wrong = sorted(n for n in {*expected, *found} if expected.get(n) != found.get(n))
        if wrong:
            raise CheckpointError(
                f"the checkpoint {checkpoint.path} cannot be trusted.",
                f"found: {wrong[0]} is missing or differs from the manifest",
                "resume from another checkpoint of the run",
            )


def _manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = object_in(path / MANIFEST)
    except (OSError, ValueError) as error:
        raise _unreadable(path, str(error)) from error
    for name, kind in {"step": int, "state": dict, "files": dict}.items():
        if not isinstance(manifest.get(name), kind):
            raise _unreadable(path, f'no "{name}" as it was written')
    return manifest


def _unreadable(path: Path, found: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} cannot be read.",
        f"found in {MANIFEST}: {found}",
        "resume from another checkpoint of the run",
    )


def _hashes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and path.name != MANIFEST
    }


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _seal(manifest: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
