"""An episode in a house: its turns and their counts, the reward, and the spans of its tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from rlvr import (
    BuildContext,
    Episode,
    EpisodeResult,
    Message,
    Problem,
    Reward,
    RewardFn,
    Tokenizer,
    Trajectory,
)
from rlvr_household.config import HouseConfig
from rlvr_household.layout import House
from rlvr_household.solver import options
from rlvr_household.state import NOTHING, State, action_start, read_turn

OBSERVATION = "Observation:"
CODES = {"reasoning": 1, "action": 2}
"""Codes of the annotation `span`, as the distillation losses read them."""


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


class HouseReward(RewardFn):
    """
    Does every turn's command again in a fresh house, and looks at the house.

    Nothing that the policy says about itself counts, and no observation that stands in its text:
    only what its commands do, one a turn, within `house.steps` turns.
    """

    def __init__(self, config: HouseConfig, context: BuildContext) -> None:
        del context
        self._steps = config.steps

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Reward:
        """1 for a goal that holds after some turn; an episode ends there."""
        state, turns = State(house_of(problem)), 0
        for text in trajectory.completions[: self._steps]:
            if state.is_done:
                break
            state.do(read_turn(text).command)
            turns += 1
        value = float(state.is_done)
        return Reward(
            value=value,
            score01=value,
            components={"goal": value},
            tests_passed=int(state.is_done),
            tests_total=1,
            evidence={"turns": turns, "goal": str(state.house.goal)},
        )


def span_codes(trajectory: Trajectory, tokenizer: Tokenizer) -> NDArray[np.float32] | None:
    """
    `CODES` (T,), 0 where the policy did not write the token.

    A turn is reasoning up to its `Action:`, action from there on. A token that holds bytes of both
    belongs to the one it begins in, unless more than half of its bytes lie in the other. None where
    the tokenizer does not say the bytes of its tokens.
    """
    if not tokenizer.has_bytes:
        return None
    parts = [
        _turn(segment.tokens, tokenizer)
        if segment.author == "policy"
        else np.zeros(len(segment.tokens), np.float32)
        for segment in trajectory.segments
    ]
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _turn(tokens: NDArray[np.int32], tokenizer: Tokenizer) -> NDArray[np.float32]:
    pieces = [tokenizer.bytes_of(int(token)) for token in tokens]
    lengths = np.array([len(piece) for piece in pieces], dtype=np.int64)
    ends = np.cumsum(lengths)
    # latin-1 has a character a byte: places in the text are places in the bytes
    start = action_start(b"".join(pieces).decode("latin-1"))
    is_action = 2 * (ends - start) > lengths  # more than half of it
    is_action |= ends - lengths >= start  # begins there (a token without bytes, too)
    return np.where(is_action, CODES["action"], CODES["reasoning"]).astype(np.float32)
