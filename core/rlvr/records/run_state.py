"""State of a run after a step: all that a resumed run needs besides weights and optimiser.

A resumed run first takes the problems that were under way when it stopped, and then those that the
uninterrupted run would have taken (`ProblemStream`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import attrs
from attrs import field, frozen

from rlvr.errors import CheckpointError
from rlvr.records.lineage import Lineage
from rlvr.records.pass_rates import PassRates, pass_rates
from rlvr.types import Checkpoint, PassRate, Problem, ScoredGroup, as_tuple

MEMORY = 0.2
"""Weight of the newest group in a pass rate, once five are known."""


@frozen(kw_only=True)
class ProblemStream:
    """
    Position in the order of problems: batches are chosen one by one, and taken a few ids at a time.

    Attributes:
        drawn: Batches of problems that were chosen so far.
        begun: Groups that were begun so far: the ticket of the next one, which seeds its draws.
        waiting: Ids of problems that were chosen and are not trained on yet, in order.
    """

    drawn: int = 0
    begun: int = 0
    waiting: tuple[str, ...] = field(default=(), converter=as_tuple)

    def take(
        self, count: int, choose: Callable[[int], Sequence[Problem]]
    ) -> tuple[tuple[str, ...], ProblemStream]:
        """
        Ids of the next `count` problems, and the position after them.

        `choose(i)` gives the problems of batch i (0-based); it is asked only as far as needed.
        """
        waiting, drawn = self.waiting, self.drawn
        while len(waiting) < count:
            waiting += tuple(problem.id for problem in choose(drawn))
            drawn += 1
        after = attrs.evolve(self, drawn=drawn, begun=self.begun + count, waiting=waiting[count:])
        return waiting[:count], after

    def without_unknown(self, known: Collection[str]) -> ProblemStream:
        """The same position, without waiting problems that are not in the data set any more."""
        return attrs.evolve(self, waiting=[name for name in self.waiting if name in known])


@frozen(kw_only=True)
class RunState:
    """
    The state of a run after a step.

    Problem order, sampling seeds and minibatch splits are functions of (seed, step, history), so
    these are enough to go on exactly; weights and optimiser are the backend's part of a checkpoint.

    Attributes:
        step: Steps that are finished.
        seconds: Time that those steps took.
        history: Pass rate of each problem met so far, by id.
        lineage: Problem families that the weights are trained on, this run included.
        problem_stream: Position in the order of problems (`ProblemStream`).
        memory: What parts keep, by kind of part: advantage and loss numbers, a task what it found.
    """

    step: int = 0
    seconds: float = 0.0
    history: PassRates = field(factory=PassRates, converter=pass_rates)
    lineage: Lineage = field(factory=Lineage)
    problem_stream: ProblemStream = field(factory=ProblemStream)
    memory: Mapping[str, Mapping[str, Any]] = field(factory=dict)

    def advanced(
        self,
        seconds: float,
        groups: Sequence[ScoredGroup] = (),
        problem_stream: ProblemStream | None = None,
        memory: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> RunState:
        """The state after one more step that took `seconds` and scored `groups`."""
        return attrs.evolve(
            self,
            step=self.step + 1,
            seconds=self.seconds + seconds,
            history=self.history.updated(_met(self.history, groups, self.step)),
            problem_stream=self.problem_stream if problem_stream is None else problem_stream,
            memory=self.memory if memory is None else memory,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint."""
        rest = attrs.filters.exclude("history", "lineage")
        return {
            **attrs.asdict(self, filter=rest),
            "history": self.history.to_json(),
            "lineage": self.lineage.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunState:
        """The state that `to_json` wrote; unknown keys of later versions are ignored."""
        known = {f.name for f in attrs.fields(cls)}
        kept = {k: v for k, v in values.items() if k in known}
        history = PassRates.from_json(kept["history"]) if "history" in kept else PassRates()
        lineage = Lineage.from_json(kept["lineage"]) if "lineage" in kept else Lineage()
        stream = ProblemStream(**kept["problem_stream"])
        return cls(**{**kept, "history": history, "lineage": lineage, "problem_stream": stream})


def state_of(values: Mapping[str, Any], checkpoint: Checkpoint) -> RunState:
    """
    The run state stored in a checkpoint.

    Raises:
        CheckpointError: No run wrote it.
    """
    try:
        if "calls" in values.get("problem_stream", {"calls": 0}):
            raise ValueError("the state of a run of an earlier rlvr: start a new run")
        return RunState.from_json(values)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"the state in the checkpoint {checkpoint.path} cannot be read.",
            f"found: {error!r}",
            "resume from another checkpoint of the run",
        ) from error


def _met(
    history: Mapping[str, PassRate], groups: Sequence[ScoredGroup], step: int
) -> dict[str, PassRate]:
    """The new pass rates of a step's problems; verdicts of a proxy do not count."""
    met: dict[str, PassRate] = {}
    for group in groups:
        scores = [reward.score01 for reward in group.rewards if not reward.is_proxy]
        if not scores:
            continue
        name, score = group.problem.id, sum(scores) / len(scores)
        old = met.get(name) or history.get(name) or PassRate(rate=0.0, count=0, step=step)
        weight = max(MEMORY, 1.0 / (old.count + 1))
        rate = old.rate + weight * (score - old.rate)
        met[name] = PassRate(rate=rate, count=old.count + 1, step=step)
    return met
