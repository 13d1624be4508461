"""The verdict on one answer: cheap gates first, then the problem's own harness."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Literal

import structlog
from attrs import evolve, field, frozen

from rlvr import VerifierError
from rlvr_cvdp.launch.scored_calls import Plan
from rlvr_cvdp.launch.service import RunSettings, ServiceResult, run_service
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.problem import CvdpProblem, Service
from rlvr_cvdp.results.bounded import bounded_text
from rlvr_cvdp.results.messages import ToolMessage
from rlvr_cvdp.results.share import mean_share
from rlvr_cvdp.results.stage import Stage, Stopped, failed_stage
from rlvr_cvdp.sandbox import Limits, SandboxLease, in_thread
from rlvr_cvdp.sandbox.folders.root import root
from rlvr_cvdp.sandbox.folders.tidy import clear
from rlvr_cvdp.sandbox.processes.accounting import has_room
from rlvr_cvdp.verify.compile_first import Gate, try_compile
from rlvr_cvdp.verify.control import Control
from rlvr_cvdp.verify.counted import Finding, judge_counted
from rlvr_cvdp.verify.work import look_at_work

log = structlog.get_logger()

Until = Literal["", "compile"]
_LEAST_ROOM = 4_000_000


@frozen(kw_only=True)
class Verdict:
    """
    What was found about an answer.

    `is_official` is the official verdict and our checks of it: each service exits 0, the results
    and cocotb's summaries agree, nothing was refused, with each seed. `is_right` asks for the
    netlist, too, where one was asked for (`counted`). `refused` are cheats. `share` is
    the partial credit for tests; `stage` says what stopped an answer, None where nothing did.
    `slowness` is how many times slower the machine was than when the limit was measured, and
    `stopped_at_s` the time at which a first attempt was stopped, where the full limit judged again.
    `control`: a first attempt was disturbed, and a known answer was then judged correctly.
    """

    is_right: bool = False
    parses: bool = False
    compiles: bool = False
    passed: int = 0
    total: int = 0
    share: float = 0.0
    refused: tuple[str, ...] = ()
    why: str = ""
    stage: Stopped | None = None
    messages: tuple[ToolMessage, ...] = field(default=(), repr=False)
    services: tuple[ServiceResult, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    limit_s: float | None = None
    slowness: float | None = None
    stopped_at_s: float | None = None
    control: bool = False
    gate: Gate = field(factory=Gate, repr=False)
    is_official: bool = False
    counted: Finding | None = None

    @property
    def cpu_s(self) -> float:
        """Processor time of its services, in seconds."""
        return sum(result.cpu_s for result in self.services)

    @property
    def is_out_of_time(self) -> bool:
        """Whether a service used up its processor time, or a process of it did."""
        return any(result.is_out_of_time for result in self.services)


async def verify(
    problem: CvdpProblem,
    files: Mapping[str, str],
    settings: RunSettings,
    *,
    seeds: Sequence[str],
    with_verilator: bool = False,
    stop_after: Until = "",
    control: Control | None = None,
    is_strict: bool = True,
) -> Verdict:
    """
    Judge the files of an answer (declared targets only), once for each of `seeds`.

    With `stop_after="compile"` no service runs: the verdict's `gate` is all that is known. With
    `is_strict` a right answer to a problem that scores synthesis or lint must be right as the
    netlist that was scored, too (see `counted`). Where an attempt does not end as one should, a
    known answer is tried (see `control`), and then the answer once more. It is wrong where that
    ends so again.

    Raises:
        VerifierError: The harness could not be run, for a known answer neither.
        PrerequisiteError: A tool is missing.
    """
    control = control or Control()
    judge = partial(
        _attempt, settings=settings, seeds=seeds, with_verilator=with_verilator, is_strict=is_strict
    )
    try:
        verdict = await judge(problem, files, stop_after=stop_after)
    except VerifierError as error:
        log.warning("verification_disturbed", problem=problem.id, error=str(error))
        # The slot was emptied: what is still full is so for everybody.
        is_full = not has_room(root(), _LEAST_ROOM)
        if is_full or not await control.passes(problem, judge):
            raise
        begun = time.monotonic()
        try:
            verdict = evolve(await judge(problem, files, stop_after=stop_after), control=True)
        except VerifierError as again:
            verdict = _stopped_twice(again, settings.limits, time.monotonic() - begun)
    if verdict.is_right:
        control.remember(problem, files)
    return verdict


def _stopped_twice(error: VerifierError, limits: Limits, seconds: float) -> Verdict:
    why = f"{error} (twice, and not with a known answer in between)"
    return Verdict(
        why=why,
        stage=Stopped(stage=Stage.SANDBOX, why=bounded_text(why, 400)),
        control=True,
        limit_s=limits.cpu_s,
        seconds=seconds,
    )


async def _attempt(
    problem: CvdpProblem,
    files: Mapping[str, str],
    *,
    settings: RunSettings,
    seeds: Sequence[str],
    with_verilator: bool,
    is_strict: bool,
    stop_after: Until = "",
) -> Verdict:
    """Judge an answer once; see `verify`."""
    begun, begun_seeds, gate, limits = 0.0, 0, Gate(), settings.limits
    results: list[ServiceResult] = []
    plans: list[Plan] = []
    scored: dict[str, Service] = {}
    for seed in seeds:
        begun_seeds += 1
        async with settings.sandbox.slot(settings.stack) as slot:
            begun = begun or time.monotonic()  # what waits for a slot takes no time
            await in_thread(partial(_fill, slot, problem, files))
            if not results:
                gate = await try_compile(problem, slot, limits, with_verilator=with_verilator)
            if gate.decides:
                _raise_if_full(slot, problem)
            for service in () if gate.decides or stop_after else problem.services:
                result = await run_service(problem, service, slot, evolve(settings, seed=seed))
                results.append(result)
                plans += result.calls
                if service.tool or result.calls:
                    scored[service.name] = service
                if result.why:
                    _raise_if_full(slot, problem)
                if result.refused or (result.why and settings.stop_at_first):
                    break
            if gate.decides or stop_after or any(result.why for result in results):
                await in_thread(partial(clear, slot.folder / "out"))
                await in_thread(partial(_fill, slot, problem, files))
                python = str(settings.stack.python)
                work = await look_at_work(problem, files, slot=slot, limits=limits, python=python)
                gate = evolve(gate, work=work)
                break
    share = mean_share([result.counted for result in results], begun_seeds * len(problem.services))
    share = share if gate.work.counts else 0.0
    verdict = _judge(problem, gate, results)
    if verdict.is_right and is_strict and scored:
        settings = evolve(settings, seed=seeds[0])
        verdict = _counted(
            verdict, await judge_counted(problem, files, settings, plans, scored=[*scored.values()])
        )
        share = share if verdict.is_right else 0.0
    return evolve(
        verdict, share=share, gate=gate, limit_s=limits.cpu_s, seconds=time.monotonic() - begun
    )


def _counted(verdict: Verdict, finding: Finding) -> Verdict:
    """The verdict with what is known of the netlist: the stricter of both."""
    verdict = evolve(verdict, counted=finding)
    if finding.is_right:
        return verdict
    why = f"the design that the score counts is another one: {finding.why}"
    return evolve(verdict, is_right=False, why=why, stage=failed_stage(counted=why))


def _fill(slot: SandboxLease, problem: CvdpProblem, files: Mapping[str, str]) -> None:
    try:
        write_tree(slot.folder, problem, files)
    except OSError as error:
        raise VerifierError(
            f"{problem.id}: its files cannot be written below {slot.folder}: {error.strerror}"
        ) from None


def _raise_if_full(slot: SandboxLease, problem: CvdpProblem) -> None:
    """Raise on a full disk: there even a right answer fails, so its failure is no verdict."""
    if not has_room(slot.folder, _LEAST_ROOM):
        raise VerifierError(
            f"{problem.id}: the disk is full: {slot.folder} has less than "
            f"{_LEAST_ROOM // 1_000_000} MB left; free space, or set TMPDIR"
        )


def _judge(problem: CvdpProblem, gate: Gate, results: Sequence[ServiceResult]) -> Verdict:
    builds = [build for result in results for build in result.builds]
    compiles = "ok" in builds or (gate.stage == "compiled" and not builds)
    parses = compiles or "elaboration" in builds or gate.stage in ("compiled", "parsed")
    if gate.lints is not None and not compiles:
        parses = gate.lints
    is_right = bool(results) and not any(result.why for result in results)
    why = next((f"{r.name}: {r.why}" for r in results if r.why), "")
    refused = tuple(found for result in results for found in result.refused)
    fails_to_compile = bool(builds) or gate.stage in ("parsed", "broken")
    if gate.decides:
        why = "it does not parse"
    elif fails_to_compile and not compiles and not refused:
        why = "it does not compile"
    # Each message once; those of the compile before the harness where it alone ran.
    said = [message for result in results for message in result.messages]
    compiles, parses = compiles and gate.work.may_compile, parses and gate.work.may_parse
    return Verdict(
        is_right=is_right,
        is_official=is_right,
        parses=parses or is_right,
        compiles=compiles or is_right,
        passed=sum(result.passed for result in results),
        total=sum(result.total for result in results),
        refused=refused,
        why=why,
        stage=failed_stage(
            refused=refused,
            unparsed=gate.messages if gate.decides else None,
            services=results,
            tools={service.name: service.tool for service in problem.services},
        ),
        messages=() if is_right else tuple(dict.fromkeys(said or gate.messages)),
        services=tuple(results),
    )
