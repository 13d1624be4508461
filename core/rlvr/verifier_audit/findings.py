"""Findings of an audit about one problem: strength and weakness of its verifier, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from attrs import define, field

from rlvr.types import Outcome, Probe, Problem, Reward

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
        """The verifier called it right."""
        return seen(self.outcome) == "accepted"

    @property
    def is_undecided(self) -> bool:
        """An accepted mutant of which nobody knows whether it is right."""
        return self.probe.is_mutant and self.is_accepted and self.is_equivalent is None


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
        """What became of the reference."""
        return seen(self.reference_outcome)

    @property
    def initial(self) -> Seen:
        """What became of the answer that changes nothing."""
        found = [j.outcome for j in self.judged if j.probe.kind == "initial"]
        return seen(found[0]) if found else "none"

    @property
    def counted_mutants(self) -> list[Judged]:
        """Mutants with a verdict that are not proven to be equivalent."""
        return [
            j
            for j in self.judged
            if j.probe.is_mutant and j.is_verdict and j.is_equivalent is not True
        ]

    @property
    def strength(self) -> float | None:
        """Share of the counted mutants that were rejected; None where there are none."""
        counted = self.counted_mutants
        if not counted:
            return None
        return sum(not j.is_accepted for j in counted) / len(counted)

    @property
    def is_flaky(self) -> bool:
        """One answer was right at one time and wrong at another."""
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
            found.append(
                f"accepts {len(survivors)} of {len(self.counted_mutants)} mutants"
                + (f", {unproven} of them undecided" if unproven else "")
            )
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
                {
                    "kind": j.probe.kind,
                    "note": j.probe.note
                    + (" (undecided: may be equivalent)" if j.is_undecided else ""),
                }
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
