from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import chess
import pytest
from attrs import evolve

from rlvr import BuildContext, Message, Problem
from rlvr_chess.config import ChessConfig
from rlvr_chess.questions.mix import MixedTasks
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition
from rlvr_chess.task import ChessTask

FEN = chess.STARTING_FEN
KINDS = {"quiet", "castle_k", "checkmate"}


def mixed(
    given: Sequence[Problem], count: int, *, mix: float, seed: int, step: int
) -> list[Problem]:
    """The problems that the curriculum chooses for a step."""
    return MixedTasks(mix).choose(given, count, seed=seed, step=step, history={})


def problems(policy: int, environment: int, kind: str = "quiet") -> list[Problem]:
    payloads = [PolicyPosition(fen=FEN)] * policy + [EnvironmentStep(fen=FEN, uci="e2e4")] * (
        environment
    )
    prompt = (Message(role="user", content="?"),)
    return [
        Problem(
            id=f"{type(payload).__name__[0]}{i}",
            prompt=prompt,
            payload=payload,
            labels={"category": kind} if isinstance(payload, EnvironmentStep) else {},
        )
        for i, payload in enumerate(payloads)
    ]


def kinds(chosen: list[Problem]) -> Counter[str]:
    return Counter(problem.id[0] for problem in chosen)


@pytest.mark.parametrize(
    ("mix", "count", "policy"), [(0.5, 8, 4), (0.25, 8, 2), (1, 8, 8), (0, 8, 0)]
)
def test_each_step_has_its_share(mix: float, count: int, policy: int) -> None:
    """A share that comes out even is the same in every step."""
    for step in range(5):
        chosen = mixed(problems(6, 7), count, mix=mix, seed=1, step=step)
        assert (len(chosen), kinds(chosen)["P"]) == (count, policy)


def test_what_rounding_takes_the_next_step_gives() -> None:
    """Three problems a step, half of them policy: 1.5 a step, 15 in ten steps."""
    all_steps = [kinds(mixed(problems(6, 7), 3, mix=0.5, seed=1, step=s))["P"] for s in range(10)]
    assert set(all_steps) == {1, 2}
    assert sum(all_steps) == 15


def test_each_task_is_met_in_epochs_of_its_own() -> None:
    """After 6 policy problems each was met once, after 12 twice; the other task likewise."""
    met: Counter[str] = Counter()
    for step in range(6):
        met.update(p.id for p in mixed(problems(6, 12), 6, mix=1 / 3, seed=3, step=step))
    assert met == Counter({p.id: 2 for p in problems(6, 12)})


@pytest.mark.parametrize("counts", [(5, 0), (0, 5)])
def test_one_task_alone_takes_the_whole_step(counts: tuple[int, int]) -> None:
    """A data set of one kind ignores the mix."""
    for mix in (0.0, 0.3, 1.0):
        assert len(mixed(problems(*counts), 4, mix=mix, seed=1, step=2)) == 4


def test_seeds_differ_and_repeat() -> None:
    """The same seed and step give the same problems; another seed another order."""
    first, again, other = (
        [p.id for p in mixed(problems(20, 20), 8, mix=0.5, seed=s, step=4)] for s in (1, 1, 2)
    )
    assert first == again != other


@pytest.mark.parametrize("count", [1, 3, 10])
def test_each_kind_of_move_is_asked_as_often_as_any_other(count: int) -> None:
    """40 quiet moves, three castlings, one mate: of 90 questions 30 are of each kind."""
    given = problems(5, 40) + problems(0, 3, "castle_k") + problems(0, 1, "checkmate")
    given = [evolve(p, id=f"{p.id}/{p.labels.get('category')}") for p in given]
    chosen = [
        p.id for step in range(90 // count) for p in mixed(given, count, mix=0, seed=4, step=step)
    ]
    assert Counter(name.split("/")[1] for name in chosen) == dict.fromkeys(KINDS, 30)
    assert all({name.split("/")[1] for name in chosen[i : i + 3]} == KINDS for i in (0, 30, 87))
    met = Counter(chosen)
    assert {met[p.id] for p in given if p.labels.get("category") == "castle_k"} == {10}
    assert max(met[p.id] for p in given if p.labels.get("category") == "quiet") == 1


@pytest.mark.thorough
def test_the_starter_trains_on_every_kind() -> None:
    """A hundred steps of 48: each of the 28 kinds 85 or 86 times, none of a position held out."""
    task = ChessTask(ChessConfig(), BuildContext())
    train, order = task.problems("train"), task.curriculum()
    asked = [
        p for step in range(100) for p in order.choose(train, 48, seed=1, step=step, history={})
    ]
    kinds = Counter(p.labels["category"] for p in asked if p.labels["task"] == "environment")
    assert len(kinds) == 28
    assert set(kinds.values()) == {85, 86}
    held_out = {p.labels["family"] for p in task.problems("test")}
    assert not held_out & {p.labels["family"] for p in asked}
