"""Problems of the house: which houses there are, and which are held out."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from rlvr.types import Message, Problem
from rlvr_sad.house.layout import Goal, House, make_house

HELD_OUT = 5
"""One goal of so many is held out."""


def goal_split(goal: Goal) -> str:
    """
    "test" for a fifth of all goals, "train" for the others.

    A goal is thing, change and target: what is held out is asked in no house of the other split.
    """
    return "train" if zlib.crc32(str(goal).encode()) % HELD_OUT else "test"


def houses(split: str, seed: int) -> Iterator[House]:
    """Houses of a split without end, in a fixed order."""
    number = 0
    while True:
        house = make_house(f"house/{seed}/{number}")
        number += 1
        if goal_split(house.goal) == split:
            yield house


def problem_of(house: House, split: str, name: str) -> Problem:
    """The problem that a house poses."""
    return Problem(
        id=name,
        prompt=[Message(role="user", content=house.task)],
        split=split,
        labels={"family": house.goal.change or "plain", "task": "house"},
        payload=house,
        digest=house.digest,
    )
