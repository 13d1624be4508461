"""The verdict on one answer: cheap gates first, then the problem's own harness."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from attrs import evolve, field, frozen

from rlvr.errors import VerifierError
from rlvr.types import EMPTY
from rlvr_cvdp.accounting import has_room
from rlvr_cvdp.gate import Gate, try_compile
from rlvr_cvdp.policy import two_faced
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.messages import ToolMessage
from rlvr_cvdp.results.share import mean_share
from rlvr_cvdp.results.stage import Stopped, failed_stage
from rlvr_cvdp.sandbox import Limits, Sandbox, Slot
from rlvr_cvdp.service import ServiceResult, run_service
from rlvr_cvdp.stacks import Stack
from rlvr_cvdp.tree import write_tree

_LEAST_ROOM = 4_000_000


@frozen(kw_only=True)
class Verdict:
    """
    What was found about an answer.

    `is_right` is the official verdict and all our checks: each service exits 0, the results and
    cocotb's summaries agree, nothing was refused, with each seed. `refused` are cheats. `share` is
    the partial credit for tests; `stage` says what stopped an answer, None where nothing did.
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
    gate: Gate = field(factory=Gate, repr=False)


async def verify(
    problem: CvdpProblem,
    files: Mapping[str, str],
    *,
    sandbox: Sandbox,
    stack: Stack,
    limits: Limits,
    seeds: Sequence[str],
    stop_at_first: bool,
    with_verilator: bool = False,
    extra: Mapping[str, str] = EMPTY,
    stop_after: Literal["", "compile"] = "",
) -> Verdict:
    """
    Judge the files of an answer (declared targets only); `extra` are variables for services.

    With `stop_after="compile"` no service runs: the verdict's `gate` is all that is known.

    Raises:
        VerifierError: The harness could not be run; says nothing about the answer.
        PrerequisiteError: A tool is missing.
    """
    begun = time.monotonic()
    refused = two_faced(problem, files)
    if refused:
        stage = failed_stage(refused=refused)
        return Verdict(refused=tuple(refused), why="; ".join(refused), stage=stage)
    gate, begun_seeds = Gate(), 0
    results: list[ServiceResult] = []
    for seed in seeds:
        begun_seeds += 1
        async with sandbox.slot(stack) as slot:
            _fill(slot, problem, files)
            if not results:
                gate = await try_compile(
                    problem, slot=slot, limits=limits, with_verilator=with_verilator
                )
            if gate.decides:
                _raise_if_full(slot, problem)
            if gate.decides or stop_after:
                break
            for service in problem.services:
                result = await run_service(
                    problem,
                    service,
                    slot=slot,
                    stack=stack,
                    limits=limits,
                    seed=seed,
                    stop_at_first=stop_at_first,
                    extra=extra,
                )
                results.append(result)
                if result.why:
                    _raise_if_full(slot, problem)
                is_hopeless = bool(result.refused) or "slow" in result.builds
                if is_hopeless or (result.why and stop_at_first):
                    break
        if any(result.why for result in results):
            break
    share = mean_share([result.counted for result in results], begun_seeds * len(problem.services))
    verdict = _judge(problem, gate, results)
    return evolve(
        verdict, share=share, gate=gate, limit_s=limits.cpu_s, seconds=time.monotonic() - begun
    )


def _fill(slot: Slot, problem: CvdpProblem, files: Mapping[str, str]) -> None:
    try:
        write_tree(slot.folder, problem, files)
    except OSError as error:
        raise VerifierError(
            f"{problem.id}: its files cannot be written below {slot.folder}: {error.strerror}"
        ) from None


def _raise_if_full(slot: Slot, problem: CvdpProblem) -> None:
    """On a full disk a right answer fails, too: that is no verdict."""
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
    return Verdict(
        is_right=is_right,
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
        messages=() if is_right else _messages(gate, results),
        services=tuple(results),
    )


def _messages(gate: Gate, results: Sequence[ServiceResult]) -> tuple[ToolMessage, ...]:
    """What the tools said, each message once; the compile before the harness where it alone ran."""
    said = [message for result in results for message in result.messages]
    return tuple(dict.fromkeys(said or gate.messages))
