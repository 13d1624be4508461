"""What an evaluation works on and what it has found: shared by the parts of the suite."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from rlvr import Policy, Problem
from rlvr_chess.asking import Player, seed_of
from rlvr_chess.config import ChessConfig
from rlvr_chess.evaluation.environment import Foretold
from rlvr_chess.evaluation.policy import Judged
from rlvr_chess.evaluation.solving import BUCKET, Attempt, Tried
from rlvr_chess.questions.records import EnvironmentStep, PolicyPosition, Solution
from rlvr_chess.rows import Material
from rlvr_chess.selfplay.game import Game


@frozen(kw_only=True)
class Questions:
    """The problems of a split by kind; each at most `chess.eval_limit`, if that is set."""

    policy: tuple[Problem, ...] = ()
    environment: tuple[Problem, ...] = ()
    puzzles: tuple[Problem, ...] = ()
    suites: tuple[Problem, ...] = ()

    @property
    def every(self) -> tuple[Problem, ...]:
        """All of them."""
        return self.policy + self.environment + self.puzzles + self.suites


@define
class Found:
    """Answers that were judged, by problem id, and the games that were played."""

    policy: dict[str, Judged] = field(factory=dict)
    environment: dict[str, Foretold] = field(factory=dict)
    puzzles: dict[str, Attempt] = field(factory=dict)
    suites: dict[str, Tried] = field(factory=dict)
    games: dict[str, Sequence[Game]] = field(factory=dict)


@frozen(kw_only=True)
class Bench:
    """A policy, the questions, and what is found."""

    policy: Policy
    config: ChessConfig
    questions: Questions
    material: Material
    split: str
    seed: int
    found: Found = field(factory=Found)

    @property
    def player(self) -> Player:
        """The policy, in the wording it is asked in."""
        return Player(self.policy, self.config.wording)


def sorted_out(problems: Sequence[Problem], limit: int) -> Questions:
    """
    The problems by kind.

    A limit leaves as many of each category, rating bucket and suite as it can; which ones is
    decided by a hash of the id, so the same ones are asked every time.
    """
    kinds: dict[str, list[Problem]] = {"policy": [], "environment": [], "puzzles": [], "suites": []}
    for problem in problems:
        payload = problem.payload
        if isinstance(payload, PolicyPosition):
            kinds["policy"].append(problem)
        elif isinstance(payload, EnvironmentStep):
            kinds["environment"].append(problem)
        elif isinstance(payload, Solution):
            kinds["puzzles" if payload.line else "suites"].append(problem)
    strata: dict[str, Callable[[Problem], str]] = {
        "policy": lambda p: p.labels.get("phase", ""),
        "environment": category,
        "puzzles": lambda p: str(p.payload.rating // BUCKET),
        "suites": lambda p: str(p.payload.suite),
    }
    return Questions(**{k: tuple(_limited(v, limit, strata[k])) for k, v in kinds.items()})


def category(problem: Problem) -> str:
    """The kind of a move, of the row or of the task's labels."""
    return str(problem.payload.category or problem.labels.get("category", ""))


def _limited(
    problems: Sequence[Problem], limit: int, stratum: Callable[[Problem], str]
) -> list[Problem]:
    if not limit or len(problems) <= limit:
        return list(problems)
    strata: dict[str, list[Problem]] = {}
    for problem in sorted(problems, key=lambda p: seed_of("limit", p.id)):
        strata.setdefault(stratum(problem), []).append(problem)
    rounds = [
        (place, name, problem)
        for name, members in strata.items()
        for place, problem in enumerate(members)
    ]
    rounds.sort(key=lambda entry: entry[:2])
    kept = {problem.id for _, _, problem in rounds[:limit]}
    return [problem for problem in problems if problem.id in kept]
