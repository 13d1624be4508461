"""Recorded trajectories: distilled from, appraised on held-out ones, the best weights kept."""

from __future__ import annotations

import asyncio
import copy
import gc
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import (
    Advantage,
    BuildContext,
    Capabilities,
    ConfigError,
    Datum,
    DistributionRequest,
    Loss,
    Needs,
    PartError,
    Problem,
    Reward,
    RewardFn,
    SamplingParams,
    Trajectory,
)
from rlvr.assembly.compatibility import check_eval_loss, check_is_judged
from rlvr.assembly.recipe import Recipe
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.config.core import CheckpointOptions, EvalOptions, TrainOptions
from rlvr.records.run_directory import RunDir
from rlvr.records.run_state import RunState
from rlvr.rollouts.group import GroupSampler
from rlvr.rollouts.references import ReferenceSampler
from rlvr.testing.backend_losses import head_logits, log_softmax
from rlvr.testing.fakes import TinyBackend, TinyTeacher, ToyReward, ToyTask
from rlvr.training.best_checkpoint import best_step
from rlvr.training.eval_loss import held_out_loss
from rlvr.training.loop import train
from rlvr.verification.runner import VerificationRunner
from tests.training.conftest import toy_recipe, watch_of

torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")


class Diary(ToyTask):
    """Answers exist already; the task knows a number of each of their tokens."""

    is_offline = True

    def annotate(self, problem: Problem, trajectory: Trajectory) -> Mapping[str, Any]:
        return {"place": np.arange(len(trajectory.tokens)) * trajectory.mask}


class Always(RewardFn):
    """The reward of what is learnt from as it is."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        return Reward(value=1.0, score01=1.0)


class One(Advantage):
    """Every trajectory counts the same."""

    def __call__(self, groups: Sequence[Any]) -> list[list[float]]:
        return [[1.0] * len(group.trajectories) for group in groups]


class Likeness(Loss):
    """Cross-entropy of the student with the whole distribution of its teacher."""

    importance_weighted = False
    needs = Needs(
        distributions={"teacher": DistributionRequest(k=0)},
        outputs={"hidden", "head"},
        logprobs=False,
    )

    def __init__(self) -> None:
        self.seen: list[int] = []

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        self.seen.append(len(data))
        return [
            attrs.evolve(d, annotations={**d.annotations, "double": 2.0 * d.mask}) for d in data
        ]

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        (head,), loss, largest = outputs["head"], 0.0, 0.0
        for datum, hidden in zip(data, outputs["hidden"], strict=True):
            assert datum.annotations["double"].tolist() == (2.0 * datum.mask).tolist()
            assert datum.annotations["place"].max() > 0
            told, rows = datum.distributions["teacher"], log_softmax(head_logits(head, hidden))
            own = rows.gather(1, torch.tensor(told.ids).long())
            teacher = torch.tensor(np.exp(told.logprobs.astype(float)))
            each = -(teacher * own).sum(1)
            loss = loss + torch.tensor(datum.weights[datum.mask]).to(each) @ each
            largest = max(largest, float(each.detach().max()))
        return loss, {"rows": float(sum(d.mask.sum() for d in data)), "worst/max": largest}


def recipe(directory: Path, **changes: Any) -> Recipe:
    keep, context = FileCheckpointOptions(keep=1), BuildContext(run_dir=directory)
    own: dict[str, Any] = {
        "task": Diary(),
        "reward": Always(),
        "sampler": ReferenceSampler(None, BuildContext()),
        "params": SamplingParams(max_tokens=4),
        "advantage": One(),
        "loss": Likeness(),
        "checkpointer": FileCheckpointer(keep, context),
        "eval_problems": tuple(Diary().problems("test")),
        "teachers": {"teacher": TinyTeacher(TinyBackend(seed=9))},
        "steps": 4,
        "train": TrainOptions(problems=5),
        "eval": EvalOptions(samples=1, every=1),
        "checkpoint": CheckpointOptions(every=0),
    }
    return toy_recipe(directory, **{**own, **changes})


def test_what_they_are() -> None:
    """The abilities are told by shape, and a task may say no."""
    assert Diary().is_offline
    assert not ToyTask().is_offline
    assert TinyBackend().capabilities.eval_loss

    class No(Diary):
        is_offline = False

    assert not No().is_offline


def test_replayed_trajectories_are_not_written_out_again(tmp_path: Path) -> None:
    """Neither at a step nor at an evaluation; what the policy itself samples is."""
    replayed = recipe(tmp_path / "a", steps=2)
    watch = watch_of(tmp_path / "a")
    asyncio.run(train(replayed, RunState(), watch))
    lines = [
        line
        for step in (1, 2)
        for line in watch.directory.read_lines(f"trajectories/step-{step:06d}.jsonl")
    ]
    assert len(lines) == 10
    assert not any("segments" in line for line in lines)
    assert len({line["recorded"]["digest"] for line in lines}) > 1
    assert not [p for p in watch.directory.trajectory_files() if p.name.startswith("eval-")]

    sampled = recipe(tmp_path / "b", steps=1, sampler=GroupSampler(), eval_problems=())
    assert (replayed.replays, sampled.replays) == (True, False)


def test_held_out_trajectories_are_appraised_as_one_update(tmp_path: Path) -> None:
    """
    In parts or at once: the mean over all tokens, by hand from the tables; no weight moves.

    The twelve problems of the split come in parts of five, five and two.
    """
    plan = recipe(tmp_path)
    before = plan.backend.table  # type: ignore[attr-defined]
    report, scored = asyncio.run(held_out_loss(plan, RunState()))
    loss: Any = plan.loss
    assert loss.seen == [5, 5, 2]
    assert len(scored) == len(report.scores) == 12

    def logs(table: np.ndarray) -> np.ndarray:
        return np.asarray(table - np.log(np.exp(table).sum(-1, keepdims=True)))

    student, teacher = logs(before), logs(TinyBackend(seed=9).table)
    answers = [group.trajectories[0] for group in scored]
    previous = [int(t) for a in answers for t in a.tokens[:-1][a.mask[1:]]]
    each = [-(np.exp(teacher[p]) * student[p]).sum() for p in previous]
    assert report.measures["eval/loss"] == pytest.approx(np.mean(each), rel=1e-5)
    assert report.measures["eval/worst/max"] == pytest.approx(max(each), rel=1e-5)
    assert np.array_equal(plan.backend.table, before)  # type: ignore[attr-defined]
    assert (report.pass_at, report.split) == ({}, "test")
    assert set(report.scores.values()) == {()}

    other = recipe(tmp_path, train=TrainOptions(problems=99))
    whole, _ = asyncio.run(held_out_loss(other, RunState()))
    assert whole.measures["eval/loss"] == pytest.approx(report.measures["eval/loss"], rel=1e-6)


class Watched(Likeness):
    """Keeps a weak hold of the distributions that it saw, and counts those that are still there."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Any] = []
        self.alive: list[int] = []

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        gc.collect()
        self.alive.append(sum(one() is not None for one in self.told))
        self.told += [weakref.ref(datum.distributions["teacher"]) for datum in data]
        return super().token_weights(data)


def test_distributions_of_a_part_are_let_go_before_the_next(tmp_path: Path) -> None:
    """Memory of an evaluation does not grow with the held-out set: whole rows are large."""
    loss = Watched()
    plan = recipe(tmp_path, loss=loss, train=TrainOptions(problems=2))
    gc.freeze()  # the loss collects garbage once a part: among what is new
    asyncio.run(held_out_loss(plan, RunState()))
    assert loss.alive == [0] * 6


class Moving(Likeness):
    """A loss whose weights follow the training."""

    scale = 1.0

    def with_memory(self, memory: Mapping[str, float]) -> Moving:
        found = copy.copy(self)
        found.scale = memory.get("scale", 1.0)
        return found

    def adapted(self, memory: Mapping[str, Any], metrics: Mapping[str, float]) -> Any:
        return {"scale": memory.get("scale", 1.0) / 2}

    def __call__(self, data: Any, logprobs: Any, outputs: Any) -> Any:
        loss, metrics = super().__call__(data, logprobs, outputs)
        return self.scale * loss, metrics


def test_evaluations_are_measured_by_one_and_the_same_loss(tmp_path: Path) -> None:
    """Weights that fall while training goes on must not make later weights look better."""
    plan, loss = recipe(tmp_path, loss=Moving()), {"loss": {"scale": 0.125}}
    before, _ = asyncio.run(held_out_loss(plan, RunState()))
    after, _ = asyncio.run(held_out_loss(plan, RunState(step=3, memory=loss)))
    assert after.measures["eval/loss"] == before.measures["eval/loss"] > 0


def test_held_out_trajectories_that_teach_nothing_are_refused(tmp_path: Path) -> None:
    """No score is made up of nothing: exit 2, with what to set."""

    class Lost(ReferenceSampler):
        async def sample(self, *asked: Any) -> Any:
            async for trajectory in super().sample(*asked):
                yield attrs.evolve(trajectory, segments=())

    plan = recipe(tmp_path)
    with pytest.raises(ConfigError, match=r"none has a token(.|\n)*eval\.samples=0"):
        asyncio.run(
            held_out_loss(attrs.evolve(plan, sampler=Lost(None, BuildContext())), RunState())
        )


@pytest.mark.parametrize("aggregation", ["sequence", "fixed"])
def test_other_aggregations_count_trajectories(tmp_path: Path, aggregation: str) -> None:
    """Answers are equally long here, so that the mean is the same number of nats a token."""
    options = TrainOptions(problems=5, aggregation=aggregation)
    report, _ = asyncio.run(held_out_loss(recipe(tmp_path, train=options), RunState()))
    wanted, _ = asyncio.run(held_out_loss(recipe(tmp_path), RunState()))
    found = report.measures["eval/loss"]
    share = 0.5 if aggregation == "fixed" else 1.0  # two tokens an answer of the four allowed
    assert found == pytest.approx(share * wanted.measures["eval/loss"], rel=1e-5)


def test_a_run_distils_and_keeps_its_best_weights(tmp_path: Path) -> None:
    """The student nears its teacher on what it is not trained on; the lowest loss survives."""
    plan, watch = recipe(tmp_path, steps=6), watch_of(tmp_path)
    asyncio.run(train(plan, RunState(), watch))

    losses = {step: report.measures["eval/loss"] for step, report in watch.reports.items()}
    assert list(losses) == list(range(7))
    metrics = RunDir(tmp_path).read_lines("metrics.jsonl")
    assert {line["sampler/drawn"] for line in metrics} == {0.0}
    assert metrics[-1]["loss"] < metrics[0]["loss"]
    lowest = min(range(1, 7), key=losses.__getitem__)
    assert best_step(watch.reports) == lowest
    kept = [checkpoint.step for checkpoint in plan.checkpointer.list()]
    assert kept == sorted({lowest, 6})


class Turning(TinyBackend):
    """Appraises as a script says; counts what it was asked for."""

    script: Sequence[float] = (9.0, 5.0, 2.0, 4.0, 3.0, 1.0, 6.0)

    def __init__(self) -> None:
        super().__init__(seed=3)
        self.asked = 0

    async def eval_loss(self, data: Any, loss: Any) -> dict[str, float]:
        self.asked += 1
        return {"loss": self.script[self._version]}


@pytest.mark.one_of(3)
@pytest.mark.parametrize("stop", [1, 2, 3, 4, 5])
def test_the_best_weights_survive_a_resumed_run(tmp_path: Path, stop: int) -> None:
    """Whole, or stopped and made anew after any step: the same checkpoints at the end."""

    def plan(steps: int) -> Recipe:
        made = recipe(
            tmp_path,
            steps=steps,
            train=TrainOptions(problems=99),
            checkpoint=CheckpointOptions(every=1),
        )
        return attrs.evolve(made, backend=Turning())

    steps = {1: [1], 2: [2], 3: [2, 3], 4: [2, 4], 5: [5], 6: [5, 6]}
    first = plan(stop)
    asyncio.run(train(first, RunState(), watch_of(tmp_path)))
    assert [c.step for c in first.checkpointer.list()] == steps[stop]

    again, watch = plan(6), watch_of(tmp_path)
    newest = again.checkpointer.list()[-1]
    state = RunState.from_json(asyncio.run(again.checkpointer.load(newest, again.backend)))
    watch.last_checkpoint = newest
    watch.reports.update(watch.directory.read_evals())
    asyncio.run(train(again, state, watch))
    assert [c.step for c in again.checkpointer.list()] == steps[6]
    assert again.backend.asked == 6 - stop  # type: ignore[attr-defined]


class Killed(FileCheckpointer):
    """Dies when a checkpoint is there, before anything else happens."""

    def __init__(self, directory: Path, at: int) -> None:
        super().__init__(FileCheckpointOptions(keep=1), BuildContext(run_dir=directory))
        self._at = at

    async def save(self, step: int, state: Any, backend: Any) -> Any:
        found = await super().save(step, state, backend)
        if step == self._at:
            raise RuntimeError("killed")
        return found


@pytest.mark.one_of(4)
@pytest.mark.parametrize(
    ("every", "at"), [*((1, step) for step in range(1, 7)), (4, 1), (4, 2), (4, 4), (4, 5), (4, 6)]
)
def test_a_run_that_dies_between_saving_and_sparing_loses_no_best(
    tmp_path: Path, at: int, every: int
) -> None:
    """`keep` 1: whichever save was the last, the resumed run ends with the same two."""

    def plan(**changes: Any) -> Recipe:
        options = CheckpointOptions(every=every)
        made = recipe(tmp_path, steps=6, checkpoint=options, **changes)
        return attrs.evolve(made, backend=Turning())

    first = plan(checkpointer=Killed(tmp_path, at))
    with pytest.raises(PartError, match="killed"):
        asyncio.run(train(first, RunState(), watch_of(tmp_path)))
    again, watch = plan(), watch_of(tmp_path)
    kept = again.checkpointer.list()
    assert len(kept) <= 3
    assert kept[-1].step == at
    loaded = again.checkpointer.load(kept[-1], again.backend)
    state = RunState.from_json(asyncio.run(loaded))
    watch.last_checkpoint = kept[-1]
    watch.directory.truncate_after(state.step)
    watch.reports.update(watch.directory.read_evals())
    asyncio.run(train(again, state, watch))
    assert [c.step for c in again.checkpointer.list()] == [5, 6]


def test_a_better_evaluation_between_two_checkpoints_is_kept(tmp_path: Path) -> None:
    """Nobody asked for a checkpoint at steps 2 and 5; the weights would be lost."""
    made = recipe(tmp_path, steps=6, checkpoint=CheckpointOptions(every=3))
    plan = attrs.evolve(made, backend=Turning())
    asyncio.run(train(plan, RunState(), watch_of(tmp_path)))
    assert [c.step for c in plan.checkpointer.list()] == [5, 6]


def test_a_backend_that_only_trains_is_refused_early() -> None:
    """With what to set; a task that is sampled needs no such backend."""

    class Trainer(TinyBackend):
        """No `eval_loss`."""

        capabilities = Capabilities()

    trainer = Trainer()
    with pytest.raises(ConfigError, match=r"backend b cannot(.|\n)*eval\.samples=0"):
        check_eval_loss(Diary(), trainer, "b")
    check_eval_loss(ToyTask(), trainer, "b")
    check_eval_loss(Diary(), TinyBackend(), "b")


def test_there_is_nothing_for_rlvr_eval_to_judge() -> None:
    """It says so, and how the loss on held-out trajectories is had."""
    with pytest.raises(ConfigError, match=r"rlvr run(.|\n)*--steps 0 eval\.samples=1"):
        check_is_judged(Diary(), "diary")
    check_is_judged(ToyTask(), "toy")


def test_what_is_judged_is_still_judged(tmp_path: Path) -> None:
    """A task without the ability is sampled by the policy, as before."""
    made = recipe(tmp_path, steps=0, eval=EvalOptions(samples=2))
    runner = VerificationRunner(reward=ToyReward(), workers=2)
    watch = watch_of(tmp_path)
    plan = attrs.evolve(made, task=ToyTask(), reward=runner.reward, runner=runner)
    asyncio.run(train(plan, RunState(), watch))
    assert watch.reports[0].samples == 24
    assert not watch.reports[0].measures
