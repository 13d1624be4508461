"""The reward: stages of a verdict, each a component."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from attrs import evolve

import rlvr_cvdp
from rlvr import BuildContext, PassRate, Problem, Reward, RewardFn, Trajectory
from rlvr_cvdp.answers.parse import Answer, from_files, from_official_text, from_text
from rlvr_cvdp.answers.text_scores import comprehension_key, comprehension_reward
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.time_limits import Timed, load_calibration
from rlvr_cvdp.extraction.wanted import wanted_of
from rlvr_cvdp.hdl.definitions import definitions_of
from rlvr_cvdp.launch.service import RunSettings
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.results.stage import details, failed_stage
from rlvr_cvdp.sandbox import Limits, Sandbox, open_sandbox
from rlvr_cvdp.sandbox.choose import judged_with
from rlvr_cvdp.toolchain.cocotb_stacks import Stack
from rlvr_cvdp.toolchain.toolchain import digest_of
from rlvr_cvdp.verify.compile_only_reward import ProxyReward, as_proxy, is_compilable
from rlvr_cvdp.verify.control import Control
from rlvr_cvdp.verify.harness_reward import HarnessReward
from rlvr_cvdp.verify.hidden_code import hints
from rlvr_cvdp.verify.machine_speed import Speed
from rlvr_cvdp.verify.second_opinion import second_opinion
from rlvr_cvdp.verify.turn_credit import turns_key, with_turns
from rlvr_cvdp.verify.verdict import Verdict, verify

DECIDING = (
    *("format_weight", "syntax_weight", "compile_weight", "tests_weight", "compilation", "tests"),
    *("syntax", "seeds", "timeout_s", "idle_s", "memory_mb", "processes", "file_mb", "disk_mb"),
    *("output_mb", "shim", "verdict", "stub_stage"),
)
"""Options that enter the key of a kept verdict."""
_OF_SERVICE = ("name", "rc", "stopped", "passed", "total", "launches")
STUB_STAGES = ("format", "syntax", "compilation")
"""The stages before the tests, which a stub is paid for up to `cvdp.stub_stage`."""


class CvdpReward(HarnessReward):
    """
    Judges answers with the problem's own harness.

    `value` is the weight of the highest stage reached: code was found (0.1), it parses (0.3), it
    compiles (0.5), all tests pass (1.0); with `cvdp.tests=share` the share of passed tests lies
    between the last two. `score01` is 1.0 exactly where the official verdict is a pass and none
    of our own checks objects. A detected cheat is worth 0.
    """

    has_second_opinion = True

    def __init__(self, config: CvdpConfig, context: BuildContext) -> None:
        self._config = config
        self._workers = context.workers
        self._hidden = hidden_paths(context.dataset, config.references)
        self._control = Control()
        self._speed = Speed()

    async def __aenter__(self) -> CvdpReward:
        """Keep sandboxes warm until the end of the `async with`; begin the parser's process."""
        await asyncio.to_thread(definitions_of, "module first; endmodule")
        await self._sandbox.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._sandbox.__aexit__(*error)

    @cached_property
    def _sandbox(self) -> Sandbox:
        return open_sandbox(self._config, workers=self._workers, hidden=self._hidden)

    def run_settings(self, record: CvdpProblem) -> RunSettings:
        """Where and how it runs a harness, where no calibration says otherwise."""
        stack, config = self._sandbox.toolchain.stack_for(record), self._config
        return RunSettings(
            sandbox=self._sandbox,
            stack=stack,
            limits=Limits.of(config),
            stop_at_first=config.tests == "all",
            extra={} if config.shim else {"RLVR_SHIM": "0"},
        )

    @property
    def judged_with(self) -> str:
        """A line that names the sandbox and the toolchain of its verdicts."""
        return judged_with(self._sandbox)

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """
        The reward of one answer.

        Raises:
            PrerequisiteError: The sandbox, iverilog or the cocotb stack is missing.
            VerifierError: The harness could not be run.
        """
        record = _record(problem)
        if record.is_comprehension:
            return comprehension_reward(record, trajectory, self._config)
        answer = self._answer(record, trajectory)
        if not answer.files:
            return with_turns(self._without_code(answer), trajectory, self._config)
        outcome = self._reward(answer, *await self._verify(record, answer))
        found = hints(record, answer.files)
        if found:
            outcome = evolve(outcome, evidence={**outcome.evidence, "hints": found})
        return with_turns(outcome, trajectory, self._config)

    def _answer(self, record: CvdpProblem, trajectory: Trajectory) -> Answer:
        return read_answer(record, trajectory, self._config.parsing)

    async def _verify(
        self, record: CvdpProblem, answer: Answer, proxy: str = ""
    ) -> tuple[Verdict, Stack]:
        toolchain = self._sandbox.toolchain
        needed = ["verilator"] if proxy == "lint" else [s.tool for s in record.services if s.tool]
        for tool in ("iverilog", "vvp", *needed):
            toolchain.tool(tool)
        settings = self.run_settings(record)
        timed = self._calibration.get(record.digest())
        slowness = timed.slowness(await self._speed.now_s()) if timed else 1.0
        limits = Limits.of(self._config, cpu_s=timed.limit_s(slowness) if timed else None)
        judge = partial(
            verify,
            record,
            answer.files,
            seeds=self._config.seeds,
            with_verilator=self._config.syntax == "verilator" or proxy == "lint",
            stop_after="compile" if proxy else "",
            control=self._control,
            is_strict=self._config.verdict == "strict",
        )
        verdict = await judge(evolve(settings, limits=limits))
        if timed and verdict.is_out_of_time:
            slowness = max(slowness, timed.slowness(await self._speed.now_s(is_fresh=True)))
            is_near = timed.is_near(verdict.cpu_s, slowness)
            if is_near and settings.limits.cpu_s > limits.cpu_s:
                verdict = evolve(await judge(settings), stopped_at_s=verdict.cpu_s)
        return evolve(verdict, slowness=slowness if timed else None), settings.stack

    def with_seed(self, seed: int) -> CvdpReward:
        """The same judge with one other seed; shares the sandbox."""
        other = copy.copy(self)
        other._config = evolve(self._config, seeds=(str(seed),))
        other.__dict__["_sandbox"] = self._sandbox
        other.__dict__.pop("_deciding", None)
        return other

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Reward | None:
        """
        A stricter judge's word on an answer that is right (`second_opinion`); None for none.

        Raises:
            VerifierError: A harness could not be run.
        """
        record = _record(problem)
        if record.is_comprehension:
            return None
        files = self._answer(record, trajectory).files
        return await second_opinion(self, problem, files) if files else None

    def at_step(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        """This reward, or its proxy in the first `cvdp.proxy_steps` steps."""
        if step >= self._config.proxy_steps:
            return self
        return ProxyReward(self, self._config.proxy)

    async def by_proxy(self, problem: Problem, trajectory: Trajectory, kind: str) -> Reward | None:
        """What the compiler alone says; None where it has no say in this problem."""
        record = _record(problem)
        if record.is_comprehension:
            return None
        answer = self._answer(record, trajectory)
        if not answer.files:
            reward, gate = self._without_code(answer), None
        else:
            verdict, stack = await self._verify(record, answer, kind)
            reward, gate = self._reward(answer, verdict, stack), verdict.gate
            if not (verdict.refused or is_compilable(gate)):
                return None
        return with_turns(as_proxy(reward, gate, self._config, kind), trajectory, self._config)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """
        sha256 over all that decides the reward.

        The answer enters as the exact text of its files: leaving out comments or blanks would
        need proof that no compiler directive depends on them.
        """
        record = _record(problem)
        if record.is_comprehension:
            digest = problem.digest or record.digest()
            return comprehension_key(digest, trajectory, self._config)
        answer = self._answer(record, trajectory)
        timed = self._calibration.get(problem.digest)
        parts: list[Any] = [
            problem.digest or record.digest(),
            *(dict(answer.files), sorted(answer.ignored)),
            *(self._sandbox.toolchain.digest if answer.files else "", self._deciding),
            timed.limit_s() if timed else None,
            *turns_key(trajectory, self._config),
        ]
        return digest_of(parts)

    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
        """About how long a verification takes, so that the long ones begin first."""
        timed = self._calibration.get(problem.digest)
        return timed.cpu_s if timed else 0.0

    @cached_property
    def _calibration(self) -> dict[str, Timed]:
        return load_calibration(self._config.limits)

    @cached_property
    def _deciding(self) -> str:
        return repr([getattr(self._config, name) for name in DECIDING])

    def _without_code(self, answer: Answer) -> Reward:
        stage = failed_stage(why_none=answer.why_none)
        return self._reward(answer, Verdict(why=answer.why_none, stage=stage), None)

    def _reward(self, answer: Answer, verdict: Verdict, stack: Stack | None) -> Reward:
        config = self._config
        share = verdict.share
        if verdict.is_right:
            share = 1.0
        elif config.tests == "all" or not verdict.compiles:
            share = 0.0
        is_honest = not verdict.refused
        work = verdict.gate.work
        counts = answer.files and is_honest and (work.counts or verdict.is_official)
        stages = {
            "format": config.format_weight * bool(counts),
            "syntax": config.syntax_weight * (verdict.parses and is_honest),
        }
        if config.compilation:
            stages["compilation"] = config.compile_weight * (verdict.compiles and is_honest)
        if work.is_stub and not verdict.is_official:
            kept = STUB_STAGES[: STUB_STAGES.index(config.stub_stage) + 1]
            stages = {name: value * (name in kept) for name, value in stages.items()}
            share = 0.0
        floor = max(stages.values())
        is_right = verdict.is_right and is_honest
        value = floor + share * (config.tests_weight - floor) if is_honest else 0.0
        return Reward(
            value=config.tests_weight if is_right else value,
            score01=float(is_right),
            components={**stages, "tests": config.tests_weight * share * is_honest},
            tests_passed=verdict.passed if verdict.services else None,
            tests_total=verdict.total if verdict.services else None,
            evidence=self._evidence(answer, verdict, stack),
            cost_s=verdict.seconds,
        )

    def _evidence(self, answer: Answer, verdict: Verdict, stack: Stack | None) -> Mapping[str, Any]:
        """What a person needs to believe a verdict; no policy may see it (docs/results.md)."""
        config, work, finding = self._config, verdict.gate.work, verdict.counted
        judged = self._sandbox if stack else None
        where = f"{judged.name}, {judged.toolchain.name}" if judged else ""
        # The official verdict beside what is known of the netlist, where that was asked.
        counted = (
            {"official": verdict.is_official, "netlist": finding.evidence()} if finding else {}
        )
        services = [
            {
                **{name: getattr(result, name) for name in _OF_SERVICE},
                "seconds": round(result.seconds, 3),
            }
            for result in verdict.services
        ]
        tests = [test for result in verdict.services for test in result.tests]
        return {
            "why": verdict.why,
            "refused": list(verdict.refused),
            "files": sorted(answer.files),
            "ignored": list(answer.ignored),
            "extraction": dict(answer.how),
            "services": services,
            "missing": work.why,
            "shares": {"stub": float(bool(work.is_stub))},
            **counted,
            **details(verdict.stage, tests, verdict.messages),
            "cpu_s": round(verdict.cpu_s, 3),
            "limit_s": verdict.limit_s,
            "slowness": verdict.slowness and round(verdict.slowness, 3),
            "stopped_at_s": verdict.stopped_at_s,
            "control": verdict.control,
            "stopped_at_first_failure": config.tests == "all" and not verdict.is_right,
            "seeds": list(config.seeds),
            "stack": stack.name if stack else "",
            "tools": dict(judged.toolchain.versions) if judged else {},
            "sandbox": where,
        }


def read_answer(problem: CvdpProblem, trajectory: Trajectory, parsing: str = "lenient") -> Answer:
    """The files of an answer, whether it came as files or as text (`cvdp.parsing`)."""
    if trajectory.files is not None:
        return from_files(trajectory.files, problem.targets)
    if parsing == "official":
        return from_official_text(trajectory.completion, problem.targets)
    return from_text(trajectory.completion, problem.targets, wanted_of(problem))


def _record(problem: Problem) -> CvdpProblem:
    if not isinstance(problem.payload, CvdpProblem):
        raise TypeError(f"{problem.id} is not a problem of the cvdp task")
    return problem.payload


def hidden_paths(dataset: Path | None, references: str = "") -> tuple[Path, ...]:
    """What no sandbox may show: this package (it holds solutions), the data, the references."""
    package = Path(rlvr_cvdp.__file__).resolve().parent
    others = [*([dataset] if dataset else []), *([Path(references)] if references else [])]
    return (package, *(path.resolve() for path in others))
