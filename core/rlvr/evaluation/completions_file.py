"""Group answers from a file by problem: lines with the same id are samples of one problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from attrs import frozen

from rlvr.evaluation.answers_file import Answer
from rlvr.types import Group, Outcome, Problem, Reward, ScoredGroup, Trajectory

NO_ANSWER = "the file holds no such answer"


@frozen(kw_only=True)
class Completions:
    """
    Answers by problem.

    Attributes:
        groups: One a problem, in the order of the problems; the trajectories in that of the file.
            A problem without an answer has an empty one.
        samples: Answers that every problem should have (n).
        unusable: What is wrong with the lines that are no answer to one of the problems.
        surplus: Answers past the n-th of their problem, which are left out.
    """

    groups: tuple[Group, ...]
    samples: int
    unusable: tuple[str, ...] = ()
    surplus: int = 0

    @property
    def missing(self) -> Mapping[str, int]:
        """Answers that are missing, by problem id; problems that have all are not named."""
        short = {g.problem.id: self.samples - len(g.trajectories) for g in self.groups}
        return {name: count for name, count in short.items() if count}


def group_answers(
    answers: Iterable[Answer], problems: Sequence[Problem], samples: int = 0
) -> Completions:
    """
    Answers as groups.

    Args:
        answers: As `read_answers` yields them.
        problems: Those that are evaluated.
        samples: Answers a problem that count, the first ones; 0: as many as any problem has.
    """
    found: dict[str, list[Trajectory]] = {p.id: [] for p in problems}
    unusable = []
    for answer in answers:
        if answer.trajectory is None:
            unusable.append(answer.error)
        elif answer.id not in found:
            unusable.append(
                f"line {answer.line}: {answer.id!r} is not among the problems that are evaluated"
                " (--split all takes those of every split)"
            )
        else:
            found[answer.id].append(answer.trajectory)
    wanted = samples or max((len(t) for t in found.values()), default=0)
    return Completions(
        groups=tuple(Group(problem=p, trajectories=found[p.id][:wanted]) for p in problems),
        samples=wanted,
        unusable=tuple(unusable),
        surplus=sum(max(len(t) - wanted, 0) for t in found.values()),
    )


def with_missing(
    scored: Sequence[ScoredGroup], samples: int, lowest: float, *, as_wrong: bool
) -> list[ScoredGroup]:
    """
    The scored groups with an outcome for each missing answer: wrong, or left out.

    Args:
        scored: One group a problem.
        samples: Answers that every problem should have.
        lowest: The lowest reward there is: what a missing answer earns as a wrong one.
        as_wrong: False leaves missing answers out, and problems without any answer with them.
    """
    if not as_wrong:
        return [group for group in scored if group.outcomes]
    filled = []
    for group in scored:
        count = max(samples - len(group.outcomes), 0)
        nothing = Trajectory(problem_id=group.problem.id, error=NO_ANSWER)
        wrong: Outcome = Reward(value=lowest, score01=0.0, evidence={"missing": NO_ANSWER})
        filled.append(
            ScoredGroup(
                problem=group.problem,
                trajectories=[*group.trajectories, *[nothing] * count],
                outcomes=[*group.outcomes, *[wrong] * count],
            )
        )
    return filled
