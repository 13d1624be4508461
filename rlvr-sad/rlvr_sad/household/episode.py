"""One house being lived in, turn by turn; notes what a reader wants to count afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlvr import Episode, EpisodeResult, Message, Problem, Tokenizer
from rlvr_sad.household.commands import action_start, read_turn
from rlvr_sad.household.layout import House
from rlvr_sad.household.solver import options
from rlvr_sad.household.state import NOTHING, State

OBSERVATION = "Observation:"


class HouseEpisode(Episode):
    """
    Ends when the goal holds, or after `steps` turns.

    Attributes:
        state: The house as it is now.
        seen: The last observation, with its mark.
    """

    not_a_part_method = frozenset({"state"})

    def __init__(
        self, problem: Problem, steps: int, meet: Callable[[Tokenizer], None] | None = None
    ) -> None:
        """`meet` is told the policy's tokenizer."""
        self.state = State(house_of(problem))
        self._steps, self._meet = steps, meet
        self.seen = ""
        self._next: Sequence[Message] = problem.prompt
        self._tokenizer: Tokenizer | None = None
        self._thoughts: list[int] = []  # tokens of each turn's reasoning
        self._turns = self._matched = self._sensible = self._impossible = 0

    def prompt(self) -> Sequence[Message] | None:
        """The task, then what was seen; None when it is over."""
        return None if self.state.is_done or self._turns >= self._steps else self._next

    async def take(self, completion: str) -> None:
        turn, sensible = read_turn(completion), [option.turn for option in options(self.state)]
        self._matched += turn.thought in {one.thought for one in sensible}
        self._sensible += turn.command in {one.command for one in sensible}
        if self._tokenizer is not None:
            thought = completion[: action_start(completion)]
            self._thoughts.append(len(self._tokenizer.encode(thought)))
        seen = self.state.do(turn.command)
        self._impossible += seen == NOTHING
        self._turns += 1
        self.seen = f"{OBSERVATION} {seen}"
        self._next = (Message(role="user", content=f"{self.seen}\n"),)

    def start(self, tokenizer: Tokenizer) -> None:
        """Keep the policy's tokenizer: reasoning is counted in its tokens."""
        self._tokenizer = tokenizer
        if self._meet is not None:
            self._meet(tokenizer)

    def result(self) -> EpisodeResult:
        """
        Counts of what happened, as notes.

        `matched` turns thought what the solver may think there, `sensible` ones did what it may
        do, `impossible` ones changed nothing; `thought_tokens` are those of all reasoning.
        """
        notes = {
            "done": self.state.is_done,
            "turns": self._turns,
            "matched": self._matched,
            "sensible": self._sensible,
            "impossible": self._impossible,
            "thought_tokens": sum(self._thoughts),
        }
        return EpisodeResult(notes=notes)


def house_of(problem: Problem) -> House:
    """The house of a problem; refuses problems of other tasks."""
    if not isinstance(problem.payload, House):
        raise TypeError(f"{problem.id} is not a problem of the house")
    return problem.payload
