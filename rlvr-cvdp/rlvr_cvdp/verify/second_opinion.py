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

import functools
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from attrs import evolve

from rlvr import Problem, Reward, RewardFn, Trajectory
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
_right_references: set[str] = set()
"""Keys of verdicts that called a reference right: of many answers' problem it is asked once."""


async def second_opinion(
    judge: HarnessReward, problem: Problem, files: Mapping[str, str]
) -> Reward | None:
    """
    What a stricter judge says of an answer that is right by its harness; None: nothing to add.

    Returns:
        `score01` 1.0 or 0.0; `evidence["judge"]` names what objected, `evidence["asked"]` what
        was asked, `evidence["remark"]` says that it differs from the reference.

    Raises:
        VerifierError: A harness could not be run.
    """
    opinion = _Opinion(judge, problem, files)
    asked = {"seeds": await opinion.with_other_seeds()}
    if asked["seeds"] is not False:
        asked["netlist"] = await opinion.as_netlist()
    if False not in asked.values():
        asked["simulator"] = await passes_verilated(opinion.record, files, opinion.settings)
    known = {name: said for name, said in asked.items() if said is not None}
    if not known:
        return None
    objects = next((name for name, said in known.items() if not said), "")
    remark = ""
    if not objects and await opinion.is_beside(opinion.twin) is False:
        if await opinion.is_made_for_the_tests():
            objects = "reference"
        else:
            remark = "it differs from the reference under random inputs"
    evidence = {"judge": objects, "asked": sorted(known), "why": _WHY.get(objects, "")}
    evidence |= {"remark": remark} if remark else {}
    is_right = float(not objects)
    return Reward(value=is_right, score01=is_right, evidence=evidence)


_WHY = {
    "seeds": "it fails with most other seeds of the same tests",
    "netlist": "its netlist fails the tests, which the reference's netlist passes",
    "simulator": "it fails the tests in Verilator, where the reference passes them",
    "reference": "it equals the reference wherever the tests look and differs elsewhere",
}


class _Opinion:
    """One answer to one problem, and what can be asked about it."""

    def __init__(self, judge: HarnessReward, problem: Problem, files: Mapping[str, str]) -> None:
        assert isinstance(problem.payload, CvdpProblem)
        self._judge, self._problem, self._files = judge, problem, files
        self.record = problem.payload
        self._golden = self.record.reference
        self.settings = evolve(judge.run_settings(self.record), seed=str(SEEDS[0]))

    @functools.cached_property
    def twin(self) -> CvdpProblem | None:
        """The problem beside its reference under random inputs; None: they cannot be driven."""
        return twin_problem(self.record, self._golden)

    async def with_other_seeds(self) -> bool | None:
        """Whether it passes with most seeds with which the reference does; None: no such seed."""
        passed = failed = 0
        for seed in SEEDS:
            other = self._judge.with_seed(seed)
            if await self._is_right(other, self._problem, self._files):
                passed += 1
            elif not self._golden or await self._is_golden_right(other, self._problem):
                failed += 1
            if max(passed, failed) > len(SEEDS) // 2:
                break
        return None if not passed + failed else passed > failed

    async def _is_right(self, judge: RewardFn, problem: Problem, files: Mapping[str, str]) -> bool:
        answer = Trajectory(problem_id=problem.id, files=dict(files))
        return (await judge(problem, answer)).score01 == 1.0

    async def _is_golden_right(self, judge: RewardFn, problem: Problem) -> bool:
        answer = Trajectory(problem_id=problem.id, files=dict(self._golden))
        key = judge.verdict_key(problem, answer) or ""
        if key in _right_references:
            return True
        is_right = await self._is_right(judge, problem, self._golden)
        if is_right and key:
            _right_references.add(key)
        return is_right

    async def as_netlist(self) -> bool | None:
        """Whether its netlist passes the tests; None also where yosys cannot make one of it."""
        passes = await passes_as_netlist(self.record, self._files, self.settings)
        if passes is not False:
            return passes
        found = await judge_counted(self.record, self._files, self.settings, (), scored=())
        return None if not found.netlists else found.is_right

    async def is_beside(self, twin: CvdpProblem | None) -> bool | None:
        """Whether a comparison with the reference finds no difference; None: it is no judge."""
        if twin is None:
            return None
        compared = evolve(self._problem, payload=twin, digest=twin.digest())
        if not await self._is_golden_right(self._judge, compared):
            return None
        return await self._is_right(self._judge, compared, self._files)

    async def is_made_for_the_tests(self) -> bool:
        """
        Whether it equals the reference at all times in the tests, and not with other data there.

        Not so where nobody can tell; equal ports say something where each output has a value.
        """
        (text,) = self._golden.values()
        top = simulated(self.record)[1] or module_names(text)[-1]
        header = header_of(text, top)
        ports = [port.name for port in header.ports]
        golden = await self._traces(self._golden, top, ports)
        answer = await self._traces(self._files, top, ports) if golden else None
        if self.twin is None or not golden or not answer or golden.keys() != answer.keys():
            return False
        known = {name for trace in golden.values() for name in trace.known}
        if not known.issuperset(port.name for port in header.named("output")):
            return False
        if not all(agree(trace, answer[launch]) for launch, trace in golden.items()):
            return False
        clocking = clocking_of(text, header.named("input"))
        replay = replay_problem(self.twin, header, clocking, list(golden.values()))
        return await self.is_beside(replay) is False

    async def _traces(
        self, files: Mapping[str, str], top: str, ports: list[str]
    ) -> dict[tuple[str, int], Trace] | None:
        """What stood at the ports in each launch; None where one failed or left no waveform."""
        traces: dict[tuple[str, int], Trace] = {}
        with TemporaryDirectory(prefix="rlvr-ports-") as folder:
            recording = await record_waves(
                self.record, files, self.settings, out=Path(folder), form="vcd", is_each=True
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
