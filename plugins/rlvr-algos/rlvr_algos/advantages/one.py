"""Advantage `one`: every trajectory counts the same."""

from __future__ import annotations

from collections.abc import Sequence

from rlvr import Advantage, BuildContext, ScoredGroup


class OneAdvantage(Advantage):
    """
    1.0 for every trajectory, whatever its reward.

    Turns the loss `sft` into plain imitation of what the sampler yields (the references).
    """

    def __init__(self, config: None, context: BuildContext) -> None:
        """Takes no options."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        """Shape (P, G), ragged in G: all ones."""
        return [[1.0] * len(group.trajectories) for group in groups]
