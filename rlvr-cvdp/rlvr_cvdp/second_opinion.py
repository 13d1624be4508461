"""
A second, stricter judge of an answer that the harness calls right.

It asks in this order, and stops at the first objection: the same harness with other seeds; the
same tests on the netlist, where the reference's netlist passes them; and the reference beside the
answer under random inputs after reset, where the data set has one and it can be driven. Where the
reference itself does not pass, a judge has no say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import evolve

from rlvr.types import Problem, Reward, Trajectory
from rlvr_cvdp.counted import passes_as_netlist
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.twin import twin_problem

if TYPE_CHECKING:
    from rlvr_cvdp.reward import CvdpReward

SEEDS = (7001, 7002, 7003)


async def second_opinion(
    judge: CvdpReward, problem: Problem, files: Mapping[str, str]
) -> Reward | None:
    """
    What a stricter judge says of an answer that is right by its harness; None: nothing to add.

    Args:
        judge: The first judge.
        problem: The problem, with a `CvdpProblem`.
        files: The answer's files.

    Returns:
        `score01` 1.0 or 0.0; `evidence["judge"]` names what objected, `evidence["asked"]` what
        was asked.

    Raises:
        VerifierError: A harness could not be run.
    """
    record = problem.payload
    assert isinstance(record, CvdpProblem)
    asked = {"seeds": await _with_other_seeds(judge, problem, record, files)}
    if asked["seeds"] is not False:
        asked["netlist"] = await _as_netlist(judge, record, files)
    if False not in asked.values():
        asked["reference"] = await _beside_reference(judge, problem, record, files)
    known = {name: said for name, said in asked.items() if said is not None}
    if not known:
        return None
    objects = next((name for name, said in known.items() if not said), "")
    is_right = float(not objects)
    evidence = {"judge": objects, "asked": sorted(known), "why": _WHY.get(objects, "")}
    return Reward(value=is_right, score01=is_right, evidence=evidence)


_WHY = {
    "seeds": "it fails with most other seeds of the same tests",
    "netlist": "its netlist fails the tests, which the reference's netlist passes",
    "reference": "it differs from the reference under random inputs",
}


async def _with_other_seeds(
    judge: CvdpReward, problem: Problem, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    """Whether it passes with most seeds with which the reference passes; None for no such seed."""
    passed = failed = 0
    for seed in SEEDS:
        other = judge.reseeded(seed)
        if (await other(problem, _answer(problem, files))).score01 == 1.0:
            passed += 1
        elif not record.reference or (
            (await other(problem, _answer(problem, record.reference))).score01 == 1.0
        ):
            failed += 1
        if max(passed, failed) > len(SEEDS) // 2:
            break
    return None if not passed + failed else passed > failed


async def _as_netlist(
    judge: CvdpReward, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    sandbox = judge.sandbox
    return await passes_as_netlist(
        record,
        files,
        sandbox=sandbox,
        stack=sandbox.toolchain.stack_for(record),
        limits=judge.limits,
        seed=str(SEEDS[0]),
    )


async def _beside_reference(
    judge: CvdpReward, problem: Problem, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    """Whether random inputs after reset find no difference; None where the two cannot be driven."""
    twin = twin_problem(record, record.reference)
    if twin is None:
        return None
    compared = evolve(problem, payload=twin)
    if (await judge(compared, _answer(problem, record.reference))).score01 != 1.0:
        return None
    return (await judge(compared, _answer(problem, files))).score01 == 1.0


def _answer(problem: Problem, files: Mapping[str, str]) -> Trajectory:
    return Trajectory(problem_id=problem.id, files=dict(files))
