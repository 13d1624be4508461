"""How right spans are: labelled characters that got the label, and what of the world is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import define, field

from rlvr_sad.trajectory import TRAINED, AgentTrajectory


@define
class Tally:
    """
    Non-blank labelled characters: how many get their label, and how much would be learnt.

    Attributes:
        pairs: Label and found type to characters.
    """

    pairs: Counter[tuple[str, str]] = field(factory=Counter)

    @property
    def total(self) -> int:
        """All of them."""
        return self.pairs.total()

    @property
    def confused(self) -> Counter[tuple[str, str]]:
        """Those that are wrong."""
        return Counter({pair: n for pair, n in self.pairs.items() if pair[0] != pair[1]})

    @property
    def share(self) -> float:
        """Share of the labelled characters that are right; 1 where there are none."""
        right = self.total - self.confused.total()
        return right / self.total if self.total else 1.0

    @property
    def leak(self) -> float:
        """Share of the observations' characters that would be learnt."""
        seen = {found: n for (label, found), n in self.pairs.items() if label == "observation"}
        leaked = sum(n for found, n in seen.items() if found in TRAINED)
        return leaked / sum(seen.values()) if seen else 0.0

    def add(self, other: Tally) -> None:
        """Take another one in."""
        self.pairs.update(other.pairs)


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
            if not text[at].isspace():
                tally.pairs[span["type"], labels[at]] += 1
    return tally
