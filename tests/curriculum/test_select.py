"""The problems of a step: the task's word, checked; and the pass rates it is given."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
import structlog

from rlvr import (
    BuildContext,
    ConfigError,
    Curriculum,
    Failed,
    PassRate,
    Problem,
    Reward,
    ScoredGroup,
    TaskError,
    Trajectory,
    Unscorable,
)
from rlvr.curriculum.builtin import ByPassRate, PassRateOptions
from rlvr.curriculum.select import check_choice, problems_of_step
from rlvr.records.lineage import Lineage
from rlvr.records.run_state import ProblemStream, RunState
from rlvr.testing.fakes import ToyTask


class Choosing(ToyTask):
    """Has a curriculum that chooses what it was told to."""

    def __init__(self, chosen: Sequence[Problem]) -> None:
        super().__init__()
        self.chosen = chosen
        self.asked: dict[str, Any] = {}

    def curriculum(self) -> Curriculum:
        return Choice(self)


class Choice(Curriculum):
    """The curriculum of `Choosing`."""

    def __init__(self, task: Choosing) -> None:
        self._task = task

    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        self._task.asked = {"count": count, **facts}
        return self._task.chosen


POOL = list(ToyTask().problems("train"))


def test_the_task_chooses_from_step_seed_and_pass_rates() -> None:
    """It is told where the run stands, and its choice is what is sampled."""
    task = Choosing(POOL[3:5])
    state = RunState(step=7, history={"after-a": PassRate(rate=0.5, count=2, step=6)})

    assert problems_of_step(task, POOL, 2, seed=4, state=state) == POOL[3:5]
    assert task.asked == {"count": 2, "seed": 4, "step": 7, "history": state.history}


@pytest.mark.parametrize(
    ("chosen", "said"),
    [
        (POOL[:3], "found: 3 problems"),
        ([POOL[0], Problem(id="stranger", prompt=())], "found: stranger, which is none of them"),
    ],
)
def test_a_wrong_choice_names_the_task_and_what_is_wrong(chosen: list[Problem], said: str) -> None:
    """A wrong number of problems, or one that is not in the data set, is the task's error."""
    with pytest.raises(TaskError, match=r"Choosing: Choice.choose was asked for 2 of 12") as caught:
        problems_of_step(Choosing(chosen), POOL, 2, seed=1, state=RunState())

    assert said in str(caught.value)


class Backwards(Curriculum):
    """A curriculum: the last problems first."""

    def choose(self, problems: Sequence[Problem], count: int, **facts: Any) -> Sequence[Problem]:
        return list(problems)[::-1][:count]


class Told(Choosing):
    """A task that knows whether it was told to choose."""

    def __init__(self, option: str) -> None:
        super().__init__(POOL[:2])
        self.curriculum_option = option


def test_a_curriculum_comes_before_the_tasks_choice() -> None:
    """What the run was told to follow is followed, and the task is not asked."""
    task = Choosing(POOL[3:5])

    chosen = problems_of_step(task, POOL, 2, seed=4, state=RunState(), curriculum=Backwards())

    assert chosen == [POOL[-1], POOL[-2]]
    assert task.asked == {}


def test_what_was_handed_out_is_not_chosen_again_at_once() -> None:
    """A refill, or sampling ahead, asks before the new pass rates are known: others come first."""
    history = {p.id: PassRate(rate=0.5, count=2, step=i % 3) for i, p in enumerate(POOL)}
    curriculum = ByPassRate(PassRateOptions(), BuildContext())

    def chosen(step: int, *before: str) -> set[str]:
        found = problems_of_step(
            ToyTask(),
            POOL,
            4,
            seed=1,
            state=RunState(step=step, history=history),
            curriculum=curriculum,
            handed_out=before,
        )
        return {problem.id for problem in found}

    first = chosen(6)
    assert chosen(7) == first
    assert not chosen(7, *first) & first


def test_problems_that_were_never_met_are_not_taken_twice_at_once() -> None:
    """Handed out and in no history yet: the next choice takes other unseen ones."""
    curriculum = ByPassRate(PassRateOptions(explore=1.0), BuildContext())
    seen: list[str] = []
    for batch in range(3):
        found = problems_of_step(
            ToyTask(), POOL, 4, seed=1, state=RunState(step=batch), curriculum=curriculum,
            handed_out=seen,
        )  # fmt: skip
        seen += [problem.id for problem in found]
    assert len(set(seen)) == 12


def test_age_counts_also_where_refills_have_run_ahead() -> None:
    """At batch 400 of training step 100, solved problems not met for long come again."""
    lately = {p.id: PassRate(rate=0.5, count=9, step=99) for p in POOL[:4]}
    solved = {p.id: PassRate(rate=1.0, count=9, step=40) for p in POOL[4:]}
    for batch in (100, 400):
        found = problems_of_step(
            ToyTask(),
            POOL,
            4,
            seed=1,
            state=RunState(step=batch, history={**lately, **solved}),
            curriculum=ByPassRate(PassRateOptions(), BuildContext()),
            trained=100,
        )
        assert {p.id for p in found} <= set(solved), batch


@pytest.mark.parametrize(
    ("task", "warnings"),
    [(Choosing(POOL[:2]), ["task_choice_ignored"]), (Told(""), []), (ToyTask(), [])],
    ids=["may have been told", "was not told", "cannot choose"],
)
def test_a_choice_that_may_be_lost_is_said(task: ToyTask, warnings: list[str]) -> None:
    """A task that chooses, and does not say that nobody asked it to, loses its say aloud."""
    with structlog.testing.capture_logs() as logs:
        check_choice(task, POOL, 2, seed=1, curriculum=Backwards())

    assert [line["event"] for line in logs] == warnings


def test_two_orders_of_training_are_refused() -> None:
    """A curriculum and the task's own one cannot both be followed: both are named."""
    task = Told("toy.order=letters")

    with pytest.raises(ConfigError, match=r"Backwards.* and toy.order=letters") as caught:
        check_choice(task, POOL, 2, seed=1, curriculum=Backwards())

    assert "--curriculum" in str(caught.value)
    check_choice(task, POOL, 2, seed=1, curriculum=None)


def test_a_choice_that_does_not_fit_is_refused_before_anything_is_sampled() -> None:
    """It is asked for the first step when a run is put together."""
    task = Choosing(POOL[:2])

    check_choice(task, POOL, 2, seed=3, curriculum=None)
    assert task.asked == {"count": 2, "seed": 3, "step": 0, "history": {}}
    with pytest.raises(TaskError, match="asked for 5"):
        check_choice(task, POOL, 5, seed=3, curriculum=None)


def group(*outcomes: Any, problem: Problem = POOL[0]) -> ScoredGroup:
    trajectories = [Trajectory.from_text(problem.id, "x") for _ in outcomes]
    return ScoredGroup(problem=problem, trajectories=trajectories, outcomes=outcomes)


def scored(*scores: float) -> list[Reward]:
    return [Reward(value=score, score01=score) for score in scores]


def test_pass_rates_are_means_first_and_then_forget() -> None:
    """By hand: (1/2 + 0)/2 after two groups; after five, a new group weighs a fifth."""
    state = RunState().advanced(1.0, [group(*scored(1.0, 0.0))])
    state = state.advanced(1.0, [group(*scored(0.0, 0.0))])
    assert state.history == {"after-a": PassRate(rate=0.25, count=2, step=1)}

    state = RunState(step=9, history={"after-a": PassRate(rate=0.5, count=9, step=3)})
    state = state.advanced(1.0, [group(*scored(1.0))])
    assert state.history == {"after-a": PassRate(rate=0.6, count=10, step=9)}


def test_only_full_verdicts_make_a_pass_rate() -> None:
    """Failures, missing verdicts and proxies say nothing about how often a problem is solved."""
    proxy = Reward(value=0.5, score01=0.0, is_proxy=True)
    silent = [Failed(reason="no disk"), Unscorable(reason="no verdict"), proxy]

    assert RunState().advanced(1.0, [group(*silent)]).history == {}
    mixed = RunState().advanced(1.0, [group(*silent, *scored(1.0))])
    assert mixed.history["after-a"].rate == 1.0


def test_a_problem_that_comes_twice_in_a_step_counts_twice() -> None:
    """Both groups are in its rate."""
    state = RunState().advanced(1.0, [group(*scored(1.0)), group(*scored(0.0))])

    assert state.history["after-a"] == PassRate(rate=0.5, count=2, step=0)


def test_a_proxy_can_never_claim_that_an_answer_is_right() -> None:
    """`score01` of a proxy is 0: nobody knows."""
    with pytest.raises(ValueError, match="a proxy cannot say"):
        Reward(value=1.0, score01=1.0, is_proxy=True)


def test_the_state_survives_json() -> None:
    """A checkpoint keeps all of it; keys of later versions are left out."""
    state = RunState(
        step=3,
        seconds=1.5,
        history={"a": PassRate(rate=1 / 3, count=2, step=1)},
        lineage=Lineage(families=("fifo", "lfsr")),
        problem_stream=ProblemStream(drawn=4, begun=7, waiting=["b"]),
    )

    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert RunState.from_json({**state.to_json(), "later": 1}) == state
