"""Share of accepted answers that the second judge rejects, with its confidence interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from attrs import frozen

KINDS = ("asked", "confirmed", "rejected", "none", "failed")
"""Values of `opinion` in a line of `opinions.jsonl` about an answer."""
_TAIL = 0.025
"""Probability outside the interval on each side: 95 % inside."""


@frozen(kw_only=True)
class Trust:
    """
    Answers that the verifier called right, by what the second judge said of them.

    Attributes:
        confirmed: The second judge called them right too.
        rejected: It did not: false accepts.
        unsure: It had no opinion.
        failed: It could not run.
        waiting: Drawn, and not judged yet.
        cost_s: Seconds that the judging took, added over answers.
        has_alarmed: Whether the alarm was raised.
    """

    confirmed: int = 0
    rejected: int = 0
    unsure: int = 0
    failed: int = 0
    waiting: int = 0
    cost_s: float = 0.0
    has_alarmed: bool = False

    @classmethod
    def of(cls, records: Iterable[Any]) -> Trust:
        """Count the lines of `opinions.jsonl`; other lines are ignored."""
        records = list(records)
        found = by_answer(records)
        kinds = [record["opinion"] for record in found.values()]
        return cls(
            confirmed=kinds.count("confirmed"),
            rejected=kinds.count("rejected"),
            unsure=kinds.count("none"),
            failed=kinds.count("failed"),
            waiting=kinds.count("asked"),
            cost_s=math.fsum(_seconds(record) for record in found.values()),
            has_alarmed=any(isinstance(r, dict) and r.get("opinion") == "alarm" for r in records),
        )

    @property
    def judged(self) -> int:
        """n: answers that were confirmed or rejected."""
        return self.confirmed + self.rejected

    @property
    def interval(self) -> tuple[float, float]:
        """Bounds of the share of false accepts at 95 %."""
        return clopper_pearson(self.rejected, self.judged)

    def is_past(self, threshold: float) -> bool:
        """
        Whether the share of false accepts is surely above the threshold.

        Answers that wait are counted as confirmed: a rejection may be quicker than a confirmation.
        """
        low, _ = clopper_pearson(self.rejected, self.judged + self.waiting)
        return low > threshold

    def metrics(self) -> dict[str, float]:
        """`trust/...`, all of them counted from the start of the run."""
        share = {}
        if self.judged:
            low, high = self.interval
            share = {
                "trust/false_accept": self.rejected / self.judged,
                "trust/false_accept_low": low,
                "trust/false_accept_high": high,
            }
        return share | {
            "trust/judged": float(self.judged),
            "trust/rejected": float(self.rejected),
            "trust/no_opinion": float(self.unsure),
            "trust/failed": float(self.failed),
            "trust/waiting": float(self.waiting),
            "trust/cost_s": self.cost_s,
            "trust/alarm": float(self.has_alarmed),
        }

    def sentence(self) -> str:
        """The figure in words: `false accepts 1 of 20 (5.0%) [0.1%, 24.9%]`, and the rest."""
        if self.judged:
            low, high = self.interval
            share = self.rejected / self.judged
            text = f"{self.rejected} of {self.judged} ({share:.1%}) [{low:.1%}, {high:.1%}]"
        else:
            text = "none judged yet"
        others = {"no opinion": self.unsure, "could not run": self.failed, "waiting": self.waiting}
        rest = "".join(f", {count} {name}" for name, count in others.items() if count)
        return f"false accepts {text}{rest}, {self.cost_s:.1f} s"


def by_answer(records: Iterable[Any]) -> dict[str, Mapping[str, Any]]:
    """The last line of each answer in `opinions.jsonl`, by trajectory; no damaged lines."""
    found: dict[str, Mapping[str, Any]] = {}
    for record in records:
        if (
            isinstance(record, dict)
            and isinstance(record.get("trajectory"), str)
            and isinstance(record.get("step"), int)
            and record.get("opinion") in KINDS
        ):
            found[record["trajectory"]] = record  # what was judged replaces "asked"
    return found


def _seconds(record: Mapping[str, Any]) -> float:
    seconds = record.get("seconds", 0.0)
    return float(seconds) if isinstance(seconds, int | float) else 0.0


def clopper_pearson(hits: int, n: int) -> tuple[float, float]:
    """
    The 95 % interval of a share, by Clopper and Pearson (1934): (0, 1) where n is 0.

    It holds the true share at least 95 % of the time at every n, small ones too. By hand, as
    scipy would replace these 20 lines by a wheel of 35 MB that nothing else in the core needs.

    Raises:
        ValueError: `hits` is not within 0 and n.
    """
    if not 0 <= hits <= n:
        raise ValueError(f"{hits} of {n} is no share")
    low = _share_with_tail(hits, n) if hits else 0.0
    high = 1.0 - _share_with_tail(n - hits, n) if hits < n else 1.0
    return low, high


def _share_with_tail(hits: int, n: int) -> float:
    """The share at which `hits` or more of n have probability `_TAIL`."""
    count = np.arange(hits, n + 1)
    lgamma = np.vectorize(math.lgamma, otypes=[float])
    ways = math.lgamma(n + 1) - lgamma(count + 1.0) - lgamma(n - count + 1.0)
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2
        terms = ways + count * math.log(share) + (n - count) * math.log1p(-share)
        if float(np.exp(terms).sum()) < _TAIL:
            low = share
        else:
            high = share
    return (low + high) / 2
