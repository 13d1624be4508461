"""
A second, stricter judge of an answer that the harness calls right.

It asks in this order, and stops at the first objection: the same harness with other seeds; the
same tests on the netlist, where the reference's netlist passes them; the same tests in another
simulator, where the reference passes them there. Each is a test that the problem's own harness
makes. Where the reference itself does not pass, a judge has no say.

The reference beside the answer under random inputs comes last. A request leaves much open, and the
reference is one way to fill it: a difference alone is a remark. It is an objection where the ports
of both are equal at all times under the tests, and are not with other data in the same course
(`waves.replay`): the answer is the reference only where it is looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve

from rlvr import Problem, Reward, Trajectory
from rlvr_cvdp.hdl.clocks import clocking_of
from rlvr_cvdp.hdl.names import module_names
from rlvr_cvdp.hdl.ports import header_of
from rlvr_cvdp.netlist.proof import simulated
from rlvr_cvdp.netlist.twin import twin_problem
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.plain import read_plain
from rlvr_cvdp.verify.counted import judge_counted, passes_as_netlist
from rlvr_cvdp.verify.harness_reward import HarnessReward
from rlvr_cvdp.verify.verilated import passes_verilated
from rlvr_cvdp.waves.ports import Trace, agree, read_trace
from rlvr_cvdp.waves.record import record_waves
from rlvr_cvdp.waves.replay import replay_problem

SEEDS = (7001, 7002, 7003)
_LARGEST = 20_000_000
"""Of a waveform that is compared; in characters."""


async def second_opinion(
    judge: HarnessReward, problem: Problem, files: Mapping[str, str]
) -> Reward | None:
    """
    What a stricter judge says of an answer that is right by its harness; None: nothing to add.

    Args:
        judge: The first judge.
        problem: The problem, with a `CvdpProblem`.
        files: The answer's files.

    Returns:
        `score01` 1.0 or 0.0; `evidence["judge"]` names what objected, `evidence["asked"]` what
        was asked, `evidence["remark"]` says that it differs from the reference.

    Raises:
        VerifierError: A harness could not be run.
    """
    record = problem.payload
    assert isinstance(record, CvdpProblem)
    asked = {"seeds": await _with_other_seeds(judge, problem, record, files)}
    if asked["seeds"] is not False:
        asked["netlist"] = await _as_netlist(judge, record, files)
    if False not in asked.values():
        asked["simulator"] = await _in_other_simulator(judge, record, files)
    known = {name: said for name, said in asked.items() if said is not None}
    if not known:
        return None
    objects = next((name for name, said in known.items() if not said), "")
    is_right = float(not objects)
    evidence: dict[str, Any] = {
        "judge": objects,
        "asked": sorted(known),
        "why": _WHY.get(objects, ""),
    }
    if is_right and await _beside_reference(judge, problem, record, files) is False:
        if await _is_made_for_the_tests(judge, problem, record, files):
            is_right = 0.0
            evidence |= {"judge": "reference", "why": _WHY["reference"]}
        else:
            evidence["remark"] = "it differs from the reference under random inputs"
    return Reward(value=is_right, score01=is_right, evidence=evidence)


_WHY = {
    "seeds": "it fails with most other seeds of the same tests",
    "netlist": "its netlist fails the tests, which the reference's netlist passes",
    "simulator": "it fails the tests in Verilator, where the reference passes them",
    "reference": "it equals the reference wherever the tests look and differs elsewhere",
}


async def _with_other_seeds(
    judge: HarnessReward, problem: Problem, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    """Whether it passes with most seeds with which the reference passes; None for no such seed."""
    passed = failed = 0
    for seed in SEEDS:
        other = judge.with_seed(seed)
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
    judge: HarnessReward, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    """Whether its netlist passes the tests; None also where yosys cannot make one of it."""
    place = _place(judge, record)
    passes = await passes_as_netlist(record, files, **place)
    if passes is not False:
        return passes
    found = await judge_counted(record, files, (), scored=(), **place)
    return None if not found.netlists else found.is_right


async def _in_other_simulator(
    judge: HarnessReward, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    return await passes_verilated(record, files, **_place(judge, record))


def _place(judge: HarnessReward, record: CvdpProblem) -> dict[str, Any]:
    """Where and how a judge of one problem runs its tests."""
    sandbox = judge.sandbox
    stack = sandbox.toolchain.stack_for(record)
    return {"sandbox": sandbox, "stack": stack, "limits": judge.limits, "seed": str(SEEDS[0])}


async def _beside_reference(
    judge: HarnessReward, problem: Problem, record: CvdpProblem, files: Mapping[str, str]
) -> bool | None:
    """Whether random inputs after reset find no difference; None where the two cannot be driven."""
    twin = twin_problem(record, record.reference)
    return None if twin is None else await _compared(judge, problem, record, twin, files)


async def _compared(
    judge: HarnessReward,
    problem: Problem,
    record: CvdpProblem,
    twin: CvdpProblem,
    files: Mapping[str, str],
) -> bool | None:
    """Whether a comparison with the reference finds no difference; None: it is no judge."""
    compared = evolve(problem, payload=twin)
    if (await judge(compared, _answer(problem, record.reference))).score01 != 1.0:
        return None
    return (await judge(compared, _answer(problem, files))).score01 == 1.0


async def _is_made_for_the_tests(
    judge: HarnessReward, problem: Problem, record: CvdpProblem, files: Mapping[str, str]
) -> bool:
    """
    Whether it equals the reference at all times in the tests, and not with other data there.

    Not so where nobody can tell; equal ports say something where each output has a value.
    """
    twin = twin_problem(record, record.reference)
    (text,) = record.reference.values()
    top = simulated(record)[1] or module_names(text)[-1]
    header = header_of(text, top)
    ports = [port.name for port in header.ports]
    golden = await _traces(judge, record, record.reference, top, ports)
    answer = await _traces(judge, record, files, top, ports) if golden else None
    if twin is None or not golden or not answer or golden.keys() != answer.keys():
        return False
    known = {name for trace in golden.values() for name in trace.known}
    if not known.issuperset(port.name for port in header.named("output")):
        return False
    if not all(agree(trace, answer[launch]) for launch, trace in golden.items()):
        return False
    clocking = clocking_of(text, header.named("input"))
    replay = replay_problem(twin, header, clocking, list(golden.values()))
    return replay is not None and (await _compared(judge, problem, record, replay, files) is False)


async def _traces(
    judge: HarnessReward, record: CvdpProblem, files: Mapping[str, str], top: str, ports: list[str]
) -> dict[tuple[str, int], Trace] | None:
    """What stood at the ports in each launch; None where one has failed or left no waveform."""
    traces: dict[tuple[str, int], Trace] = {}
    with TemporaryDirectory(prefix="rlvr-ports-") as folder:
        recording = await record_waves(
            record, files, **_place(judge, record), out=Path(folder), form="vcd", is_each=True
        )
        if any(service.why for service in recording.services):
            return None
        if sum(service.launches for service in recording.services) != len(recording.waves):
            return None
        for wave in recording.waves:
            text = read_plain(wave.path, most=_LARGEST)
            trace = read_trace(text, top, ports) if len(text) < _LARGEST else None
            if trace is None:
                return None
            traces[wave.service, wave.launch] = trace
    return traces or None


def _answer(problem: Problem, files: Mapping[str, str]) -> Trajectory:
    return Trajectory(problem_id=problem.id, files=dict(files))
