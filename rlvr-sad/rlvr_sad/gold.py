"""How right spans are: labelled characters that got the label, and what of the world is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from rlvr_sad.trajectory import TRAINED, AgentTrajectory


@define
class Tally:
    """Non-blank labelled characters: how many got their label, and what would be learnt."""

    total: int = 0
    right: int = 0
    observed: int = 0
    leaked: int = 0
    confused: Counter[tuple[str, str]] = field(factory=Counter)

    @property
    def share(self) -> float:
        """Share of the labelled characters that are right; 1 where there are none."""
        return self.right / self.total if self.total else 1.0

    @property
    def leak(self) -> float:
        """Share of the observations' characters that would be learnt."""
        return self.leaked / self.observed if self.observed else 0.0

    def add(self, other: Tally) -> None:
        """Take another one in."""
        self.total += other.total
        self.right += other.right
        self.observed += other.observed
        self.leaked += other.leaked
        self.confused.update(other.confused)


def compare(gold: Mapping[str, Any], found: AgentTrajectory) -> Tally:
    """
    One labelled record against a trajectory of the same text.

    `gold["spans"]` have `start`, `end` and `type`; characters in none of them are not counted.
    """
    text: str = gold["text"]
    labels: list[str] = []
    for segment in found.segments:
        labels += [segment.type] * len(segment.text)
    tally = Tally()
    for span in gold["spans"]:
        for at in range(span["start"], span["end"]):
            if text[at].isspace():
                continue
            tally.total += 1
            tally.right += labels[at] == span["type"]
            if labels[at] != span["type"]:
                tally.confused[span["type"], labels[at]] += 1
            if span["type"] == "observation":
                tally.observed += 1
                tally.leaked += labels[at] in TRAINED
    return tally
