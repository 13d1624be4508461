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
from rlvr.testing.contract import Contract

Broken = Callable[[type[Contract]], set[str]]


class TrustsFiles(FileCheckpointer):
    def verify(self, checkpoint: Checkpoint) -> None:
        pass


class LoadsUnchecked(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        honest, self.verify = self.verify, lambda _which: None  # type: ignore[method-assign]
        try:
            return await super().load(which, backend)
        finally:
            self.verify = honest  # type: ignore[method-assign]


class LosesTheState(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        return {**await super().load(which, backend), "note": ""}


class NewestFirst(FileCheckpointer):
    def list(self) -> Sequence[Checkpoint]:
        return super().list()[::-1]


class WritesInPlace(FileCheckpointer):
    """Removes the old checkpoint before the new one is complete."""

    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        for old in super().list():
            shutil.rmtree(old.path)
        return await super().save(step, state, backend)


class ForgetsTheBackend(FileCheckpointer):
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        from rlvr.testing import TinyBackend

        return await super().load(which, TinyBackend())


class NoDigest(FileCheckpointer):
    def list(self) -> Sequence[Checkpoint]:
        return [attrs.evolve(checkpoint, digest="") for checkpoint in super().list()]


class PinsNothing(FileCheckpointer):
    def pin(self, step: int | None) -> None:
        """Forget it."""


def contract_of(checkpointer: type) -> type[CheckpointerContract]:
    """The contract on that checkpointer."""

    class Case(CheckpointerContract):
        def make_checkpointer(self, directory: Path) -> Any:
            return checkpointer(FileCheckpointOptions(keep=5), BuildContext(run_dir=directory))

    return Case


@pytest.mark.parametrize(
    ("checkpointer", "promise"),
    [
        (TrustsFiles, "one_changed_byte_is_found"),
        (TrustsFiles, "missing_and_truncated_files_are_found"),
        (LoadsUnchecked, "one_changed_byte_is_found"),
        (LosesTheState, "load_gives_back_what_was_saved"),
        (ForgetsTheBackend, "load_gives_back_what_was_saved"),
        (NewestFirst, "lists_oldest_first"),
        (NoDigest, "lists_oldest_first"),
        (WritesInPlace, "failing_save_leaves_the_previous_one"),
        (WritesInPlace, "kill_while_saving_leaves_the_previous_one"),
        (PinsNothing, "a_pinned_checkpoint_outlives_the_newest"),
    ],
)
def test_faults_are_found(checkpointer: type, promise: str, broken: Broken) -> None:
    """Each planted fault fails the test whose promise it breaks."""
    assert promise in broken(contract_of(checkpointer))


@pytest.mark.parametrize("slip", ["pins", "pni", "Pins", "_pin"])
def test_a_slip_in_an_optional_name_is_refused(slip: str) -> None:
    """A misspelt `pin` would lose the best weights in silence."""
    if slip.startswith("_"):  # a private name is the author's own
        type("Slipped", (FileCheckpointer,), {slip: lambda self, step: None})
        return
    with pytest.raises(TypeError, match="did you mean pin"):
        type("Slipped", (FileCheckpointer,), {slip: lambda self, step: None})


def test_a_stranger_is_no_checkpointer(broken: Any) -> None:
    """An object with all methods and without the base class is found."""

    class Stranger:
        def __init__(self, *given: Any) -> None:
            self._inner = FileCheckpointer(*given)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

    assert broken(contract_of(Stranger)) == {"is_a_checkpointer"}
