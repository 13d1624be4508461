"""
The design that a score counts: its netlist must pass the tests that the sources passed.

Simulator, synthesizer and linter may read one text as three designs: initial values, incomplete
sensitivity, `full_case`, x, races, delays, macros. So where a service scores synthesis or lint, the
harness's tests run once more on what that tool read: each build of theirs compiles the netlist that
yosys writes for the scored call's own files, macros and script (`inside/rlvr_netlist.py`).

The score itself is read again where the answer's text can say nothing (`silent`): a count that an
answer prints is none.

Where the tests fail on the netlist, an equivalence to the given design can still decide for the
answer; where they fail on the netlist of the given design too, they decide nothing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from attrs import asdict, evolve, frozen

from rlvr_cvdp.launch.scored_calls import SOURCE, Plan
from rlvr_cvdp.launch.service import RunSettings, ServiceResult, run_service
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.netlist.proof import PLAN, Proof, Side, prove
from rlvr_cvdp.netlist.silent import without_words
from rlvr_cvdp.netlist.twin import twin_problem
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.sandbox import SandboxLease
from rlvr_cvdp.toolchain.toolchain import digest_of

Basis = Literal["simulated", "proved", "bounded", "refuted", "undecided"]

_SLOWER = 5.0
"""Gates simulate slower than the sources that they were made from."""


@frozen(kw_only=True)
class Finding:
    """
    What is known of the netlist of an answer that the official verdict calls right.

    `basis` says how: its tests passed (`simulated`), it equals the given design in every state
    (`proved`) or for some clock cycles (`bounded`), it is another design (`refuted`), or not even
    the given design could be judged (`undecided`). `netlists` are sha256 of what was simulated.
    """

    basis: Basis
    why: str = ""
    tools: tuple[str, ...] = ()
    netlists: tuple[str, ...] = ()
    control: str = ""
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether the netlist is no reason to refuse the answer."""
        return self.basis != "refuted"

    def evidence(self) -> dict[str, Any]:
        """The finding as plain values."""
        lists = {"tools": list(self.tools), "netlists": list(self.netlists)}
        return {**asdict(self), **lists, "seconds": round(self.seconds, 3)}


@frozen(kw_only=True)
class _Run:
    """The harness's tests on a netlist: what they said, and whether there was a netlist."""

    passes: bool
    why: str
    netlists: tuple[str, ...]


_controls: dict[str, bool] = {}
"""Whether designs that no answer wrote pass the tests of their problem, by all that decides it."""


async def judge_counted(
    problem: CvdpProblem,
    files: Mapping[str, str],
    settings: RunSettings,
    plans: Sequence[Plan],
    *,
    scored: Sequence[Service],
) -> Finding:
    """
    Judge the netlist of an answer that passes its harness.

    Args:
        problem: Its harness scores synthesis or lint.
        files: The answer.
        settings: Those of the sources; a netlist may take five times as long.
        plans: The scored calls; none: yosys reads what the simulator reads.
        scored: The services that score synthesis or lint.

    Raises:
        VerifierError: The harness could not be run.
    """
    begun = time.monotonic()
    judge = _NetlistVerifier(problem, settings)
    for service in scored:
        why = await judge.why_silent_fails(service, files)
        if why:
            return Finding(basis="refuted", why=why, seconds=time.monotonic() - begun)
    if "yosys" not in settings.sandbox.toolchain.tools:
        return Finding(basis="undecided", why="the toolchain has no yosys")
    plans = list(dict.fromkeys(plans)) or [Plan()]
    findings = [await judge.finding(files, plan) for plan in plans]
    order: list[Basis] = ["refuted", "undecided", "bounded", "proved", "simulated"]
    worst = min(findings, key=lambda finding: order.index(finding.basis))
    return evolve(
        worst,
        tools=tuple(plan.tool for plan in plans),
        netlists=tuple(dict.fromkeys(n for finding in findings for n in finding.netlists)),
        seconds=time.monotonic() - begun,
    )


async def passes_as_netlist(
    problem: CvdpProblem, files: Mapping[str, str], settings: RunSettings
) -> bool | None:
    """
    Whether an answer passes the tests as the netlist of what the simulator reads.

    None where the reference does not, there is none, or there is no yosys: nothing can be said.

    Raises:
        VerifierError: The harness could not be run.
    """
    if "yosys" not in settings.sandbox.toolchain.tools or not problem.reference:
        return None
    judge = _NetlistVerifier(problem, settings)
    if not judge.tests or not await judge.passes(problem.reference, Plan()):
        return None
    return (await judge.run(files, Plan())).passes


def _simpler(plan: Plan) -> Plan:
    """
    The plan with the commands that read alone; after that, what the simulator reads.

    A script may map a design to cells that no simulator knows, or be none that can be followed.
    What an answer can make another design is how it is read.
    """
    reads = tuple(line for line in plan.script if line.startswith("read"))
    return evolve(plan, script=reads) if reads != plan.script else Plan()


class _NetlistVerifier:
    """One problem's netlists under its tests, and against its given design."""

    def __init__(self, problem: CvdpProblem, settings: RunSettings) -> None:
        limits = settings.limits
        limits = evolve(limits, cpu_s=_SLOWER * limits.cpu_s, wall_s=_SLOWER * limits.wall_s)
        self._problem = problem
        self._settings = evolve(settings, limits=limits, stop_at_first=True)
        self.tests = [s for s in problem.services if s.runs_cocotb and not s.tool]

    def _slot(self) -> AbstractAsyncContextManager[SandboxLease]:
        return self._settings.sandbox.slot(self._settings.stack)

    async def why_silent_fails(self, service: Service, files: Mapping[str, str]) -> str:
        """Why a scored service fails where the answer's text says nothing, "" where it passes."""
        silent = without_words(self._problem, files, service.tool)
        if silent == files:
            return ""
        async with self._slot() as slot:
            write_tree(slot.folder, self._problem, silent)
            result = await run_service(self._problem, service, slot, self._settings)
        if not result.why:
            return ""
        return f"{service.name}: {result.why}, where its text can tell the tool nothing"

    async def finding(self, files: Mapping[str, str], plan: Plan) -> Finding:
        ran = _Run(passes=False, why="the harness simulates nothing", netlists=())
        if self.tests:
            ran = await self.run(files, plan)
            if ran.passes:
                return Finding(basis="simulated", netlists=ran.netlists)
        given = given_design(self._problem)
        refuted = Finding(basis="refuted", why=ran.why, netlists=ran.netlists)
        if not given:
            if not self.tests:
                return evolve(refuted, basis="undecided", control="there is no given design")
            return evolve(refuted, control="there is no given design to compare with")
        if self.tests and not await self.passes(given, None):
            return evolve(refuted, control="the given design fails the tests itself")
        proof = await self._prove(given, files, plan)
        if proof.finding == "proved":
            return Finding(basis="proved", why=proof.why, netlists=ran.netlists)
        if proof.finding == "bounded" and await self._differs(given, files, plan):
            return evolve(refuted, why="it differs from the given design under random inputs")
        if proof.finding == "bounded":
            return Finding(basis="bounded", why=proof.why, netlists=ran.netlists)
        if self.tests and await self.passes(given, plan):
            return evolve(refuted, control="its tests pass on the netlist of the given design")
        simpler = _simpler(plan)
        if self.tests and simpler != plan:
            return await self.finding(files, simpler)
        blind = "its tests judge no netlist"
        if proof.finding == "different":
            return evolve(refuted, why=proof.why, control=blind)
        return evolve(refuted, basis="undecided", why=proof.why, control=blind)

    async def _differs(
        self, given: Mapping[str, str], files: Mapping[str, str], plan: Plan
    ) -> bool:
        """Whether random inputs after reset tell a netlist from the given design."""
        twin = twin_problem(self._problem, given)
        if twin is None:
            return False
        stack = self._settings.sandbox.toolchain.stack_for(twin)
        judge = _NetlistVerifier(twin, evolve(self._settings, stack=stack))
        return await judge.passes(given, plan) and not (await judge.run(files, plan)).passes

    async def run(self, files: Mapping[str, str], plan: Plan | None) -> _Run:
        """The tests on a netlist; on the sources themselves where there is no plan."""
        notes: list[str] = []
        async with self._slot() as slot:
            write_tree(slot.folder, self._problem, files)
            if plan is not None:
                (slot.folder / "tree" / PLAN).write_text(plan.text(), encoding="utf-8")
            for service in self.tests:
                result = await run_service(self._problem, service, slot, self._settings)
                notes += result.netlists
                said = [n.removeprefix("none ") for n in result.netlists if n.startswith("none")]
                failed = said[0] if said else ""
                made = sum(note.startswith("ok") for note in result.netlists)
                is_missing = plan is not None and made < max(1, len(result.builds))
                if failed or result.why or is_missing:
                    why = failed or _said(result) or "no netlist was simulated"
                    why = f"{service.name}: {why}"
                    return _Run(passes=False, why=why, netlists=_hashes(notes))
        return _Run(passes=True, why="", netlists=_hashes(notes))

    async def passes(self, files: Mapping[str, str], plan: Plan | None) -> bool:
        """Whether a design passes the tests, as its netlist where a plan is; asked once."""
        settings, read = self._settings, plan.text() if plan else ""
        facts = [self._problem.digest(), settings.sandbox.toolchain.digest, settings.seed, read]
        key = digest_of([*facts, dict(files), dict(settings.extra)])
        if key not in _controls:
            _controls[key] = (await self.run(files, plan)).passes
        return _controls[key]

    async def _prove(self, given: Mapping[str, str], files: Mapping[str, str], plan: Plan) -> Proof:
        sides = [Side(files=given, plan=plan), Side(files=files, plan=plan)]
        limits, python = self._settings.limits, str(self._settings.stack.python)
        async with self._slot() as slot:
            return await prove(self._problem, *sides, slot=slot, limits=limits, python=python)


def _said(result: ServiceResult) -> str:
    """Why a service failed; the first failed test of it where one did."""
    failed = next((test for test in result.tests if test.status == "failed"), None)
    if failed is None or not result.why:
        return result.why
    return f"the test {failed.name} fails on the netlist: {failed.message}"[:300]


def _hashes(notes: Sequence[str]) -> tuple[str, ...]:
    found = [note.split()[1] for note in notes if note.startswith("ok ")]
    return tuple(dict.fromkeys(found))


def given_design(problem: CvdpProblem) -> dict[str, str]:
    """What stands at the targets before an answer: the reference, or the given files; or {}."""
    if problem.reference:
        return dict(problem.reference)
    given = {path: problem.context[path] for path in problem.targets if path in problem.context}
    return given if any(path.endswith(SOURCE) for path in given) else {}
