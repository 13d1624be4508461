"""Audit a verifier: it must accept right answers, reject wrong ones, and not waver.

Knows nothing of the domain: the task gives the answers (`Task.probes`), the reward judges them,
and `findings` says what that means.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence

from attrs import define, evolve, field, frozen

from rlvr.border.abilities import probes_of, proven, reseeded
from rlvr.parts import Task
from rlvr.types import Outcome, Probe, Problem, Trajectory
from rlvr.verification.runner import VerificationRunner
from rlvr.verification.verdict_cache import VerdictStore
from rlvr.verifier_audit.findings import Judged, ProblemAudit

_ROUNDS = 3
"""Mutants proven to be equivalent are replaced by others so many times."""

_A_WORKER = 4
"""Problems that are audited together: one for so many workers, so that few of them ever idle."""


@frozen(kw_only=True)
class AuditPlan:
    """
    How much is asked of a problem.

    Attributes:
        mutants: Wanted mutants that are not equivalent to the reference.
        seeds: Seeds of the tests with which the reference is judged.
        seed: Seed of the choice of mutants.
    """

    mutants: int = 25
    seeds: tuple[int, ...] = (1, 2, 3)
    seed: int = 0


@define
class Auditor:
    """Audits problems with one runner; each finished problem is told to `finished` at once."""

    task: Task
    runner: VerificationRunner
    plan: AuditPlan
    finished: Callable[[ProblemAudit], None] = lambda _: None
    outcomes: list[Outcome] = field(factory=list, init=False)

    async def audit(self, problems: Sequence[Problem]) -> None:
        """Audit the problems in their order, some of them side by side."""
        together = max(1, self.runner.workers // _A_WORKER)
        for start in range(0, len(problems), together):
            await self._together(problems[start : start + together])

    async def _together(self, problems: Sequence[Problem]) -> None:
        begun = {p.id: time.monotonic() for p in problems}
        audits = await self._first_round(problems)
        open_ones = [a for a in audits if a.reference == "accepted"]
        for _ in range(_ROUNDS):
            wanting = [a for a in open_ones if len(a.counted_mutants) < self.plan.mutants]
            if not await self._mutants(wanting):
                break
        for audit in audits:
            seconds = (time.monotonic() - begun[audit.problem.id]) / len(problems)
            self.finished(evolve(audit, seconds=seconds))

    async def _first_round(self, problems: Sequence[Problem]) -> list[ProblemAudit]:
        """References, trivial answers, and the same answer again and again."""
        probes = {p.id: await self._trivial(p) for p in problems}
        references = {p.id: self.task.reference(p) for p in problems}
        audits = []
        pairs = [(p, probe.trajectory) for p in problems for probe in probes[p.id]]
        pairs += [(p, t) for p in problems if (t := references[p.id]) is not None]
        outcomes = iter(await self._judge(pairs))
        judged = {p.id: [Judged(probe, next(outcomes)) for probe in probes[p.id]] for p in problems}
        for problem in problems:
            has_one = references[problem.id] is not None
            outcome = next(outcomes) if has_one else None
            audits.append(
                ProblemAudit(problem=problem, reference_outcome=outcome, judged=judged[problem.id])
            )
        return await self._repeat(audits, references)

    async def _trivial(self, problem: Problem) -> list[Probe]:
        found = [Probe(kind="empty", trajectory=Trajectory.from_text(problem.id, ""))]
        probes = await _probes(self.task, problem, 0, self.plan.seed)
        return [p for p in probes if not p.is_mutant] or found

    async def _repeat(
        self, audits: list[ProblemAudit], references: dict[str, Trajectory | None]
    ) -> list[ProblemAudit]:
        """Judge one answer of each problem with every seed, and with the first one afresh."""
        answers = [(a, references[a.problem.id] or _instead(a)) for a in audits]
        pairs = [(a.problem, t) for a, t in answers if t is not None]
        verdicts: dict[str, list[Outcome]] = {a.problem.id: [] for a in audits}
        reward = self.runner.reward
        for number, seed in enumerate((*self.plan.seeds, self.plan.seeds[0])):
            runner = evolve(self.runner)
            seeded = reseeded(reward, seed)
            if seeded is not None:
                salt = None if runner.salt is None else f"{runner.salt} seed {seed}"
                runner = evolve(runner, reward=seeded, salt=salt)
            if number == len(self.plan.seeds) or seeded is None:
                runner = evolve(runner, store=VerdictStore())
            for (problem, _), outcome in zip(pairs, await self._judge(pairs, runner), strict=True):
                verdicts[problem.id].append(outcome)
        return [evolve(a, repeats=verdicts[a.problem.id], seeds=self.plan.seeds) for a in audits]

    async def _mutants(self, audits: Sequence[ProblemAudit]) -> bool:
        """Judge the mutants that are still wanted; False where there are no more."""
        pairs: list[tuple[ProblemAudit, Probe]] = []
        for audit in audits:
            known = [j.probe for j in audit.judged]
            gone = sum(j.is_equivalent is True or not j.is_verdict for j in audit.judged)
            count = self.plan.mutants + gone
            probes = await _probes(self.task, audit.problem, count, self.plan.seed)
            pairs += [(audit, p) for p in probes if p.is_mutant and p not in known]
        outcomes = await self._judge([(a.problem, p.trajectory) for a, p in pairs])
        checks = []
        for (audit, probe), outcome in zip(pairs, outcomes, strict=True):
            judged = Judged(probe, outcome)
            audit.judged.append(judged)
            if judged.is_accepted:
                checks.append(self._check(audit.problem, judged))
        await self._limited(checks)
        return bool(pairs)

    async def _check(self, problem: Problem, judged: Judged) -> None:
        judged.is_equivalent = await asyncio.to_thread(proven, self.task, problem, judged.probe)

    async def _limited(self, checks: Sequence[Awaitable[None]]) -> None:
        slots = asyncio.Semaphore(self.runner.workers)

        async def one(check: Awaitable[None]) -> None:
            async with slots:
                await check

        await asyncio.gather(*(one(check) for check in checks))

    async def _judge(
        self, pairs: Sequence[tuple[Problem, Trajectory]], runner: VerificationRunner | None = None
    ) -> list[Outcome]:
        outcomes = await (runner or self.runner).pairs(pairs)
        self.outcomes += outcomes
        return outcomes


async def _probes(task: Task, problem: Problem, count: int, seed: int) -> list[Probe]:
    return await asyncio.to_thread(probes_of, task, problem, count=count, seed=seed)


def _instead(audit: ProblemAudit) -> Trajectory | None:
    """Without a reference: the initial state, else the first answer that there is."""
    probes = sorted((j.probe for j in audit.judged), key=lambda p: p.kind != "initial")
    return probes[0].trajectory if probes else None
