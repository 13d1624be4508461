"""How right spans are: labelled characters that got the label, and what of the world is learnt."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rlvr_sad.trajectory import TRAINED, AgentTrajectory


class Tally(Counter[tuple[str, str]]):
    """Non-blank labelled characters by their label and the type that was found."""

    @property
    def confused(self) -> Counter[tuple[str, str]]:
        """Those that are wrong."""
        return Counter({pair: n for pair, n in self.items() if pair[0] != pair[1]})

    @property
    def share(self) -> float:
        """Share of the labelled characters that are right; 1 where there are none."""
        total = self.total()
        return (total - self.confused.total()) / total if total else 1.0

    @property
    def leak(self) -> float:
        """Share of the observations' characters that would be learnt."""
        seen = {found: n for (label, found), n in self.items() if label == "observation"}
        leaked = sum(n for found, n in seen.items() if found in TRAINED)
        return leaked / sum(seen.values()) if seen else 0.0


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
                tally[span["type"], labels[at]] += 1
    return tally
