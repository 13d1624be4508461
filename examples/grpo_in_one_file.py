"""GRPO from the public parts of rlvr, in one file: to read, to copy, to change.

    python examples/grpo_in_one_file.py --plugin toy --steps 60 train.lr=7e-3
    python examples/grpo_in_one_file.py --plugin cvdp --steps 20

`rlvr run --algo grpo` does the same and more: dynamic sampling, checkpoints, resume, staleness,
teachers, references. Here each stage of the line is a few lines:

    problems -> sample G answers each -> verify -> advantages -> data -> update

Shapes: P problems of a step, G answers a problem, T tokens of one.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from statistics import mean, pstdev
from typing import Any

import attrs
import torch

import rlvr

NOTHING = "nothing could be judged"
CLIP = 0.2  # PPO's clip of the ratio of new to old probability (arXiv:1707.06347)


class GrpoLoss(rlvr.Loss):
    """
    Clipped policy gradient of GRPO (arXiv:2402.03300) without its KL.

    It is a mean over all tokens of a step, as in DAPO (arXiv:2503.14476); GRPO's own averages the
    tokens of each answer first.
    """

    importance_weighted = True

    def __call__(
        self,
        data: Sequence[rlvr.Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        total, clipped = torch.zeros(()), 0.0
        for datum, new in zip(data, logprobs, strict=True):
            old, advantages, weights = (  # (T,) each; outside the mask weights are 0
                torch.tensor(values, device=new.device)
                for values in (datum.logprobs, datum.advantages, datum.weights)
            )
            ratio = (new - old).exp()
            inside = ratio.clamp(1 - CLIP, 1 + CLIP)
            free, bound = ratio * advantages, inside * advantages
            gain = torch.minimum(free, bound)
            total = total.to(new.device) - (weights * gain).sum()
            clipped += float((weights * (bound < free)).sum())
        return total, {"clip_share": clipped}


def advantages_of(rewards: Sequence[float]) -> list[float]:
    """(G,) reward less the group's mean, over the standard deviation."""
    middle, spread = mean(rewards), pstdev(rewards)
    return [(reward - middle) / (spread + 1e-6) for reward in rewards]


def datum_of(trajectory: rlvr.Trajectory, advantage: float, tokens: int) -> rlvr.Datum:
    """A trajectory as training data; each of the step's `tokens` policy tokens weighs the same."""
    mask = trajectory.mask  # (T,) True where the policy wrote the token
    return rlvr.Datum(
        tokens=trajectory.tokens,
        mask=mask,
        logprobs=trajectory.logprobs,
        advantages=mask * advantage,
        weights=mask / tokens,
        temperature=trajectory.temperature,
        problem_id=trajectory.problem_id,
    )


async def answers_of(
    opened: rlvr.Opened, policy: rlvr.Policy, problem: rlvr.Problem, seed: int
) -> list[rlvr.Trajectory]:
    """G answers of the policy to a problem."""
    params = attrs.evolve(opened.params, seed=seed)
    stream = opened.sampler.sample(policy, opened.task, problem, params)
    return [trajectory async for trajectory in stream]


async def judged(
    opened: rlvr.Opened, policy: rlvr.Policy, problems: Sequence[rlvr.Problem], seed: int
) -> list[list[tuple[rlvr.Trajectory, rlvr.Reward]]]:
    """(P, G) answers with their rewards; an answer that could not be judged is left out."""
    groups = await asyncio.gather(
        *[answers_of(opened, policy, p, rlvr.seed_of(seed, i)) for i, p in enumerate(problems)]
    )
    pairs = [(p, t) for p, group in zip(problems, groups, strict=True) for t in group]
    outcomes = iter(await opened.verify(pairs))
    found = [[(t, next(outcomes)) for t in group] for group in groups]
    return [[(t, o) for t, o in group if isinstance(o, rlvr.Reward)] for group in found]


def data_of(groups: Sequence[Sequence[tuple[rlvr.Trajectory, rlvr.Reward]]]) -> list[rlvr.Datum]:
    """Every answer of the groups whose rewards differ, with its advantage."""
    told = []
    for group in groups:
        rewards = [reward.value for _, reward in group]
        if len(set(rewards)) > 1:
            answers = [trajectory for trajectory, _ in group]
            told += zip(answers, advantages_of(rewards), strict=True)
    told = [(trajectory, advantage) for trajectory, advantage in told if trajectory.mask.any()]
    tokens = sum(int(trajectory.mask.sum()) for trajectory, _ in told)
    return [datum_of(trajectory, advantage, tokens) for trajectory, advantage in told]


async def train(opened: rlvr.Opened, *, steps: int, problems: int, seed: int) -> None:
    """Rollouts, advantages, data, update; a line a step, and the share of right answers."""
    loss, backend = GrpoLoss(), opened.backend
    drawn = random.Random(seed)
    train, test = (list(opened.task.problems(split)) for split in ("train", "test"))
    print(f"before: {await right(opened, test, seed)}; {len(test)} test problems")
    for step in range(1, steps + 1):
        begun = time.monotonic()
        policy = await backend.policy()
        chosen = drawn.choices(train, k=problems)
        groups = await judged(opened, policy, chosen, seed=rlvr.seed_of(seed, step))
        rewards = [reward.value for group in groups for _, reward in group]
        data = data_of(groups)
        metrics = await backend.update(data, loss) if data else {}
        reward = f"reward {mean(rewards):.3f}" if rewards else NOTHING
        print(
            f"step {step:>3}  {reward}  "
            f"gradient {metrics.get('grad/norm', 0.0):.2e}  {time.monotonic() - begun:.1f} s",
            flush=True,
        )
    print(f"after:  {await right(opened, test, seed)}; {len(test)} test problems")


async def right(opened: rlvr.Opened, problems: Sequence[rlvr.Problem], seed: int) -> str:
    """Share of right answers of the policy as it is now (pass@1), for people."""
    groups = await judged(opened, await opened.backend.policy(), problems, seed)
    found = [reward.score01 == 1.0 for group in groups for _, reward in group]
    return f"{mean(found):.1%} right" if found else NOTHING


async def main() -> None:
    """Open the parts that the options name, and train."""
    parser = argparse.ArgumentParser(description="GRPO in one file")
    parser.add_argument("--plugin", default="cvdp")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--problems", type=int, default=8, help="a step")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("options", nargs="*", metavar="key=value", help="options of rlvr")
    args = parser.parse_args()
    if args.problems < 1:
        parser.error("--problems: a step takes at least one")
    options = [f"run.seed={args.seed}", "sampler.group_size=8", *args.options]
    async with rlvr.open_policy(args.plugin, options=options) as opened:
        await train(opened, steps=args.steps, problems=args.problems, seed=args.seed)


if __name__ == "__main__":
    asyncio.run(main())
