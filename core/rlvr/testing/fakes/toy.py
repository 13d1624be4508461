"""A toy task with its reward, and the simplest advantage and loss."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import frozen

from rlvr.parts import Advantage, Episode, Loss, RewardFn, Task
from rlvr.types import Datum, Message, Outcome, Problem, Reward, ScoredGroup, Trajectory


@frozen(kw_only=True)
class ToyAnswer:
    """Payload of a toy problem: the letter to say, and in how many turns."""

    letter: str
    turns: int = 1


class ToyTask(Task):
    """
    "Say the letter after this one": one lower-case letter in, one out, in one turn or several.

    The split "train" holds the problems of a..l, "test" those of m..x.

    Args:
        turns: Turns of an episode; after each but the last the environment asks "again".
    """

    def __init__(self, turns: int = 1) -> None:
        self._turns = turns

    def problems(self, split: str) -> Iterable[Problem]:
        first, second = "abcdefghijkl", "mnopqrstuvwx"
        letters = {"train": first, "test": second, "all": first + second}[split]
        for letter in letters:
            answer = chr(ord(letter) + 1)
            yield Problem(
                id=f"after-{letter}",
                prompt=(Message(role="user", content=letter),),
                split="train" if letter < "m" else "test",
                labels={"half": "first" if letter < "m" else "second"},
                payload=ToyAnswer(letter=answer, turns=self._turns),
                digest=hashlib.sha256(answer.encode()).hexdigest(),
            )

    def episode(self, problem: Problem) -> ToyEpisode:
        return ToyEpisode(problem)

    def reference(self, problem: Problem) -> Trajectory | None:
        return Trajectory.from_text(problem.id, problem.payload.letter)


class ToyEpisode(Episode):
    """One attempt: the problem's prompt, then "again" until all turns are taken."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._taken = 0

    def prompt(self) -> Sequence[Message] | None:
        if self._taken >= self._problem.payload.turns:
            return None
        if self._taken == 0:
            return self._problem.prompt
        return [Message(role="user", content="again")]

    async def take(self, completion: str) -> None:
        self._taken += 1


class ToyReward(RewardFn):
    """1 when the last completion is the letter, 0.5 when it contains it, else 0; with keys."""

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome:
        answer, wanted = trajectory.completion.strip(), problem.payload.letter
        is_right = answer == wanted
        holds = bool(answer) and wanted in answer[:3]
        return Reward(
            value=1.0 if is_right else 0.5 * holds,
            score01=1.0 if is_right else 0.0,
            components={"holds": float(holds), "exact": float(is_right)},
        )

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        judged = "\0".join(["toy-1", problem.digest, trajectory.completion.strip()])
        return hashlib.sha256(judged.encode()).hexdigest()


class CentredAdvantage(Advantage):
    """Reward minus the group's mean."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> list[list[float]]:
        """Shape (P, G), ragged; unit: reward."""
        return [
            [r.value - sum(x.value for x in g.rewards) / len(g.rewards) for r in g.rewards]
            for g in groups
        ]


class ReinforceLoss(Loss):
    """Weighted sum of -advantage * logprob; no ratio, no metrics."""

    importance_weighted = False

    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        """The loss, a scalar tensor."""
        total = sum(
            -(lp.new_tensor((d.weights * d.advantages).tolist()) * lp).sum()
            for d, lp in zip(data, logprobs, strict=True)
        )
        return total, {}
