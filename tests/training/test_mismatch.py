"""Train-inference mismatch: what the check measures and looks at, and when it stops the run."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from rlvr import (
    BackendError,
    Capabilities,
    Datum,
    Group,
    Policy,
    Problem,
    SamplingParams,
    Segment,
    Trajectory,
)
from rlvr.testing.fakes import TinyBackend, ToyTask
from rlvr.training.mismatch import Parity, check_parity, probe_again
from rlvr.training.sampling_policy import SamplingPolicy

PROBLEM = Problem(id="p", prompt=())


def trajectory() -> Trajectory:
    return Trajectory(
        problem_id="p",
        segments=[
            Segment(author="prompt", tokens=[1, 2]),
            Segment(author="policy", tokens=[5, 6], logprobs=[-1.0, -2.0]),
        ],
    )


class Trainer:
    capabilities = Capabilities()

    """Scores what it is shown with an offset from the sampler's logprobs."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[Any]:
        return [d.logprobs + self.offset * d.mask for d in data]


def test_the_canary_measures_and_refuses() -> None:
    """A sampler that is not the policy stops the run (exit 6); one that is does not."""
    groups = [Group(problem=PROBLEM, trajectories=[trajectory()])]

    def check(offset: float, threshold: float = 0.01) -> Parity:
        backend: Any = Trainer(offset)
        found = asyncio.run(check_parity(backend, groups, probe=4, threshold=threshold))
        assert found is not None
        return found

    found = check(0.001)
    assert found.gap == pytest.approx(0.001, rel=1e-3)
    assert found.ratio == pytest.approx(math.exp(0.001))
    assert found.kl == pytest.approx(math.exp(0.001) - 1 - 0.001, rel=1e-2)
    assert found.clipped == 0.0
    assert check(math.log(2.5), threshold=9.0).clipped == 1.0
    with pytest.raises(BackendError, match="the sampler is not the policy"):
        check(0.02)
    with pytest.raises(BackendError, match="inf nats"):
        check(float("nan"))


def test_where_nothing_was_sampled_nothing_is_claimed() -> None:
    """No trajectory with a token of the policy: no number, rather than a good one."""
    backend: Any = Trainer(1.0)
    assert asyncio.run(check_parity(backend, [], probe=4, threshold=0.01)) is None


def test_the_canary_probes_one_trajectory_a_group_first() -> None:
    """Four probes over two groups of three: two each, not three of one."""
    seen: list[str] = []

    class Recorder(Trainer):
        async def logprobs(self, data: Sequence[Datum], which: str) -> list[Any]:
            seen.extend(d.problem_id for d in data)
            return await super().logprobs(data, which)

    groups = [
        Group(
            problem=PROBLEM,
            trajectories=[attrs.evolve(trajectory(), problem_id=name)] * 3,
        )
        for name in ("a", "b")
    ]
    backend: Any = Recorder(0.0)
    asyncio.run(check_parity(backend, groups, probe=4, threshold=0.01))

    assert sorted(seen) == ["a", "a", "b", "b"]


def test_a_probe_of_its_own_is_drawn_from_the_weights_of_now() -> None:
    """Where weights have moved on since the groups, new completions are compared, and agree."""
    backend, task = TinyBackend(seed=3), ToyTask()
    params = SamplingParams(max_tokens=3, group_size=2)

    async def main() -> Parity | None:
        policy = await backend.policy()
        problems = list(task.problems("train"))[:3]
        groups = [
            Group(
                problem=p,
                trajectories=[
                    Trajectory(
                        problem_id=p.id,
                        segments=[
                            Segment(author="prompt", tokens=policy.tokenizer.render(p.prompt)),
                            Segment(author="policy", tokens=[1], logprobs=[-99.0]),
                        ],
                    )
                ],
            )
            for p in problems
        ]
        probed = await probe_again(policy, groups, 2, params)
        assert [g.problem.id for g in probed] == [p.id for p in problems[:2]]
        assert all(1 <= int(t.mask.sum()) <= 3 for g in probed for t in g.trajectories)
        return await check_parity(backend, probed, probe=2, threshold=1e-4)

    found = asyncio.run(main())
    assert found is not None
    assert found.gap < 1e-5


def test_the_sampler_scores_before_the_trainer() -> None:
    """A sampler in the trainer's memory then gives way once a step, not twice."""
    turns: list[str] = []
    inner = TinyBackend()

    class Watched(Trainer):
        policy = staticmethod(inner.policy)

        async def logprobs(self, data: Sequence[Datum], which: str) -> list[Any]:
            turns.append("trainer")
            return await super().logprobs(data, which)

    class Scoring(Policy):
        draws_from_policy, exports_weights = True, False
        not_a_part_method = ("exports_weights",)  # it is the sampler, too

        async def generate(self, request: Any) -> Any:
            raise NotImplementedError

        async def drawn_by(self, policy: Any) -> Any:
            return self

        async def score(self, data: Sequence[Datum]) -> list[Any]:
            turns.append("sampler")
            return [d.logprobs for d in data]

    @asynccontextmanager
    async def updating() -> AsyncIterator[None]:
        yield

    long = attrs.evolve(
        trajectory(),
        segments=[
            Segment(author="prompt", tokens=[1, 2]),
            Segment(author="policy", tokens=[5] * 40, logprobs=[-1.0] * 40),
        ],
    )
    recipe: Any = SimpleNamespace(
        parity=SimpleNamespace(threshold=1.0), backend=Watched(0.0), sampler=Scoring()
    )
    queue: Any = SimpleNamespace(updates=0)

    async def main() -> None:
        probes = SamplingPolicy(recipe=recipe, queue=queue)
        for queue.updates in range(3):
            queue.updating = updating()
            groups = [Group(problem=PROBLEM, trajectories=[long])]
            await probes.probe(groups, SamplingParams(), queue.updates)
            assert probes.probed == queue.updates

    asyncio.run(main())
    assert turns == ["sampler", "trainer", "trainer"] * 3
