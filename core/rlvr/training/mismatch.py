"""Train-inference mismatch: do sampler and trainer give the same logprobs?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
from attrs import frozen

from rlvr.border.calls import Border
from rlvr.border.drawn import fault_of_completion
from rlvr.border.promises import logprobs_of
from rlvr.errors import BackendError
from rlvr.parts import Backend, Policy
from rlvr.seeds import seed_of
from rlvr.training.stages import datum_of
from rlvr.types import Completion, GenerateRequest, Group, SamplingParams, Segment, Trajectory

PROBE_TOKENS = 16
"""Tokens sampled for a probe of its own, where the weights have moved on since the last groups."""

EXACT = 0.01
"""Largest difference of a token's logprob where both compute in float32, nats."""

CAP = 2.0
"""A token's probability ratio past this, or under its inverse, counts as clipped."""


@frozen(kw_only=True)
class Parity:
    """
    Difference of sampler and trainer on the tokens of a probe.

    Attributes:
        gap: Largest absolute difference of a token's logprob, nats.
        kl: Mean of r - 1 - log r, r = trainer / sampler: an estimate of KL(sampler || trainer).
        ratio: Largest r.
        clipped: Share of tokens whose r leaves [1 / CAP, CAP].
    """

    gap: float
    kl: float
    ratio: float
    clipped: float

    def metrics(self) -> dict[str, float]:
        """The measured values, under the names that losses use when they measure all data."""
        return {
            "parity/max": self.gap,
            "mismatch/kl": self.kl,
            "mismatch/ratio/max": self.ratio,
            "mismatch/clipped": self.clipped,
        }


async def check_parity(
    backend: Backend, groups: Sequence[Group], *, probe: int, threshold: float = 0.0
) -> Parity | None:
    """
    Score freshly sampled trajectories with the trainer's current weights, token by token.

    Takes up to `probe` of them, one a group as far as there are groups; None where there is none.

    Raises:
        BackendError: A logprob is not finite, or differs by more than `threshold` nats; where that
            is 0, by more than the backend's `logprob_tolerance`, else `EXACT`.
    """
    own = backend.capabilities.logprob_tolerance
    threshold = threshold or (EXACT if own is None else own)
    candidates = [
        t for turn in _turns(groups) for t in turn if t.finish != "error" and t.mask.any()
    ]
    chosen = candidates[:probe]
    if not chosen:
        return None
    data = [datum_of(t) for t in chosen]
    trained = await logprobs_of(backend, data, "policy")
    log_ratio = np.concatenate(
        [
            np.asarray(theirs, np.float64)[d.mask] - d.logprobs[d.mask]
            for d, theirs in zip(data, trained, strict=True)
        ]
    )  # (N,) nats, trainer - sampler
    gap = float(np.abs(log_ratio).max()) if np.isfinite(log_ratio).all() else float("inf")
    if gap > threshold:
        raise BackendError(
            "the sampler is not the policy: what was sampled does not have the probability "
            "that the trainer gives it.",
            f"found: a token's logprob differs by {gap:.4g} nats "
            f"(at most {threshold:g}) over {len(chosen)} trajectories",
            "do: look for a weight sync that did not arrive; for low-precision samplers "
            "raise parity.threshold",
        )
    log_ratio = log_ratio.clip(-20.0, 20.0)
    return Parity(
        gap=gap,
        kl=float((np.expm1(log_ratio) - log_ratio).mean()),
        ratio=float(np.exp(log_ratio.max())),
        clipped=float((np.abs(log_ratio) > np.log(CAP)).mean()),
    )


async def probe_again(
    policy: Policy, groups: Sequence[Group], probe: int, params: SamplingParams
) -> list[Group]:
    """Short completions of the same prompts by the weights as they are now, one a group."""
    short = attrs.evolve(params, max_tokens=min(params.max_tokens, PROBE_TOKENS))
    sources = [(g, g.trajectories[0]) for g in groups if g.trajectories]
    sources = [(g, t) for g, t in sources if t.segments][:probe]
    requests = [
        GenerateRequest(
            prompt=t.segments[0].tokens, params=short, seed=seed_of(params.seed, "probe", t.seed)
        )
        for _, t in sources
    ]
    at = Border(policy, "policy", "generate_many", promised="a Completion a request")
    with at:
        completions = list(await policy.generate_many(requests))
    for completion in completions:
        at.check(fault_of_completion(completion))
    return [
        Group(problem=group.problem, trajectories=[_probed(trajectory, completion)])
        for (group, trajectory), completion in zip(sources, completions, strict=True)
    ]


def _probed(source: Trajectory, done: Completion) -> Trajectory:
    answer = Segment(author="policy", tokens=done.tokens, logprobs=done.logprobs)
    return attrs.evolve(source, segments=(source.segments[0], answer), finish=done.finish)


def _turns(groups: Sequence[Group]) -> Iterable[list[Trajectory]]:
    longest = max((len(g.trajectories) for g in groups), default=0)
    for i in range(longest):
        yield [g.trajectories[i] for g in groups if i < len(g.trajectories)]
