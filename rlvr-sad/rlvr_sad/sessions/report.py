"""Counts of what was read from one file, and what a person should check."""

from __future__ import annotations

from collections import Counter
from typing import Any

from attrs import asdict, define, field

from rlvr import counted
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.trajectory import TYPES, AgentTrajectory

_SHOWN = 5


@define
class Report:
    """
    Counts of one source.

    Attributes:
        source: The file.
        trajectories: How many were read.
        formats: Format to how many.
        characters: Type to non-blank characters.
        unsupervised: Ids of trajectories in which nothing can be learnt.
        media: Pictures, films and sounds.
        notes: Note to how many trajectories.
        rejected: How many records were refused; `refusals` are the first of them.
    """

    source: str
    trajectories: int = 0
    rejected: int = 0
    formats: Counter[str] = field(factory=Counter)
    characters: Counter[str] = field(factory=Counter)
    unsupervised: list[str] = field(factory=list)
    media: int = 0
    notes: Counter[str] = field(factory=Counter)
    refusals: list[Rejected] = field(factory=list)

    def count(self, found: AgentTrajectory | Rejected) -> None:
        if isinstance(found, Rejected):
            self.rejected += 1
            if len(self.refusals) < _SHOWN:
                self.refusals.append(found)
            return
        self.trajectories += 1
        self.formats[found.format] += 1
        self.notes.update(found.notes)
        self.media += len(found.media())
        for segment in found.segments:
            self.characters[segment.type] += sum(map(len, segment.text.split()))
        if not found.is_supervised:
            self.unsupervised.append(found.id)

    def share(self, kind: str) -> float:
        """Share of the non-blank characters that are of a type; 0 where there are none."""
        total = self.characters.total()
        return self.characters[kind] / total if total else 0.0

    def as_dict(self) -> dict[str, Any]:
        return {
            **asdict(self, recurse=False),
            "formats": dict(self.formats),
            "characters": {kind: self.characters[kind] for kind in TYPES},
            "notes": dict(self.notes),
            "refusals": [{"line": r.line, "id": r.id, "reason": r.reason} for r in self.refusals],
        }

    def lines(self) -> list[str]:
        named = ", ".join(f"{name} ({n})" for name, n in self.formats.most_common()) or "none"
        shares = ", ".join(f"{kind} {100 * self.share(kind):.1f} %" for kind in TYPES)
        found = [
            f"{self.source}: {counted(self.trajectories, 'trajectory')}, "
            f"{counted(self.rejected, 'record')} refused",
            f"  format       {named}",
            f"  characters   {shares} of {self.characters.total()}",
        ]
        if self.media:
            found.append(f"  media        {self.media}")
        if self.unsupervised:
            some = ", ".join(self.unsupervised[:_SHOWN])
            more = ", ..." if len(self.unsupervised) > _SHOWN else ""
            found.append(f"  nothing to learn in {len(self.unsupervised)}: {some}{more}")
        found += [f"  note ({n})     {note}" for note, n in self.notes.most_common()]
        found += [f"  refused      line {r.line}, record {r.id}: {r.reason}" for r in self.refusals]
        if self.rejected > len(self.refusals):
            found.append(f"  refused      and {self.rejected - len(self.refusals)} more")
        return found
