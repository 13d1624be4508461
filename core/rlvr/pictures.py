"""Pictures in a trajectory: what carries them, and what sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from rlvr.tokenization import Sight


@runtime_checkable
class Picture(Protocol):
    """
    A picture that tokens of a trajectory stand for; `repr` tells it apart from others.

    Small, for it travels with the data: where the picture is, not what is on it.
    """

    def open(self) -> Any:
        """The picture, as Pillow has it (RGB). Raises `ConfigError` where it cannot be read."""


@runtime_checkable
class Seeing(Protocol):
    """
    A policy or a teacher whose model may see pictures.

    `sight` is None where the model at hand reads text alone. A sampler that puts the tokens of
    pictures into a trajectory names the pictures too (`Trajectory.pictures`); everyone who reads
    its data makes pixels of them with a sight of their own.
    """

    sight: Sight | None
