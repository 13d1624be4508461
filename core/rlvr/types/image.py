"""A picture in a trajectory: the tokens that stand for it say nothing of where it is."""

from __future__ import annotations

import abc
from typing import Any


class Image(abc.ABC):
    """
    A picture that tokens of a trajectory stand for; `repr` tells it apart from others.

    Small, for it travels with the data: where the picture is, not what is on it. A sampler that
    puts the tokens of pictures into a trajectory names the pictures too (`Trajectory.pictures`);
    everyone who reads its data makes pixels of them with an `ImageProcessor` of their own.
    """

    __slots__ = ()

    @abc.abstractmethod
    def open(self) -> Any:
        """The picture, as Pillow has it (RGB). Raises `ConfigError` where it cannot be read."""
