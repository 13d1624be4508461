"""The questions of an evaluation and its judged answers, shared by the parts of the suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from attrs import define, field, frozen

from rlvr import Policy, Problem, seed_of
from rlvr_chess.asking import Player
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
    policy = [p for p in problems if isinstance(p.payload, PolicyPosition)]
    environment = [p for p in problems if isinstance(p.payload, EnvironmentStep)]
    solutions = [p for p in problems if isinstance(p.payload, Solution)]
    puzzles = [p for p in solutions if p.payload.line]
    suites = [p for p in solutions if not p.payload.line]
    return Questions(
        policy=_limited(policy, limit, lambda p: p.labels.get("phase", "")),
        environment=_limited(environment, limit, category),
        puzzles=_limited(puzzles, limit, lambda p: str(p.payload.rating // BUCKET)),
        suites=_limited(suites, limit, lambda p: str(p.payload.suite)),
    )


def category(problem: Problem) -> str:
    """The kind of a move, of the row or of the task's labels."""
    return str(problem.payload.category or problem.labels.get("category", ""))


def _limited(
    problems: Sequence[Problem], limit: int, stratum: Callable[[Problem], str]
) -> tuple[Problem, ...]:
    if not limit or len(problems) <= limit:
        return tuple(problems)
    met: Counter[str] = Counter()
    rounds: list[tuple[int, str, str]] = []
    for problem in sorted(problems, key=lambda p: seed_of("limit", p.id)):
        name = stratum(problem)
        rounds.append((met[name], name, problem.id))
        met[name] += 1
    kept = {name for _, _, name in sorted(rounds)[:limit]}
    return tuple(problem for problem in problems if problem.id in kept)
