"""Findings of an audit about each problem, with reasons, and the file that keeps them.

The file is one JSON object, written again after each problem.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from attrs import define, field

from rlvr.errors import ConfigError
from rlvr.records.json_lines import object_in
from rlvr.records.run_directory import now, write_out
from rlvr.types import Outcome, Probe, Problem, Reward

VERSION = 1
Seen = Literal["accepted", "rejected", "none", "failed"]


@define
class Judged:
    """A probe and what came of it. `is_equivalent` is known only of accepted mutants."""

    probe: Probe
    outcome: Outcome
    is_equivalent: bool | None = None

    @property
    def is_verdict(self) -> bool:
        """False where the verifier could not run or had no verdict."""
        return isinstance(self.outcome, Reward)

    @property
    def is_accepted(self) -> bool:
        """Whether the verifier called it right."""
        return seen(self.outcome) == "accepted"

    @property
    def is_undecided(self) -> bool:
        """Whether it is an accepted mutant that is not known to be right or wrong."""
        return self.probe.is_mutant and self.is_accepted and self.is_equivalent is None

    @property
    def note(self) -> str:
        """The probe's note; says where nobody knows whether the mutant is right."""
        return self.probe.note + (" (undecided: may be equivalent)" if self.is_undecided else "")


@define(kw_only=True)
class ProblemAudit:
    """
    One problem's audit.

    Attributes:
        repeats: Outcomes of one answer with each of `seeds`, then with the first one once more.
    """

    problem: Problem
    reference_outcome: Outcome | None
    judged: list[Judged] = field(factory=list)
    repeats: Sequence[Outcome] = ()
    seeds: Sequence[int] = ()
    seconds: float = 0.0

    @property
    def reference(self) -> Seen:
        """The outcome for the reference."""
        return seen(self.reference_outcome)

    @property
    def initial(self) -> Seen:
        """The outcome for the answer that changes nothing."""
        found = [j.outcome for j in self.judged if j.probe.kind == "initial"]
        return seen(found[0]) if found else "none"

    @property
    def counted_mutants(self) -> list[Judged]:
        """Mutants with a verdict that are not proven to be equivalent."""
        mutants = (j for j in self.judged if j.probe.is_mutant)
        return [j for j in mutants if j.is_verdict and j.is_equivalent is not True]

    @property
    def strength(self) -> float | None:
        """Share of the counted mutants that were rejected; None where there are none."""
        counted = self.counted_mutants
        if not counted:
            return None
        return sum(not j.is_accepted for j in counted) / len(counted)

    @property
    def is_flaky(self) -> bool:
        """Whether an answer was right at one time and wrong at another."""
        return len({o.score01 == 1.0 for o in self.repeats if isinstance(o, Reward)}) > 1

    def reasons(self, least: float) -> list[str]:
        """Why the verifier of the problem is not to be trusted; empty where it is."""
        found = ["rejects its reference"] if self.reference == "rejected" else []
        found += ["flaky: one answer, different verdicts"] if self.is_flaky else []
        for judged in self.judged:
            probe = judged.probe
            if judged.is_verdict and not probe.is_mutant and judged.is_accepted != probe.is_right:
                found.append(f"{'rejects' if probe.is_right else 'accepts'} {probe.kind}")
        strength = self.strength
        if strength is not None and strength < least:
            survivors = [j for j in self.counted_mutants if j.is_accepted]
            unproven = sum(j.is_equivalent is None for j in survivors)
            undecided = f", {unproven} of them undecided" if unproven else ""
            count = f"{len(survivors)} of {len(self.counted_mutants)}"
            found.append(f"accepts {count} mutants{undecided}")
        return list(dict.fromkeys(found))

    def to_json(self, least: float) -> dict[str, Any]:
        """The problem's entry in the audit's file."""
        reasons = self.reasons(least)
        strength = self.strength
        return {
            "reference": self.reference,
            "initial": self.initial,
            "kinds": self._kinds(),
            "strength": None if strength is None else round(strength, 4),
            "survivors": [
                {"kind": j.probe.kind, "note": j.note}
                for j in self.judged
                if j.is_accepted and not j.probe.is_right and j.is_equivalent is not True
            ],
            "flaky": self.is_flaky,
            "verdicts": {
                str(seed): outcome.score01
                for seed, outcome in zip(self.seeds, self.repeats, strict=False)
                if isinstance(outcome, Reward)
            },
            "weak": bool(reasons),
            "reasons": reasons,
            "seconds": round(self.seconds, 3),
        }

    def _kinds(self) -> dict[str, dict[str, int]]:
        kinds: dict[str, dict[str, int]] = {}
        for j in self.judged:
            names = ("judged", "rejected", "equivalent", "undecided", "failed")
            count = kinds.setdefault(j.probe.kind, dict.fromkeys(names, 0))
            is_judged = j.is_verdict and j.is_equivalent is not True
            count["failed"] += not j.is_verdict
            count["equivalent"] += j.is_verdict and not is_judged
            count["judged"] += is_judged
            count["rejected"] += is_judged and not j.is_accepted
            count["undecided"] += is_judged and j.is_undecided
        return kinds


def seen(outcome: Outcome | None) -> Seen:
    """The outcome in one word."""
    if outcome is None:
        return "none"
    if not isinstance(outcome, Reward):
        return "failed"
    return "accepted" if outcome.score01 == 1.0 else "rejected"


@define
class AuditFile:
    """
    The growing result of an audit.

    Attributes:
        path: Where it is kept; None: nowhere, only in memory.
        head: Plugin, data set, options and versions: what the result depends on.
        weak: Share of rejected mutants below which a problem is weak.
    """

    path: Path | None
    head: Mapping[str, Any]
    weak: float
    problems: dict[str, Any] = field(factory=dict)
    created: str = field(factory=now)

    @classmethod
    def open(cls, path: Path | None, head: Mapping[str, Any], weak: float) -> AuditFile:
        """
        A file to add to; what an equal audit has left there is kept.

        So one that was interrupted, or asked about some problems only, can be gone on with.
        """
        head = json.loads(json.dumps(head))
        before: Mapping[str, Any] = {}
        if path is not None:
            with suppress(OSError, ValueError):
                before = object_in(path)
        if all(before.get(name) == value for name, value in {**head, "version": VERSION}.items()):
            return cls(path, head, weak, dict(before["problems"]), before["created"])
        return cls(path, head, weak)

    def add(self, audit: ProblemAudit) -> None:
        """Note a finished problem and write all that is known."""
        self.problems[audit.problem.id] = audit.to_json(self.weak)
        if self.path is not None:
            text = json.dumps(self.to_json(), indent=1, ensure_ascii=False)
            write_out(self.path, text + "\n")

    def to_json(self) -> dict[str, Any]:
        """The whole document."""
        made = {"version": VERSION, "created": self.created}
        return {**made, **self.head, "problems": self.problems}


def read_strengths(path: Path, asked_by: str) -> Mapping[str, float | None]:
    """
    Problem id to the share of wrong answers that its verifier rejected; None where not known.

    Args:
        path: What `rlvr audit --out` wrote.
        asked_by: The option that names it, for messages.

    Raises:
        ConfigError: The file is not there, is not readable, or is no audit of this version.
    """
    try:
        record: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _unread(path, asked_by, error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise _unread(path, asked_by, f"not JSON: {error}") from None
    if not isinstance(record, dict) or not isinstance(record.get("problems"), dict):
        raise _unread(path, asked_by, 'no object with "problems"')
    if record.get("version") != VERSION:
        found = f"version {record.get('version')!r}, and this is read: {VERSION}"
        raise _unread(path, asked_by, found)
    for name, entry in record["problems"].items():
        if not isinstance(entry, dict) or not _is_share(entry.get("strength", "")):
            found = f'problem {name} has no "strength" of 0 to 1, or null'
            raise _unread(path, asked_by, found)
    return {name: entry["strength"] for name, entry in record["problems"].items()}


def _is_share(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _unread(path: Path, asked_by: str, found: str) -> ConfigError:
    return ConfigError(
        f"the audit {path} was to be read ({asked_by}).",
        f"found: {found}",
        "make one with: rlvr audit --plugin NAME --dataset FILE --out AUDIT.json",
    )
