"""The verdict on one answer: cheap gates first, then the problem's own harness."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from attrs import evolve, field, frozen

from rlvr_cvdp.gate import Gate, try_compile
from rlvr_cvdp.policy import two_faced
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox import Limits
from rlvr_cvdp.service import ServiceResult, run_service
from rlvr_cvdp.stacks import Stack
from rlvr_cvdp.tree import write_tree
from rlvr_cvdp.workplace import work_folder


@frozen(kw_only=True)
class Verdict:
    """
    What was found about an answer.

    `is_right` is the official verdict and all our checks: each service exits 0, the results and
    cocotb's summaries agree, nothing was refused, with each seed. `refused` are cheats.
    """

    is_right: bool = False
    parses: bool = False
    compiles: bool = False
    passed: int = 0
    total: int = 0
    refused: tuple[str, ...] = ()
    why: str = ""
    services: tuple[ServiceResult, ...] = field(default=(), repr=False)
    seconds: float = 0.0


async def verify(
    problem: CvdpProblem,
    files: Mapping[str, str],
    *,
    stack: Stack,
    limits: Limits,
    seeds: Sequence[str],
    stop_at_first: bool,
    with_verilator: bool = False,
    hidden: tuple[Path, ...] = (),
) -> Verdict:
    """
    Judge the files of an answer (declared targets only).

    Raises:
        VerifierError: The harness could not be run; says nothing about the answer.
        PrerequisiteError: A tool is missing.
    """
    begun = time.monotonic()
    refused = two_faced(problem, files)
    if refused:
        return Verdict(refused=tuple(refused), why="; ".join(refused))
    gate = Gate()
    results: list[ServiceResult] = []
    for seed in seeds:
        with work_folder() as folder:
            write_tree(folder, problem, files)
            if not results:
                gate = await try_compile(
                    problem,
                    folder=folder,
                    stack=stack,
                    limits=limits,
                    with_verilator=with_verilator,
                    hidden=hidden,
                )
            if gate.decides:
                break
            for service in problem.services:
                result = await run_service(
                    problem,
                    service,
                    folder=folder,
                    stack=stack,
                    limits=limits,
                    seed=seed,
                    stop_at_first=stop_at_first,
                    hidden=hidden,
                )
                results.append(result)
                is_hopeless = bool(result.refused) or "slow" in result.builds
                if is_hopeless or (result.why and stop_at_first):
                    break
        if any(result.why for result in results):
            break
    return evolve(_judge(gate, results), seconds=time.monotonic() - begun)


def _judge(gate: Gate, results: Sequence[ServiceResult]) -> Verdict:
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
        services=tuple(results),
    )
