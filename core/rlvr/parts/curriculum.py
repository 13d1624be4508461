"""A curriculum: it chooses the problems of each step."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from typing import ClassVar

from rlvr.parts.base import Part
from rlvr.types import PassRate, Problem


class Curriculum(Part):
    """Chooses the problems of each step (`--curriculum NAME`, or a task's own)."""

    kind: ClassVar[str] = "curriculum"

    @abc.abstractmethod
    def choose(
        self,
        problems: Sequence[Problem],
        count: int,
        *,
        seed: int,
        step: int,
        history: Mapping[str, PassRate],
    ) -> Sequence[Problem]:
        """
        `count` of the problems for a step (0-based): a pure function of the arguments.

        `history` holds the pass rates of all finished steps by problem id, without problems never
        met. `rlvr.epochs`, `by_weight`, `by_stages` and `by_pass_rate` are ready choices. Raises
        `ConfigError` where its options do not fit the problems: a run asks once before anything is
        sampled.
        """
