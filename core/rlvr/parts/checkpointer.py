"""A checkpointer: it saves and restores the states of a run."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from rlvr.parts.base import Part
from rlvr.types import Checkpoint

if TYPE_CHECKING:
    from rlvr.parts.backend import Backend


class Checkpointer(Part):
    """Saves and restores the states of a run."""

    kind: ClassVar[str] = "checkpointer"

    @abc.abstractmethod
    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        """Write atomically; the previous checkpoint survives any failure."""

    @abc.abstractmethod
    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        """Restore the backend and give back the state that was saved with it."""

    @abc.abstractmethod
    def list(self) -> Sequence[Checkpoint]:
        """Complete checkpoints, oldest first."""

    @abc.abstractmethod
    def verify(self, checkpoint: Checkpoint) -> None:
        """Raise `CheckpointError` when a file is missing or differs from the manifest."""

    def pin(self, step: int | None) -> None:
        """
        Keep the checkpoint of this step until another one is named; None: keep none but the newest.

        For a checkpointer that removes old ones; asked for the best checkpoint of a run.
        """
