"""The two halves of the line: strictly on-policy, or overlapping within bounds."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
import numpy as np
import pytest

from rlvr import (
    BackendError,
    BuildContext,
    Completion,
    Datum,
    GenerateRequest,
    Needs,
    Outcome,
    PrerequisiteError,
    Problem,
    SamplingParams,
    ScoredGroup,
    Trajectory,
    epochs,
    hookimpl,
)
from rlvr.assembly.recipe import Recipe
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.config.core import CheckpointOptions, EvalOptions, ParityOptions, TrainOptions
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.rollouts.group import GroupSampler, sample_groups
from rlvr.seeds import seed_of
from rlvr.testing.fakes import CentredAdvantage, ReinforceLoss, TinyBackend, ToyReward, ToyTask
from rlvr.testing.fakes.tiny import TinyPolicy
from rlvr.testing.fakes.toy import ToyEpisode
from rlvr.training import minibatches, stages
from rlvr.training.loop import train
from tests.training.conftest import toy_recipe, watch_of

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")

PROBLEMS = 6


def recipe(directory: Path, **changes: Any) -> Recipe:
    own = {
        "params": SamplingParams(max_tokens=1, group_size=4),
        "steps": 5,
        "train": TrainOptions(problems=PROBLEMS),
        "checkpoint": CheckpointOptions(every=1),
    }
    return toy_recipe(directory, **{**own, **changes})


def go(plan: Recipe, directory: Path) -> tuple[RunState, list[dict[str, Any]]]:
    """Run it; the last state and the lines of metrics."""
    watch = watch_of(directory)
    watch.status = plan.runner.status
    state = asyncio.run(train(plan, RunState(), watch))
    return state, RunDir(directory).read_lines("metrics.jsonl")


def weights(backend: Any, directory: Path) -> bytes:
    """What the backend saves."""
    directory.mkdir(parents=True)
    asyncio.run(backend.save(directory))
    return b"".join(path.read_bytes() for path in sorted(directory.iterdir()))


async def synchronous(plan: Recipe) -> None:
    """The line without any pipeline: one stage after the other, written out."""
    for step in range(plan.steps):
        problems = epochs(plan.problems, plan.train.problems, seed=plan.seed, step=step)
        policy = await plan.backend.policy()
        groups = []
        for ticket, problem in enumerate(problems, start=step * plan.train.problems):
            seed = seed_of(plan.seed, "sample", ticket)
            params = attrs.evolve(plan.params, seed=seed)
            groups += await sample_groups(plan.sampler, policy, plan.task, [problem], params)
        scored = await plan.runner.groups(groups)
        data = stages.collate(scored, plan.advantage(scored), plan.task)
        parts = minibatches.updates(
            data,
            passes=plan.train.passes,
            minibatches=plan.train.minibatches,
            aggregation=plan.train.aggregation,
            max_tokens=plan.params.max_tokens,
            seed=seed_of(plan.seed, "updates", step + 1),
        )
        for part in parts:
            await plan.backend.update(part, plan.loss)


def test_staleness_0_is_the_synchronous_run_to_the_bit(tmp_path: Path) -> None:
    """The weights after five steps, two updates each, are those of the plain loop."""
    options = TrainOptions(problems=PROBLEMS, minibatches=2)
    plain = recipe(tmp_path / "a", train=options)
    asyncio.run(synchronous(plain))
    piped = recipe(tmp_path / "b", train=options, max_staleness=0)
    go(piped, tmp_path / "b")
    found = [weights(p.backend, tmp_path / str(i)) for i, p in enumerate((plain, piped))]
    assert found[0] == found[1]


class Noting(GroupSampler):
    """Notes problem and seed of every trajectory."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, int]] = []

    async def sample(self, *given: Any, **more: Any) -> AsyncGenerator[Trajectory]:
        async for trajectory in super().sample(*given, **more):
            self.seen.append((trajectory.problem_id, trajectory.seed))
            yield trajectory


@pytest.mark.parametrize("staleness", [0, 1])
def test_every_rollout_of_a_run_has_draws_of_its_own(tmp_path: Path, staleness: int) -> None:
    """Three steps meet each of two problems nine times, and two runs draw the same."""
    few = tuple(ToyTask().problems("train"))[:2]
    seen = []
    for name in ("a", "b"):
        sampler = Noting()
        plan = recipe(
            tmp_path / name, sampler=sampler, problems=few, steps=3, max_staleness=staleness
        )
        go(plan, tmp_path / name)
        assert len({seed for _, seed in sampler.seen}) == len(sampler.seen) == 3 * PROBLEMS * 4
        seen.append(sorted(sampler.seen))
    assert seen[0] == seen[1]


class Timed(ToyReward):
    """Verdicts after a time; the first of a run takes `first` seconds."""

    def __init__(self, each: float, first: float = 0.0) -> None:
        self.each, self.first = each, first

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        return None

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        wait, self.first = max(self.each, self.first), 0.0
        await asyncio.sleep(wait)
        return await super().__call__(problem, trajectory)


class Training(TinyBackend):
    """Says when it trains; an update takes `seconds`."""

    seconds = 0.05

    async def update(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
        await asyncio.sleep(self.seconds)
        return await super().update(data, loss)


def test_training_and_verification_overlap(tmp_path: Path) -> None:
    """With staleness 1 the trace shows both at the same time; with 0 never."""
    for staleness, is_overlapping in ((0, False), (1, True)):
        directory = tmp_path / str(staleness)
        plan = recipe(
            directory, reward=Timed(0.02), backend=Training(seed=3), max_staleness=staleness
        )
        _, lines = go(plan, directory)
        spans = RunDir(directory).read_lines("trace.jsonl")
        trained = [(s["begin_s"], s["end_s"]) for s in spans if s["lane"] == "train"]
        verified = [s for s in spans if s["lane"].startswith("verification")]
        both = [
            v
            for v in verified
            for begin, end in trained
            if v["begin_s"] < end - 0.001 and v["end_s"] > begin + 0.001
        ]
        assert bool(both) is is_overlapping
        assert len(lines) == 5
        if staleness:
            assert max(line["pipeline/staleness/max"] for line in lines) == 1.0
        assert max(line["parity/max"] for line in lines) < 1e-5


def test_one_slow_verification_stalls_no_batch(tmp_path: Path) -> None:
    """Steps go on while one verdict takes long; its group is trained on when it has come."""
    plan = recipe(tmp_path, reward=Timed(0.0, first=1.0), max_staleness=3, steps=4)
    ended: list[float] = []

    class Noting:
        @hookimpl
        def rlvr_step_finished(self, step: int) -> None:
            ended.append(time.monotonic())

    watch = watch_of(tmp_path)
    watch.host.register_observer(Noting(), "noting")
    begun = time.monotonic()
    asyncio.run(train(plan, RunState(), watch))
    assert ended[2] - begun < 0.9, "three steps have waited for one verdict"
    met = [
        RunDir(tmp_path).read_lines(f"trajectories/step-{step:06d}.jsonl") for step in range(1, 5)
    ]
    assert [len(lines) for lines in met] == [PROBLEMS * 4] * 4


class Picky(CentredAdvantage):
    """Learns from groups that are not all alike, and asks for others in their place."""

    refill_limit = 3

    def __init__(self) -> None:
        self.asked = 0

    def keep(self, group: ScoredGroup) -> bool:
        self.asked += 1
        return len({r.value for r in group.rewards}) > 1


def test_groups_that_teach_nothing_are_replaced(tmp_path: Path) -> None:
    """Each step trains on as many informative groups as asked for, or on what refills gave."""
    plan = recipe(tmp_path, advantage=Picky(), steps=4)
    state, lines = go(plan, tmp_path)
    met = [
        RunDir(tmp_path).read_lines(f"trajectories/step-{step:06d}.jsonl") for step in range(1, 5)
    ]
    assert sum(line["pipeline/refilled"] for line in lines) > 0
    for line, trajectories in zip(lines, met, strict=True):
        groups = len(trajectories) // 4
        assert line["pipeline/refilled"] == groups - PROBLEMS
        assert line["pipeline/kept"] == PROBLEMS or groups == 4 * PROBLEMS
        assert line["data/trajectories"] == 4 * line["pipeline/kept"]
    seen = [t["id"] for trajectories in met for t in trajectories[::4]]
    wanted: list[str] = []
    while len(wanted) < len(seen):
        batch = epochs(plan.problems, PROBLEMS, seed=1, step=len(wanted) // PROBLEMS)
        wanted += [p.id for p in batch]
    assert sorted(seen) == sorted(wanted[: len(seen)]), "a problem was skipped"
    assert len(state.problem_stream.waiting) == -len(seen) % PROBLEMS


def test_a_resumed_run_with_refills_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """The problem stream is part of the state: seeds and problems go on where they stopped."""
    whole = recipe(tmp_path / "whole", advantage=Picky(), steps=4)
    go(whole, tmp_path / "whole")
    half = recipe(tmp_path / "half", advantage=Picky(), steps=2)
    go(half, tmp_path / "half")
    again = recipe(tmp_path / "half", advantage=Picky(), steps=4)

    async def resume() -> None:
        newest = again.checkpointer.list()[-1]
        saved = await again.checkpointer.load(newest, again.backend)
        await train(again, RunState.from_json(saved), watch_of(tmp_path / "half"))

    asyncio.run(resume())
    found = [weights(p.backend, tmp_path / str(i)) for i, p in enumerate((whole, again))]
    assert found[0] == found[1]


def test_a_pipelined_run_that_was_interrupted_skips_no_problem(tmp_path: Path) -> None:
    """What was under way at the checkpoint comes again first."""
    plan = recipe(tmp_path, reward=Timed(0.003), max_staleness=2, steps=3)
    watch = watch_of(tmp_path)

    async def interrupted() -> None:
        running = asyncio.ensure_future(train(plan, RunState(), watch))
        while watch.state.step < 1:
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(interrupted())
    problem_stream = watch.state.problem_stream
    drawn = [
        p.id
        for batch in range(problem_stream.drawn)
        for p in epochs(plan.problems, PROBLEMS, seed=1, step=batch)
    ]
    trained = [
        t["id"]
        for step in range(1, watch.state.step + 1)
        for t in RunDir(tmp_path).read_lines(f"trajectories/step-{step:06d}.jsonl")[::4]
    ]
    assert sorted([*trained, *problem_stream.waiting]) == sorted(drawn)


class Refining(CentredAdvantage):
    """Halves every token's advantage and asks for the trainer's own logprobs."""

    needs = Needs(annotations={"policy"})

    def per_token(self, data: Sequence[Datum]) -> list[Datum]:
        for datum in data:
            own = datum.annotations["policy"][datum.mask]
            assert np.allclose(own, datum.logprobs[datum.mask], atol=1e-5)
        return [attrs.evolve(d, advantages=d.advantages / 2) for d in data]


def test_an_advantage_may_have_the_last_word_token_by_token(tmp_path: Path) -> None:
    """Its annotations are there, and what it gives is trained on."""
    _, plain = go(recipe(tmp_path / "a", steps=1), tmp_path / "a")
    _, half = go(recipe(tmp_path / "b", steps=1, advantage=Refining()), tmp_path / "b")
    assert half[0]["advantage/std"] == pytest.approx(plain[0]["advantage/std"] / 2, rel=1e-4)
    assert half[0]["loss"] == pytest.approx(plain[0]["loss"] / 2, rel=1e-4)


class Growing(ReinforceLoss):
    """A loss whose weight doubles each step, and which says so."""

    def __init__(self, weight: float = 1.0) -> None:
        self.weight = weight

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> tuple[Any, dict[str, float]]:
        value, _ = super().__call__(data, logprobs, outputs)
        return self.weight * value, {"weight/max": self.weight}

    def adapted(
        self, memory: Mapping[str, float], metrics: Mapping[str, float]
    ) -> Mapping[str, float]:
        return {"weight": 2 * metrics["weight/max"]}

    def with_memory(self, memory: Mapping[str, float]) -> Self:
        return type(self)(memory.get("weight", 1.0))

    def warnings(self, metrics: Mapping[str, float]) -> list[str]:
        return ["it is four"] if metrics["weight/max"] == 4.0 else []


def test_an_adaptive_part_remembers_over_steps_and_a_resume(tmp_path: Path) -> None:
    """Its memory is in the state; what it warns of is logged."""
    plan = recipe(tmp_path, loss=Growing(), steps=2)
    state, lines = go(plan, tmp_path)
    assert [line["weight/max"] for line in lines] == [1.0, 2.0]
    again = RunState.from_json(state.to_json())
    assert again.memory == {"loss": {"weight": 4.0}}
    watch = watch_of(tmp_path)
    asyncio.run(train(attrs.evolve(plan, steps=3), again, watch))
    assert RunDir(tmp_path).read_lines("metrics.jsonl")[-1]["weight/max"] == 4.0


class Gone(Timed):
    """The machine goes away when training is judged; evaluations take their time."""

    judged = 0

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if problem.split == "test":
            await asyncio.sleep(0.05)
        else:
            self.judged += 1
            if self.judged > 30:
                raise PrerequisiteError("the daemon went away")
        return await super().__call__(problem, trajectory)


def test_a_failure_in_the_background_does_not_end_an_evaluation_as_an_interruption(
    tmp_path: Path,
) -> None:
    """What an evaluation began goes on; the failure is raised as itself."""
    held_out = [attrs.evolve(p, split="test") for p in ToyTask().problems("train")]
    plan = recipe(
        tmp_path,
        reward=Gone(0.0),
        max_staleness=1,
        eval=EvalOptions(samples=1, every=1),
        eval_problems=tuple(held_out),
    )
    with pytest.raises(PrerequisiteError, match="the daemon went away"):
        asyncio.run(train(plan, RunState(), watch_of(tmp_path)))


class Saving(FileCheckpointer):
    """Is interrupted while it writes."""

    running: asyncio.Task[RunState]

    async def save(self, step: int, state: Mapping[str, Any], backend: Any) -> Any:
        if step == 2:
            asyncio.get_running_loop().call_soon(self.running.cancel)
            await asyncio.sleep(0.02)
        return await super().save(step, state, backend)


def test_an_interruption_during_a_checkpoint_is_obeyed_after_it(tmp_path: Path) -> None:
    """The checkpoint is whole, and no further step is trained."""
    keeper = Saving(FileCheckpointOptions(keep=9), BuildContext(run_dir=tmp_path))
    plan, watch = recipe(tmp_path, checkpointer=keeper), watch_of(tmp_path)

    async def main() -> None:
        keeper.running = asyncio.ensure_future(train(plan, RunState(), watch))
        with pytest.raises(asyncio.CancelledError):
            await keeper.running

    asyncio.run(main())
    assert watch.state.step == 2
    assert keeper.list()[-1].step == 2


class Breaking(TinyBackend):
    """Its second sampling fails."""

    calls = 0

    async def policy(self) -> Any:
        self.calls += 1
        if self.calls == 2:
            raise BackendError("the sampler is gone")
        return await super().policy()


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_failure_of_the_sampling_side_ends_the_run(tmp_path: Path, staleness: int) -> None:
    """What breaks in the background is raised in front, and nothing stays running."""
    plan = recipe(
        tmp_path,
        backend=Breaking(seed=3),
        max_staleness=staleness,
        parity=ParityOptions(threshold=None),
    )

    async def main() -> set[Any]:
        with pytest.raises(BackendError, match="the sampler is gone"):
            await train(plan, RunState(), watch_of(tmp_path))
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert asyncio.run(main()) == set()


class Slow(ToyEpisode):
    """An episode of three turns whose tool takes `seconds` a turn."""

    def __init__(self, problem: Problem, seconds: float) -> None:
        super().__init__(problem)
        self._seconds = seconds

    async def take(self, completion: str) -> None:
        await asyncio.sleep(self._seconds)
        await super().take(completion)


class Slowly(ToyTask):
    """The toy task, each episode as slow as `draw` says when it is opened."""

    def __init__(self, draw: Callable[[], float]) -> None:
        super().__init__(turns=3)
        self._draw = draw

    def episode(self, problem: Problem) -> Slow:
        return Slow(problem, self._draw())


def test_runs_with_random_delays_in_take_are_equal_to_the_bit(tmp_path: Path) -> None:
    """Three turns, two updates a step, refills, slow tools and verdicts: the seed decides."""
    found = set()
    for number in range(3):
        rng = random.Random(number)
        task = Slowly(lambda rng=rng: rng.random() / 50)
        plan = recipe(
            tmp_path / str(number),
            task=task,
            problems=tuple(task.problems("train")),
            reward=Delayed(rng),
            advantage=Picky(),
            steps=4,
            train=TrainOptions(problems=PROBLEMS, minibatches=2),
        )
        _, lines = go(plan, tmp_path / str(number))
        assert sum(line["pipeline/refilled"] for line in lines) > 0
        found.add(weights(plan.backend, tmp_path / f"weights-{number}"))
    assert len(found) == 1


class Delayed(ToyReward):
    """A reward that takes a random time."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self._rng = rng

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        await asyncio.sleep(self._rng.random() / 50)
        return await super().__call__(problem, trajectory)


def test_with_staleness_a_slow_rollout_holds_up_no_other_step(tmp_path: Path) -> None:
    """Steps go on while one rollout's tool does not answer, as far as the queue has groups."""
    held: list[Slow] = []
    steps_then: list[int] = []

    class Holding(Slowly):
        def episode(self, problem: Problem) -> Slow:
            episode = super().episode(problem)
            if not held:
                held.append(episode)
                episode._seconds = 0.3
            return episode

    class Telling(ToyReward):
        async def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
            if held and held[0]._problem is problem and not steps_then and slow_is_done():
                steps_then.append(plan.runner.status.step)
            return await super().__call__(problem, trajectory)

    def slow_is_done() -> bool:
        return held[0].prompt() is None

    task = Holding(lambda: 0.0)
    plan = recipe(
        tmp_path,
        task=task,
        problems=tuple(task.problems("train")),
        reward=Telling(),
        max_staleness=3,
        steps=4,
        train=TrainOptions(problems=2),
        checkpoint=CheckpointOptions(every=0),
    )
    go(plan, tmp_path)
    assert steps_then
    assert steps_then[0] >= 3


class InPlace(TinyBackend):
    """Its policies draw from the one table that it trains, and refuse once that has changed."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(seed=3, lr=60.0)
        self.rng, self.drawing, self.met = rng, 0, 0

    async def policy(self) -> Strict:
        return Strict(self)

    async def update(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
        self.met += self.drawing
        await asyncio.sleep(self.rng.random() / 50)
        return await super().update(data, loss)


class Strict(TinyPolicy):
    """A policy of exactly these weights."""

    is_strict = True

    def __init__(self, backend: InPlace) -> None:
        super().__init__(backend.table, backend._version, backend.tokenizer)
        self._backend = backend

    async def generate(self, request: GenerateRequest) -> Completion:
        self._backend.drawing += 1
        try:
            await asyncio.sleep(self._backend.rng.random() / 50)
            if self._backend._version != self.version:
                raise BackendError(f"policy version {self.version} is stale")
            return await super().generate(request)
        finally:
            self._backend.drawing -= 1


def test_an_update_waits_for_the_requests_of_a_strict_policy(tmp_path: Path) -> None:
    """Some turns have an update between them, whatever the delays are."""
    went_on = [_strict(tmp_path / str(seed), random.Random(seed)) for seed in range(3)]
    assert any(went_on)


def _strict(folder: Path, rng: random.Random) -> bool:
    """Random delays in drawing, tools, verdicts and updates: none meets another, all steps end."""
    task = Slowly(lambda: rng.random() / 50)
    drawn: list[Trajectory] = []

    class Keeping(GroupSampler):
        async def sample(self, *given: Any, **more: Any) -> AsyncGenerator[Trajectory]:
            async for trajectory in super().sample(*given, **more):
                drawn.append(trajectory)
                yield trajectory

    backend = InPlace(rng)
    plan = recipe(
        folder,
        task=task,
        problems=tuple(task.problems("train")),
        backend=backend,
        sampler=Keeping(),
        reward=Delayed(rng),
        max_staleness=2,
        train=TrainOptions(problems=PROBLEMS, minibatches=2),
    )
    state, _ = go(plan, folder)

    assert state.step == 5
    assert backend.met == 0
    assert all(t.finish != "error" for t in drawn)
    assert all(list(t.policy_versions) == sorted(set(t.policy_versions)) for t in drawn)
    return any(t.policy_versions for t in drawn)
