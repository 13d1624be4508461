"""The reward: stages of a verdict, each a component."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rlvr_cvdp
from rlvr.parts import BuildContext
from rlvr.types import Problem, Reward, Trajectory
from rlvr_cvdp.answers import Answer, from_files, from_text
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.sandbox import Limits
from rlvr_cvdp.stacks import Stack, stack_for
from rlvr_cvdp.tools import require_tool, tool_versions
from rlvr_cvdp.verify import Verdict, verify

VERDICTS = 2
"""Grows when the same answer may get another verdict: kept verdicts are then not used."""

_WALL_FACTOR = 5.0
"""A busy machine gives a process less than all of a core; what never computes still ends."""


class CvdpReward:
    """
    Judges answers with the problem's own harness.

    `value` is the weight of the highest stage reached: code was found (0.1), it parses (0.3), it
    compiles (0.5), all tests pass (1.0); with `cvdp.tests=share` the share of passed tests lies
    between the last two. `score01` is 1.0 exactly where the official verdict is a pass and none
    of our own checks objects. A detected cheat is worth 0.
    """

    def __init__(self, config: CvdpConfig, context: BuildContext) -> None:
        self._config = config
        self._hidden = _hidden(context.dataset)

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """
        The reward of one answer.

        Raises:
            PrerequisiteError: bubblewrap, iverilog or the cocotb stack is missing.
            VerifierError: The harness could not be run.
        """
        record = _record(problem)
        answer = read_answer(record, trajectory)
        if not answer.files:
            return self._reward(answer, Verdict(why=answer.why_none), None)
        for tool in ("bwrap", "iverilog", "vvp"):
            require_tool(tool)
        for service in record.services:
            if service.tool:
                require_tool(service.tool)
        stack = stack_for(record, provision=self._config.provision)
        verdict = await verify(
            record,
            answer.files,
            stack=stack,
            limits=self._limits(),
            seeds=self._config.seeds,
            stop_at_first=self._config.tests == "all",
            with_verilator=self._config.syntax == "verilator",
            hidden=self._hidden,
        )
        return self._reward(answer, verdict, stack)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """
        sha256 over all that decides the reward.

        The answer enters as the exact text of its files: leaving out comments or blanks would
        need proof that no compiler directive depends on them.
        """
        record = _record(problem)
        answer = read_answer(record, trajectory)
        stack = None
        if answer.files:
            stack = stack_for(record, provision=self._config.provision)
        parts: list[Any] = [
            *(rlvr_cvdp.__version__, VERDICTS, problem.digest or record.digest()),
            *(dict(answer.files), sorted(answer.ignored)),
            *(tool_versions(), dict(stack.versions) if stack else {}, repr(self._config)),
        ]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def _limits(self) -> Limits:
        config = self._config
        return Limits(
            wall_s=_WALL_FACTOR * config.timeout_s,
            cpu_s=config.timeout_s,
            memory_mb=config.memory_mb,
            processes=config.processes,
            file_mb=config.file_mb,
            disk_mb=config.disk_mb,
            output_mb=config.output_mb,
        )

    def _reward(self, answer: Answer, verdict: Verdict, stack: Stack | None) -> Reward:
        config = self._config
        share = verdict.passed / verdict.total if verdict.total else 0.0
        if verdict.is_right:
            share = 1.0
        elif config.tests == "all" or not verdict.compiles:
            share = 0.0
        is_honest = not verdict.refused
        stages = {
            "format": config.format_weight * bool(answer.files and is_honest),
            "syntax": config.syntax_weight * (verdict.parses and is_honest),
        }
        if config.compilation:
            stages["compilation"] = config.compile_weight * (verdict.compiles and is_honest)
        floor = max(stages.values())
        is_right = verdict.is_right and is_honest
        value = floor + share * (config.tests_weight - floor) if is_honest else 0.0
        return Reward(
            value=config.tests_weight if is_right else value,
            score01=float(is_right),
            components={**stages, "tests": config.tests_weight * share * is_honest},
            tests_passed=verdict.passed if verdict.services else None,
            tests_total=verdict.total if verdict.services else None,
            evidence=_evidence(config, answer, verdict, stack),
            cost_s=verdict.seconds,
        )


def read_answer(problem: CvdpProblem, trajectory: Trajectory) -> Answer:
    """The files of an answer, whether it came as files or as text."""
    if trajectory.files is not None:
        return from_files(trajectory.files, problem.targets)
    return from_text(trajectory.completion, problem.targets)


def _record(problem: Problem) -> CvdpProblem:
    if not isinstance(problem.payload, CvdpProblem):
        raise TypeError(f"{problem.id} is not a problem of the cvdp task")
    return problem.payload


def _evidence(
    config: CvdpConfig, answer: Answer, verdict: Verdict, stack: Stack | None
) -> Mapping[str, Any]:
    """What a person needs to believe a verdict. The hidden harness's output is left out."""
    return {
        "why": verdict.why,
        "refused": list(verdict.refused),
        "files": sorted(answer.files),
        "ignored": list(answer.ignored),
        "services": [
            {
                "name": result.name,
                "rc": result.rc,
                "stopped": result.stopped,
                "passed": result.passed,
                "total": result.total,
                "launches": result.launches,
                "seconds": round(result.seconds, 3),
            }
            for result in verdict.services
        ],
        "stopped_at_first_failure": config.tests == "all" and not verdict.is_right,
        "seeds": list(config.seeds),
        "stack": stack.name if stack else "",
        "tools": tool_versions() if stack else {},
    }


def _hidden(dataset: Path | None) -> tuple[Path, ...]:
    """What no sandbox may show: this package (it holds the starter's solutions), the data set."""
    package = Path(rlvr_cvdp.__file__).resolve().parent
    return (package,) if dataset is None else (package, dataset.resolve())
