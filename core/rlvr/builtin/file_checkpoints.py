"""Checkpoints as folders: written beside, verified, renamed; the old one stays until then."""

from __future__ import annotations

import json
import os
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
from rlvr.records.lineage import FILE as TRAINED_ON
from rlvr.records.manifest import check, read_manifest, seal
from rlvr.types import Checkpoint


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
        """The step of the newest that this process wrote."""
        self._whole = set[Checkpoint]()
        """Those that this process wrote, or compared with their manifest."""

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
            for left in self._root.iterdir():  # by a run that was killed as it wrote or removed
                if left.name.startswith((".writing-", ".removing-step-")):
                    _remove(left)
            (beside / "model").mkdir(parents=True)
            await backend.save(beside / "model")
            if lineage := state.get("lineage"):  # so that copied weights still say it
                (beside / "model" / TRAINED_ON).write_text(json.dumps(lineage), encoding="utf-8")
            digest = seal(beside, step, state)
            for path in beside.rglob("*"):
                _fsync(path)
            final = self._root / f"step-{step:06d}"
            _remove(final)
            beside.rename(final)
            _fsync(self._root)
        except OSError as error:
            _remove(beside)
            last = [one for one in self.list() if one.digest]
            raise CheckpointError(
                f"the checkpoint of step {step} could not be written.",
                f"found: {error.strerror or error}; "
                f"last good checkpoint: {last[-1].path if last else 'none'}",
                "free space or choose another --out, then continue with --resume",
            ) from error
        saved = Checkpoint(path=final, step=step, digest=digest)
        self._whole.add(saved)
        self._saved = step
        self._prune()
        return saved

    def _prune(self) -> None:
        found = [one for one in self.list() if one.digest and one.step <= self._saved]
        kept = 0  # of those beyond it nothing is known: the run passed them by
        for one in reversed(found if len(found) > self._keep else ()):
            if kept < self._keep:
                kept += self._is_whole(one)
            elif one.step != self._pinned:
                going = one.path.with_name(f".removing-{one.path.name}")  # never half of one
                with suppress(OSError):
                    one.path.rename(going)
                _remove(going)

    def _is_whole(self, one: Checkpoint) -> bool:
        if one not in self._whole:
            with suppress(CheckpointError):
                self.verify(one)
        return one in self._whole

    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        """Verify a checkpoint, restore the backend from it and give back the state."""
        self.verify(which)
        await backend.load(which.path / "model")
        state: dict[str, Any] = read_manifest(which.path)["state"]
        return state

    def list(self) -> Sequence[Checkpoint]:
        """
        The checkpoints, oldest first; also damaged and unreadable ones, which `load` then names.

        Raises:
            CheckpointError: The folder of checkpoints is unreadable: a run would begin anew.
        """
        try:
            entries = [one for one in os.scandir(self._root) if one.name.startswith("step-")]
        except OSError as error:
            if not os.path.lexists(self._root):
                return []
            raise CheckpointError(
                f"the checkpoints of {self._root} were asked for.",
                f"found: {error.strerror or error}",
                "make the folder readable, or start a new run",
            ) from error
        found = []
        for entry in entries:
            path, number, digest = Path(entry), entry.name.partition("-")[2], ""
            if number.isdecimal():
                with suppress(CheckpointError):  # `verify` says it
                    digest = str(read_manifest(path).get("seal", ""))
                found.append(Checkpoint(path=path, step=int(number), digest=digest))
        return sorted(found, key=lambda checkpoint: checkpoint.step)

    def verify(self, checkpoint: Checkpoint) -> None:
        """
        Compare every file with the manifest.

        Raises:
            CheckpointError: A file is missing, was added or differs, the manifest included.
        """
        check(checkpoint.path, checkpoint.digest, checkpoint.step)
        self._whole.add(checkpoint)


def _remove(path: Path) -> None:
    """A folder, a file or a link, also where folders are closed to their owner."""
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)
            for one in path.iterdir():
                _remove(one)
            path.rmdir()
        else:
            path.unlink()


def _fsync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
