"""CheckpointerContract finds each planted fault (the built-in one passes it, tested beside)."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest

from rlvr import Backend, BuildContext, Checkpoint
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.testing import CheckpointerContract
from tests.testing.conftest import Broken, Faults, contract_of

breaks = Faults()


@breaks("one_changed_byte_is_found", "missing_and_truncated_files_are_found")
class TrustsFiles(FileCheckpointer):
    def verify(self, checkpoint: Checkpoint) -> None:
        pass


@breaks("one_changed_byte_is_found")
class LoadsUnchecked(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        honest, self.verify = self.verify, lambda _which: None  # type: ignore[method-assign]
        try:
            return await super().load(which, backend)
        finally:
            self.verify = honest  # type: ignore[method-assign]


@breaks("load_gives_back_what_was_saved")
class LosesTheState(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        return {**await super().load(which, backend), "note": ""}


@breaks("lists_oldest_first")
class NewestFirst(FileCheckpointer):
    def list(self) -> Sequence[Checkpoint]:
        return super().list()[::-1]


@breaks("failing_save_leaves_the_previous_one", "kill_while_saving_leaves_the_previous_one")
class WritesInPlace(FileCheckpointer):
    """Removes the old checkpoint before the new one is complete."""

    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        for old in super().list():
            shutil.rmtree(old.path)
        return await super().save(step, state, backend)


@breaks("kill_while_saving_leaves_the_previous_one")
class WritesUnderItsName(FileCheckpointer):
    """All files, the manifest last, in the folder of the final name; lists what has a manifest."""

    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        folder = self._root / f"step-{step:06d}"
        saved = await super().save(step, state, backend)
        manifest = (folder / "manifest.json").read_text()
        (folder / "manifest.json").unlink()
        (folder / "manifest.json").write_text(manifest)
        return saved

    def list(self) -> Sequence[Checkpoint]:
        found = sorted(self._root.glob("step-*/manifest.json"))
        folders = [file.parent for file in found]
        whole = {checkpoint.path: checkpoint for checkpoint in super().list()}
        return [whole.get(f) or Checkpoint(path=f, step=int(f.name[5:])) for f in folders]


@breaks("load_gives_back_what_was_saved")
class ForgetsTheBackend(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        from rlvr.testing import TinyBackend

        return await super().load(which, TinyBackend())


@breaks("lists_oldest_first")
class NoDigest(FileCheckpointer):
    def list(self) -> Sequence[Checkpoint]:
        return [attrs.evolve(checkpoint, digest="") for checkpoint in super().list()]


@breaks("lists_oldest_first")
class SavesWithoutDigest(FileCheckpointer):
    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        return attrs.evolve(await super().save(step, state, backend), digest="")


@breaks("lists_oldest_first")
class SavesATextAsPath(FileCheckpointer):
    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        saved: Any = await super().save(step, state, backend)
        return attrs.evolve(saved, path=str(saved.path))

    def list(self) -> Sequence[Checkpoint]:
        found: Any = super().list()
        return [attrs.evolve(checkpoint, path=str(checkpoint.path)) for checkpoint in found]


@breaks("a_pinned_checkpoint_outlives_the_newest")
class PinsNothing(FileCheckpointer):
    def pin(self, step: int | None) -> None:
        """Forget it."""


def making(checkpointer: type) -> Callable[[Path], Any]:
    """Make it in a directory."""
    options = FileCheckpointOptions(keep=5)
    return lambda directory: checkpointer(options, BuildContext(run_dir=directory))


@pytest.mark.parametrize(("checkpointer", "promise"), breaks.cases)
def test_faults_are_found(checkpointer: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(CheckpointerContract, promise, make_checkpointer=making(checkpointer))


@pytest.mark.parametrize("slip", ["pins", "pni", "Pins", "_pin"])
def test_a_slip_in_an_optional_name_is_refused(slip: str) -> None:
    """A misspelt `pin` would lose the best weights in silence."""
    if slip.startswith("_"):  # a private name is the author's own
        type("Slipped", (FileCheckpointer,), {slip: lambda self, step: None})
        return
    with pytest.raises(TypeError, match="did you mean pin"):
        type("Slipped", (FileCheckpointer,), {slip: lambda self, step: None})


def test_what_save_gives_instead_is_said(tmp_path: Path) -> None:
    """Whoever returns the folder reads what is missing."""

    class GivesAFolder(FileCheckpointer):
        async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Any:
            return (await super().save(step, state, backend)).path

    contract = contract_of(CheckpointerContract, make_checkpointer=making(GivesAFolder))()
    with pytest.raises(AssertionError, match=r"save gave a \w*Path, no Checkpoint"):
        contract.test_load_gives_back_what_was_saved(tmp_path)


def test_a_stranger_is_no_checkpointer(broken: Any) -> None:
    """An object with all methods and without the base class is found."""

    class Stranger:
        def __init__(self, *given: Any) -> None:
            self._inner = FileCheckpointer(*given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    assert broken(CheckpointerContract, make_checkpointer=making(Stranger)) == {"is_a_checkpointer"}
