"""The reward of early training: does the answer compile, or lint? The tests are not run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import cast

from attrs import evolve

from rlvr import PassRate, Problem, Reward, RewardFn, RewardWrapper, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.problem import CvdpProblem
from rlvr_cvdp.verify.compile_first import Gate
from rlvr_cvdp.verify.harness_reward import HarnessReward
from rlvr_cvdp.verify.work import Work


class ProxyReward(RewardWrapper):
    """
    Judges by the compiler alone (`cvdp.proxy`), in some ten milliseconds.

    `score01` is always 0 and `is_proxy` set: an answer that compiles may be wrong. A problem that
    cannot be compiled outside of its harness, or whose answer is words, gets the full reward.
    """

    inner: HarnessReward

    def __init__(self, inner: HarnessReward, compiler: str) -> None:
        super().__init__(inner)
        self.compiler = compiler

    def around(self, inner: RewardFn) -> RewardFn:
        """The same proxy of another reward."""
        return ProxyReward(cast("HarnessReward", inner), self.compiler)

    def at_step(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        """As the full reward says: it, or its proxy."""
        return self.inner.at_step(step, history)

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """
        The reward of one answer.

        Raises:
            PrerequisiteError: The sandbox, the compiler or Verilator is missing.
            VerifierError: The compiler could not be run.
        """
        found = await self.inner.by_proxy(problem, trajectory, self.compiler)
        return found if found is not None else await self.inner(problem, trajectory)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """The full reward's key and the proxy: neither ever answers for the other."""
        key = self.inner.verdict_key(problem, trajectory)
        if key is None or (isinstance(problem.payload, CvdpProblem) and problem.payload.response):
            return key
        return hashlib.sha256(f"proxy {self.compiler} {key}".encode()).hexdigest()


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
