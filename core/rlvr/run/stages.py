"""The small stages between the parts: parity, admit, collate, annotate, update."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import attrs
import numpy as np

from rlvr.errors import BackendError, explain
from rlvr.parts import Backend, Loss
from rlvr.types import Datum, Group, ScoredGroup, Trajectory


def datum_of(trajectory: Trajectory, advantage: float = 0.0) -> Datum:
    """One trajectory as a training sequence: its advantage on every token the policy wrote."""
    mask = trajectory.mask
    return Datum(
        tokens=trajectory.tokens,
        mask=mask,
        logprobs=trajectory.logprobs,
        advantages=np.where(mask, np.float32(advantage), np.float32(0)),
        weights=mask.astype(np.float32),
        temperature=trajectory.temperature,
        problem_id=trajectory.problem_id,
    )


async def check_parity(
    backend: Backend, groups: Sequence[Group], *, probe: int, threshold: float
) -> float:
    """
    The canary: are sampler and trainer the same policy?

    Scores up to `probe` freshly sampled trajectories, one a group as far as there are groups,
    with the trainer's current weights and compares token by token.

    Returns:
        The largest absolute difference of a token's logprob, nats (0.0 where nothing was probed).

    Raises:
        BackendError: The difference is not finite or exceeds `threshold`.
    """
    candidates = [
        t for turn in _turns(groups) for t in turn if t.finish != "error" and t.mask.any()
    ]
    chosen = candidates[:probe]
    if not chosen:
        return 0.0
    data = [datum_of(t) for t in chosen]
    trained = await backend.logprobs(data, "policy")
    worst = 0.0
    for datum, theirs in zip(data, trained, strict=True):
        gap = np.abs(np.asarray(theirs)[datum.mask] - datum.logprobs[datum.mask]).max()
        worst = max(worst, float(gap)) if np.isfinite(gap) else float("inf")
    if worst > threshold:
        raise BackendError(
            explain(
                "the sampler is not the policy: what was sampled does not have the probability "
                "that the trainer gives it.",
                f"found: a token's logprob differs by {worst:.4g} nats "
                f"(at most {threshold:g}) over {len(chosen)} trajectories",
                "do: look for a weight sync that did not arrive; for low-precision samplers "
                "raise parity.threshold",
            )
        )
    return worst


def _turns(groups: Sequence[Group]) -> Iterable[list[Trajectory]]:
    longest = max((len(g.trajectories) for g in groups), default=0)
    for i in range(longest):
        yield [g.trajectories[i] for g in groups if i < len(g.trajectories)]


def admit(groups: Sequence[ScoredGroup], *, smallest: int) -> list[ScoredGroup]:
    """
    What training may see: trajectories with a reward, in groups of at least `smallest`.

    Unscorable and failed trajectories leave their group here, so they touch no baseline.
    """
    kept = (group.scored_only() for group in groups)
    return [group for group in kept if len(group.trajectories) >= smallest]


def collate(
    groups: Sequence[ScoredGroup], advantages_P_G: Sequence[Sequence[float]]
) -> list[Datum]:
    """Groups and their advantages (P, G) as data; those without policy tokens are left out."""
    return [
        datum_of(trajectory, advantage)
        for group, advantages in zip(groups, advantages_P_G, strict=True)
        for trajectory, advantage in zip(group.trajectories, advantages, strict=True)
        if trajectory.mask.any()
    ]


async def annotate(backend: Backend, data: list[Datum], needs: Iterable[str]) -> list[Datum]:
    """Add the logprobs (T,) by every other model that the loss needs."""
    for which in sorted(needs):
        by_other = await backend.logprobs(data, which)
        data = [
            attrs.evolve(d, annotations={**d.annotations, which: np.asarray(lp, np.float32)})
            for d, lp in zip(data, by_other, strict=True)
        ]
    return data


async def update(
    backend: Backend, parts: Sequence[Sequence[Datum]], loss: Loss
) -> list[dict[str, float]]:
    """One optimiser update a part, each checked before it is sent; the metrics of each."""
    for part in parts:
        check_data(part)
    return [await backend.step(part, loss) for part in parts]


def check_data(data: Sequence[Datum]) -> None:
    """
    Refuse data that no backend should see.

    Raises:
        BackendError: An array differs in length, a value is not finite, or a token id is negative.
    """
    for datum in data:
        length = len(datum.tokens)
        arrays: Mapping[str, np.ndarray] = {
            "mask": datum.mask,
            "logprobs": datum.logprobs,
            "advantages": datum.advantages,
            "weights": datum.weights,
            **datum.annotations,
        }
        for name, values in arrays.items():
            if len(values) != length:
                problem = f"{name} has {len(values)} entries for {length} tokens"
            elif not np.isfinite(np.asarray(values, np.float64)).all():
                problem = f"{name} has a value that is not finite"
            else:
                continue
            raise BackendError(
                explain(
                    "data were not sent to the backend.",
                    f"found: problem {datum.problem_id}: {problem}",
                    "do: check the reward and the advantage of this problem",
                )
            )
        if length and int(datum.tokens.min()) < 0:
            raise BackendError(
                explain(
                    "data were not sent to the backend.",
                    f"found: problem {datum.problem_id}: a negative token id",
                    "do: check the tokenizer of the sampler",
                )
            )
