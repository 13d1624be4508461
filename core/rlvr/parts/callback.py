"""A callback: it observes a run and decides nothing; the run goes on if it fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rlvr.parts.base import Part
from rlvr.types import Checkpoint, EvalReport, RunInfo, ScoredGroup


class Callback(Part):
    """
    Observes the events of a run (`--callback NAME`), with options of its own.

    Callbacks are called one at a time; if one raises, that is logged and the run goes on.
    """

    kind: ClassVar[str] = "callback"

    def run_started(self, run: RunInfo) -> None:
        """The run directory exists and every part is open; nothing was sampled yet."""

    def evaluated(self, run: RunInfo, step: int, report: EvalReport) -> None:
        """An evaluation of the policy finished (`step` 0: before training)."""

    def groups_scored(self, run: RunInfo, step: int, groups: Sequence[ScoredGroup]) -> None:
        """All groups of a step have their outcomes."""

    def step_finished(self, run: RunInfo, step: int, metrics: Mapping[str, float]) -> None:
        """The weights were updated; names of metrics are paths (`reward/mean`)."""

    def checkpoint_saved(self, run: RunInfo, checkpoint: Checkpoint) -> None:
        """A checkpoint is complete on disk."""

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        """The run ended: "done", "interrupted" or "failed". Always told, after a failure too."""
