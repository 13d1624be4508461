"""Audit a verifier: it must accept right answers and reject wrong ones, every time.

Knows nothing of the domain: the task gives the answers (`Task.probes`), the reward judges them,
and `findings` says what that means.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from attrs import define, evolve, field, frozen

from rlvr.border.abilities import probes_of, proven, reseeded
from rlvr.border.promises import reference_of
from rlvr.concurrency import all_of
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
    The amount of work of an audit for each problem.

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
    _repeated: list[VerificationRunner] = field(factory=list, init=False)
    _proofs: asyncio.Semaphore = field(init=False)

    async def audit(self, problems: Sequence[Problem]) -> None:
        """Audit the problems in their order, some of them side by side."""
        self._proofs = asyncio.Semaphore(self.runner.workers)
        self._repeated = self._repeating()
        together = max(1, self.runner.workers // _A_WORKER)
        for start in range(0, len(problems), together):
            begun, batch = time.monotonic(), problems[start : start + together]
            audits = await all_of(self._audit(problem) for problem in batch)
            seconds = (time.monotonic() - begun) / len(batch)
            for audit in audits:
                self.finished(evolve(audit, seconds=seconds))

    def _repeating(self) -> list[VerificationRunner]:
        """A runner for each seed of the tests, and one without a store for the first seed again."""
        runners = []
        for number, seed in enumerate((*self.plan.seeds, self.plan.seeds[0])):
            runner, seeded = evolve(self.runner), reseeded(self.runner.reward, seed)
            if seeded is not None:
                salt = None if runner.salt is None else f"{runner.salt} seed {seed}"
                runner = evolve(runner, reward=seeded, salt=salt)
            if number == len(self.plan.seeds) or seeded is None:
                runner = evolve(runner, store=VerdictStore())
            runners.append(runner)
        return runners

    async def _audit(self, problem: Problem) -> ProblemAudit:
        """Trivial answers and the reference, one answer again and again, then mutants."""
        probes = [p for p in await self._probes(problem, 0) if not p.is_mutant]
        probes = probes or [Probe(kind="empty", trajectory=Trajectory.from_text(problem.id, ""))]
        reference = reference_of(self.task, problem)
        answers = [*(probe.trajectory for probe in probes), *([reference] if reference else [])]
        outcomes = await self._judge(problem, answers)
        # without a reference the initial state is judged again and again, else the first answer
        first = reference or min(probes, key=lambda p: p.kind != "initial").trajectory
        audit = ProblemAudit(
            problem=problem,
            reference_outcome=outcomes[-1] if reference else None,
            judged=[Judged(*pair) for pair in zip(probes, outcomes, strict=False)],
            repeats=[(await self._judge(problem, [first], runner))[0] for runner in self._repeated],
            seeds=self.plan.seeds,
        )
        for _ in range(_ROUNDS if audit.reference == "accepted" else 0):
            if len(audit.counted_mutants) >= self.plan.mutants or not await self._mutants(audit):
                break
        return audit

    async def _mutants(self, audit: ProblemAudit) -> bool:
        """Judge the mutants that are still wanted; False where there are no more."""
        known = [j.probe for j in audit.judged]
        gone = sum(j.is_equivalent is True or not j.is_verdict for j in audit.judged)
        probes = await self._probes(audit.problem, self.plan.mutants + gone)
        probes = [p for p in probes if p.is_mutant and p not in known]
        outcomes = await self._judge(audit.problem, [p.trajectory for p in probes])
        new = [Judged(*pair) for pair in zip(probes, outcomes, strict=True)]
        audit.judged += new
        await all_of(self._prove(audit.problem, judged) for judged in new if judged.is_accepted)
        return bool(new)

    async def _prove(self, problem: Problem, judged: Judged) -> None:
        async with self._proofs:
            judged.is_equivalent = await asyncio.to_thread(proven, self.task, problem, judged.probe)

    async def _probes(self, problem: Problem, count: int) -> Sequence[Probe]:
        return await asyncio.to_thread(
            probes_of, self.task, problem, count=count, seed=self.plan.seed
        )

    async def _judge(
        self,
        problem: Problem,
        answers: Sequence[Trajectory],
        runner: VerificationRunner | None = None,
    ) -> list[Outcome]:
        outcomes = await (runner or self.runner).pairs([(problem, answer) for answer in answers])
        self.outcomes += outcomes
        return outcomes
