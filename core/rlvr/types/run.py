"""A run as observers see it: its identity, checkpoints and pass rates."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen


@frozen(kw_only=True)
class Checkpoint:
    """A saved state on disk: where, at which step, and the sha256 of its manifest."""

    path: Path
    step: int
    digest: str = ""


@frozen(kw_only=True)
class RunInfo:
    """Identity of a run, for observers. `config` is the resolved configuration, dotted keys."""

    id: str
    directory: Path
    plugin: str
    algo: str
    model: str
    steps: int
    seed: int
    config: Mapping[str, Any] = field(factory=dict, repr=False)


@frozen(kw_only=True)
class PassRate:
    """
    How often a problem was solved lately, for choosing what to train on.

    Attributes:
        rate: Running mean of its groups' mean `score01`: of all groups at first, later an
            exponential moving average.
        count: Groups that made it.
        step: Step (0-based) of the last one.
    """

    rate: float
    count: int
    step: int
