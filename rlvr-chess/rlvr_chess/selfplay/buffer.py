"""
The positions that self-play found: new ones only, not too old, and not too many of one kind.

A buffer is plain data and changes by returning another one, so it goes to JSON with a checkpoint
and an interrupted run goes on exactly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
from attrs import field, frozen

from rlvr.errors import CheckpointError, explain
from rlvr_chess.selfplay.diversity import Found

VERSION = 1
STRATUM = 20
"""Plies of a stratum: positions of one phase of the game do not push out those of others."""
STRATA = 6
"""The last one is open: plies 100 and later."""
MEMORY = 8
"""Positions that are remembered as met, as a multiple of the capacity."""


@frozen(kw_only=True)
class Entry:
    """A position and the step that found it."""

    found: Found
    step: int

    @property
    def key(self) -> str:
        """Identity of the position, without its clocks."""
        return self.found.key

    @property
    def stratum(self) -> int:
        """Which phase of the game it is from."""
        return min(self.found.ply // STRATUM, STRATA - 1)


@frozen(kw_only=True)
class Limits:
    """
    How much a buffer holds.

    Attributes:
        capacity: Positions.
        max_age: Steps after which a position leaves.
        per_opening: Positions of one opening; 0: any number.
    """

    capacity: int
    max_age: int
    per_opening: int = 0


@frozen(kw_only=True)
class PositionBuffer:
    """
    Positions, oldest first, and the keys of those met before, which are never admitted again.

    `met` holds `MEMORY` times the capacity; beyond that the oldest are forgotten.
    """

    entries: tuple[Entry, ...] = ()
    met: tuple[str, ...] = field(default=(), repr=False)

    def aged(self, step: int, limits: Limits) -> PositionBuffer:
        """Without the positions that are too old at a step (0-based)."""
        kept = tuple(e for e in self.entries if step - e.step < limits.max_age)
        return attrs.evolve(self, entries=kept)

    def with_found(self, found: Iterable[Found], step: int, limits: Limits) -> PositionBuffer:
        """
        With the positions that are new; where there are too many, the oldest of the fullest go.

        Those of an opening that is over its quota go first, then those of the fullest stratum.
        """
        entries, met = list(self.entries), dict.fromkeys(self.met)
        met |= dict.fromkeys(e.key for e in entries if e.key not in met)  # forgotten, but held
        for position in found:
            entry = Entry(found=position, step=step)
            if entry.key not in met:
                met[entry.key] = None
                entries.append(entry)
        openings = Counter(e.found.opening for e in entries)
        strata = Counter(e.stratum for e in entries)
        while crowded := _too_many(entries, openings, strata, limits):
            openings[crowded.found.opening] -= 1
            strata[crowded.stratum] -= 1
            entries.remove(crowded)
        return PositionBuffer(entries=tuple(entries), met=tuple(met)[-MEMORY * limits.capacity :])

    def to_json(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {
            "version": VERSION,
            "met": list(self.met),
            "positions": [
                {
                    "fen": e.found.fen,
                    "ply": e.found.ply,
                    "opening": e.found.opening,
                    "history": list(e.found.history),
                    "move": e.found.move,
                    "step": e.step,
                }
                for e in self.entries
            ],
        }

    @classmethod
    def from_json(cls, memory: Mapping[str, Any]) -> PositionBuffer:
        """
        The buffer that `to_json` wrote; an empty one of {}.

        Raises:
            CheckpointError: It was written by another version of this plugin.
        """
        if not memory:
            return cls()
        if memory.get("version") != VERSION:
            raise CheckpointError(
                explain(
                    "the positions that self-play found were to be read from a checkpoint.",
                    f"found: version {memory.get('version')!r}, this is version {VERSION}",
                    "go on with the rlvr-chess that began the run, or begin another run",
                )
            )
        entries = [
            Entry(
                found=Found(
                    fen=p["fen"],
                    ply=p["ply"],
                    opening=p["opening"],
                    history=tuple(p["history"]),
                    move=p["move"],
                ),
                step=p["step"],
            )
            for p in memory["positions"]
        ]
        return cls(entries=tuple(entries), met=tuple(memory["met"]))


def _too_many(
    entries: list[Entry], openings: Counter[str], strata: Counter[int], limits: Limits
) -> Entry | None:
    """The entry that leaves first, None where all may stay."""
    if limits.per_opening:
        for entry in entries:
            if openings[entry.found.opening] > limits.per_opening:
                return entry
    if len(entries) <= limits.capacity:
        return None
    fullest = max(strata.values())
    return next(e for e in entries if strata[e.stratum] == fullest)
