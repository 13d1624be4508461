"""The line with real parts on a tiny scale: it learns, stops, resumes and reports."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from structlog.testing import capture_logs

from rlvr import (
    BackendError,
    Curriculum,
    Datum,
    Outcome,
    PassRate,
    Problem,
    Reward,
    RewardFn,
    Trajectory,
    VerifierError,
    by_pass_rate,
    by_stages,
    by_weight,
)
from rlvr.assembly.recipe import Recipe
from rlvr.config.core import EvalOptions, ParityOptions, TrainOptions
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.testing.fakes import TinyBackend, ToyReward, ToyTask
from rlvr.training.loop import train
from tests.training.conftest import toy_recipe, watch_of

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")


def recipe(directory: Path, **changes: Any) -> Recipe:
    problems = tuple(ToyTask().problems("train"))
    return toy_recipe(directory, **{"eval_problems": problems, **changes})


@pytest.mark.thorough
def test_the_line_learns(tmp_path: Path) -> None:
    """A seeded toy run goes from chance to nearly always right."""
    plan = recipe(tmp_path, steps=90, eval=EvalOptions(samples=8), parity=ParityOptions())
    watch = watch_of(tmp_path)

    state = asyncio.run(train(plan, RunState(), watch))

    assert state.step == 90
    assert watch.reports[0].pass1 < 0.15
    assert watch.reports[90].pass1 > 0.9
    lines = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert [line["step"] for line in lines] == list(range(1, 91))
    assert all(math.isfinite(v) for line in lines for v in line.values())
    assert max(line["parity/max"] for line in lines) < 1e-5


def sampled(path: Path) -> list[dict[str, Any]]:
    """The lines of a trajectory file without what a verification cost."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**line, "outcome": {**line["outcome"], "cost_s": 0, "cached": 0}} for line in lines]


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path) -> None:
    """Six steps at once, or four, everything made anew, and two more: equal to the bit."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    asyncio.run(train(recipe(whole), RunState(), watch_of(whole)))
    asyncio.run(train(recipe(parts, steps=4), RunState(), watch_of(parts)))

    again = recipe(parts)
    newest = again.checkpointer.list()[-1]
    restored = asyncio.run(again.checkpointer.load(newest, again.backend))
    asyncio.run(train(again, RunState.from_json(restored), watch_of(parts)))

    for step in range(1, 7):
        name = f"trajectories/step-{step:06d}.jsonl"
        assert sampled(whole / name) == sampled(parts / name)
    last = [recipe(d).checkpointer.list()[-1] for d in (whole, parts)]
    assert last[0].step == last[1].step == 6
    assert (last[0].path / "model/tiny.npz").read_bytes() == (
        last[1].path / "model/tiny.npz"
    ).read_bytes()


class ByPassRate(Curriculum):
    """A curriculum by running pass rates."""

    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> list[Problem]:
        return by_pass_rate(problems, count, **facts)


class Same(Curriculum):
    """Always the first problem."""

    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> list[Problem]:
        return [problems[0]] * count


def test_a_problem_twice_in_a_step_is_drawn_with_seeds_of_its_own(tmp_path: Path) -> None:
    """Each trajectory of the step has another one: a group is no copy of another group."""
    plan = recipe(tmp_path, steps=1, curriculum=Same(), train=TrainOptions(problems=3))
    asyncio.run(train(plan, RunState(), watch_of(tmp_path)))

    lines = sampled(tmp_path / "trajectories/step-000001.jsonl")
    assert len({line["seed"] for line in lines}) == len(lines) == 24


class ByStages(Curriculum):
    """A curriculum by letter."""

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, history: Any
    ) -> list[Problem]:
        stages = {p.id: i // 4 for i, p in enumerate(problems)}
        return by_stages(problems, count, stages=stages, ramp_steps=5, seed=seed, step=step)


class ByWeight(Curriculum):
    """A curriculum by weight."""

    def choose(
        self, problems: Sequence[Problem], count: int, *, seed: int, step: int, history: Any
    ) -> list[Problem]:
        weights = {p.id: 1.0 + i for i, p in enumerate(problems)}
        return by_weight(problems, count, weights=weights, seed=seed, step=step)


class ProxyFirst(ToyReward):
    """Three steps by a proxy, which rewards any letter and knows of no right answer."""

    def at_step(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        return AnyLetter() if step < 3 else self


class AnyLetter(RewardFn):
    """The proxy."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        is_letter = trajectory.completion.isalpha()
        return Reward(value=0.5 * is_letter, score01=0.0, is_proxy=True)


class Ordered(ToyTask):
    """The toy task with a curriculum of its own."""

    def __init__(self, curriculum: type[Curriculum]) -> None:
        super().__init__()
        self._curriculum = curriculum

    def curriculum(self) -> Curriculum:
        return self._curriculum()


def with_task(plan: Recipe, task: Any) -> Recipe:
    """The same recipe with another task."""
    return attrs.evolve(plan, task=task)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("order", [ByPassRate, ByStages, ByWeight])
def test_a_run_resumed_under_a_curriculum_is_the_uninterrupted_one(
    tmp_path: Path, order: type[Curriculum]
) -> None:
    """With a choice that depends on all that was seen, and a proxy at first: equal to the bit."""

    def plan(directory: Path, steps: int = 6) -> Recipe:
        train = TrainOptions(problems=5)
        return with_task(
            recipe(directory, steps=steps, reward=ProxyFirst(), train=train), Ordered(order)
        )

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    one = asyncio.run(train(plan(whole), RunState(), watch_of(whole)))
    asyncio.run(train(plan(parts, steps=4), RunState(), watch_of(parts)))

    again = plan(parts)
    restored = asyncio.run(again.checkpointer.load(again.checkpointer.list()[-1], again.backend))
    other = asyncio.run(train(again, RunState.from_json(restored), watch_of(parts)))

    for step in range(1, 7):
        name = f"trajectories/step-{step:06d}.jsonl"
        assert sampled(whole / name) == sampled(parts / name)
    assert one.history == other.history
    plain = tmp_path / "plain"
    asyncio.run(train(recipe(plain, train=TrainOptions(problems=5)), RunState(), watch_of(plain)))
    chosen = [
        [
            line["id"]
            for step in range(1, 7)
            for line in sampled(d / f"trajectories/step-{step:06d}.jsonl")
        ]
        for d in (whole, plain)
    ]
    assert chosen[0] != chosen[1]


def test_proxy_steps_are_counted_and_leave_no_pass_rate(tmp_path: Path) -> None:
    """A proxy's verdicts are no knowledge of how often a problem is solved."""
    plan, watch = recipe(tmp_path, steps=4, reward=ProxyFirst()), watch_of(tmp_path)

    state = asyncio.run(train(plan, RunState(), watch))

    lines = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert [line["verify/proxy"] for line in lines] == [96.0, 96.0, 96.0, 0.0]
    assert {record.step for record in state.history.values()} == {3}
    assert {record.count for record in state.history.values()} == {1}
    assert sampled(tmp_path / "trajectories/step-000001.jsonl")[0]["outcome"]["is_proxy"] is True


def test_an_evaluation_during_proxy_steps_uses_the_full_reward(tmp_path: Path) -> None:
    """What is reported is never the proxy."""
    options = EvalOptions(samples=4, every=1)
    plan, watch = recipe(tmp_path, steps=1, reward=ProxyFirst(), eval=options), watch_of(tmp_path)

    asyncio.run(train(plan, RunState(), watch))

    outcomes = [line["outcome"] for line in sampled(tmp_path / "trajectories/eval-000001.jsonl")]
    assert not any("is_proxy" in outcome for outcome in outcomes)


class Crashing(RewardFn):
    """A verifier that cannot run for half of what it is shown."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        if trajectory.seed % 2:
            raise VerifierError("the daemon is gone")
        return await ToyReward()(problem, trajectory)


def test_too_many_failures_stop_the_line_before_any_update(tmp_path: Path) -> None:
    """Infrastructure failure is never a reward: no step is counted, no weight moves."""
    backend = TinyBackend(seed=3)
    plan, watch = recipe(tmp_path, reward=Crashing(), backend=backend), watch_of(tmp_path)

    with pytest.raises(VerifierError, match="the daemon is gone"):
        asyncio.run(train(plan, RunState(), watch))

    assert watch.state.step == 0
    assert asyncio.run(backend.policy()).version == 0


class Drifting(TinyBackend):
    """A trainer whose weights never reach the sampler."""

    async def policy(self) -> Any:
        if not hasattr(self, "_first"):
            self._first = await super().policy()
        return self._first


def test_the_canary_stops_a_sampler_that_is_not_the_policy(tmp_path: Path) -> None:
    """The field's most expensive bug ends the run as soon as weights have moved."""
    parity = ParityOptions(threshold=1e-5)
    plan = recipe(tmp_path, backend=Drifting(seed=3, lr=60.0), parity=parity, steps=9)
    watch = watch_of(tmp_path)

    with pytest.raises(BackendError, match="the sampler is not the policy"):
        asyncio.run(train(plan, RunState(), watch))

    assert 1 <= watch.state.step < 4


def test_a_failing_observer_is_logged_and_the_run_goes_on(tmp_path: Path) -> None:
    """Watching never decides."""
    from rlvr import hookimpl

    class Broken:
        @hookimpl
        def rlvr_step_finished(self, step: int) -> None:
            raise RuntimeError("no disk for my plots")

    plan, watch = recipe(tmp_path, steps=2), watch_of(tmp_path)
    watch.host.register_observer(Broken(), "broken")

    assert asyncio.run(train(plan, RunState(), watch)).step == 2


def test_cancelling_during_an_update_keeps_state_and_weights_together(tmp_path: Path) -> None:
    """Ctrl-C in the middle of an update: the step is finished, counted, then the line stops."""

    class Slow(TinyBackend):
        async def update(self, data: Sequence[Datum], loss: Any) -> dict[str, float]:
            asyncio.get_running_loop().call_later(0.01, running.cancel)
            await asyncio.sleep(0.05)
            return await super().update(data, loss)

    backend = Slow(seed=3)
    plan, watch = recipe(tmp_path, backend=backend), watch_of(tmp_path)
    running: asyncio.Task[RunState]

    async def start() -> None:
        nonlocal running
        running = asyncio.ensure_future(train(plan, RunState(), watch))
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(start())

    assert watch.state.step == 1
    assert asyncio.run(backend.policy()).version == 1


def test_the_line_trains_over_several_turns(tmp_path: Path) -> None:
    """A two-turn episode is one datum: both of the policy's turns are trained, no other token."""
    task = ToyTask(turns=2)
    plan = recipe(tmp_path, steps=2)
    plan = attrs.evolve(plan, task=task, problems=tuple(task.problems("train")))
    watch = watch_of(tmp_path)

    asyncio.run(train(plan, RunState(), watch))

    (line, *_) = RunDir(tmp_path).read_lines("trajectories/step-000001.jsonl")
    assert [s["author"] for s in line["segments"]] == ["prompt", "policy", "env", "policy"]
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert [m["sampler/length_mean"] for m in metrics] == [2.0, 2.0]
    assert max(m["parity/max"] for m in metrics) < 1e-5


@pytest.mark.parametrize(
    ("spread", "has_teachers", "found"),
    [
        ([0.0] * 10, False, "every advantage was zero in all 10 steps"),
        ([0.5] + [0.0] * 10, False, "every advantage was zero in 10 steps in a row, and 25%"),
        ([0.0, math.nan] * 5, False, "every advantage or the gradient was zero in all 10 steps"),
        ([0.0, 0.5] * 10, False, ""),
        ([0.0] * 10, True, ""),
    ],
)
def test_weights_that_no_reward_moved_are_not_taken_for_learning(
    tmp_path: Path, spread: list[float], has_teachers: bool, found: str
) -> None:
    """A term for the entropy gives a gradient where all rewards are alike; so do teachers."""
    watch = watch_of(tmp_path)
    with capture_logs() as told:
        for step, std in enumerate(spread, 1):
            metrics = {"grad/norm": 1.0, "reward/pass": 0.25, "advantage/mean": 0.0}
            metrics |= {"grad/norm": 0.0} if math.isnan(std) else {"advantage/std": std}
            state = attrs.evolve(watch.state, step=step)
            watch.step_finished(state, metrics, has_teachers=has_teachers)
    said = [line["found"] for line in told if line["log_level"] == "warning"]
    assert [text[: len(found)] for text in said] == [found] * bool(found), said


@pytest.mark.parametrize(
    ("gradients", "passed", "event", "steps"),
    [
        ([1.0] + [0.0] * 10, 0.25, "learning_has_stopped", [11]),
        ([1.0] + [0.0] * 15, 0.25, "learning_has_stopped", [11, 16]),
        ([1.0] + [0.0] * 15 + [1.0], 0.25, "learning_has_stopped", [11]),
        ([1.0] + [0.0] * 10, 1.0, "", []),
        ([1.0] + [0.0] * 9, 0.25, "", []),
        ([0.0, 1.0] * 10, 0.25, "", []),
        ([0.0, 0.0], 0.25, "nothing_was_learnt", [2]),
        ([math.nan, math.nan], 0.25, "", []),
        ([0.0] * 20 + [1.0], 0.25, "nothing_was_learnt", [10]),
    ],
)
def test_a_run_that_stopped_learning_says_so(
    tmp_path: Path, gradients: list[float], passed: float, event: str, steps: list[int]
) -> None:
    """
    When it happens, once, and again where the run ends so.

    Answers that have become alike teach nothing more; where all are right nothing is missing.
    """
    watch = watch_of(tmp_path)
    with capture_logs() as told:
        for step, norm in enumerate(gradients, 1):
            metrics = {"grad/norm": norm, "reward/pass": passed}
            if math.isnan(norm):  # the backend skipped the update, and said why
                metrics = {"update/skipped": 1.0, "reward/pass": passed}
            watch.step_finished(attrs.evolve(watch.state, step=step), metrics)
        watch.say_if_idle(is_over=True)
    said = [line for line in told if line["log_level"] == "warning"]
    assert [line["event"] for line in said] == [event] * len(steps)
    assert [line["step"] for line in said] == steps
