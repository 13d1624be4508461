"""The reward of early training: does the answer compile, or lint? The tests are not run."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from rlvr.types import Problem, Reward, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.gate import Gate
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.work import Work

if TYPE_CHECKING:
    from rlvr_cvdp.reward import CvdpReward


@frozen(kw_only=True)
class ProxyReward:
    """
    Judges by the compiler alone (`cvdp.proxy`), in some ten milliseconds.

    `score01` is always 0 and `is_proxy` set: an answer that compiles may be wrong. A problem that
    cannot be compiled outside of its harness, or whose answer is words, gets the full reward.
    """

    full: CvdpReward
    kind: str

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """
        The reward of one answer.

        Raises:
            PrerequisiteError: The sandbox, the compiler or Verilator is missing.
            VerifierError: The compiler could not be run.
        """
        found = await self.full.by_proxy(problem, trajectory, self.kind)
        return found if found is not None else await self.full(problem, trajectory)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """The full reward's key and the proxy: neither ever answers for the other."""
        key = self.full.verdict_key(problem, trajectory)
        if key is None or (isinstance(problem.payload, CvdpProblem) and problem.payload.response):
            return key
        return hashlib.sha256(f"proxy {self.kind} {key}".encode()).hexdigest()


def is_compilable(gate: Gate) -> bool:
    """Whether the compiler had a say: the harness names sources and a top module."""
    return gate.stage != "unknown" or bool(gate.message)


def as_proxy(reward: Reward, gate: Gate | None, config: CvdpConfig, kind: str) -> Reward:
    """
    The proxy's reward: format, syntax, and at most the weight of an answer that compiles.

    `gate` is None where there was no code to compile.
    """
    is_honest = not reward.evidence.get("refused")
    stage = gate.stage if gate is not None and is_honest else "unknown"
    work = gate.work if gate is not None else Work()
    passes = stage == "compiled" and (kind == "compile" or bool(gate and gate.lints))
    passes = passes and work.may_compile
    parses = stage in ("parsed", "compiled") and work.may_parse
    parts = {
        "format": config.format_weight * (gate is not None and is_honest and work.counts),
        "syntax": config.syntax_weight * parses,
        "proxy": config.compile_weight * passes,
    }
    return evolve(
        reward,
        value=max(parts.values()),
        score01=0.0,
        components=parts,
        tests_passed=None,
        tests_total=None,
        evidence={**reward.evidence, "proxy": kind, "lints": gate.lints if gate else None},
        is_proxy=True,
    )
