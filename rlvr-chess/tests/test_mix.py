from __future__ import annotations

from collections import Counter

import chess
import pytest

from rlvr.types import Message, Problem
from rlvr_chess.mix import mixed
from rlvr_chess.records import EnvironmentStep, PolicyPosition

FEN = chess.STARTING_FEN


def problems(policy: int, environment: int) -> list[Problem]:
    payloads = [PolicyPosition(fen=FEN)] * policy + [EnvironmentStep(fen=FEN, uci="e2e4")] * (
        environment
    )
    prompt = (Message(role="user", content="?"),)
    return [
        Problem(id=f"{type(payload).__name__[0]}{i}", prompt=prompt, payload=payload)
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
