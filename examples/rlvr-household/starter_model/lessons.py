"""
Lessons: what the solver thinks and does in house after house, with mistakes to get out of.

A mistake is shown and not learnt: the model reads it and learns what the solver does next.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import frozen

from rlvr_household.layout import CHANGES, CLOSED, THINGS, House, goal_split, make_house
from rlvr_household.solver import choose
from rlvr_household.state import Command, State, Turn

LONGEST = 20
"""Turns of a lesson."""


@frozen
class Piece:
    """A part of a lesson's text; `is_learnt` where the solver wrote it."""

    text: str
    is_learnt: bool


def lessons(seed: int, mistakes: float) -> Iterator[list[Piece]]:
    """Lessons without end, of houses whose goals may be trained on."""
    for number in range(10**9):
        house = make_house(f"lesson/{seed}/{number}")
        if goal_split(house.goal) == "train":
            yield lesson(house, random.Random(f"lesson/{seed}/{number}/turns"), mistakes)


def lesson(house: House, rng: random.Random, mistakes: float) -> list[Piece]:
    """One house from the first turn to its goal; each turn is a mistake with this probability."""
    state, pieces = State(house), [Piece(house.task, False)]
    share = mistakes if rng.random() < 0.5 else 0.0
    for _ in range(LONGEST):
        is_mistake = rng.random() < share
        turn = mistake(state, rng) if is_mistake else choose(state, rng)
        pieces.append(Piece(str(turn), not is_mistake))
        seen = state.do(turn.command)
        pieces.append(Piece(f"\nObservation: {seen}\n", False))
        if state.is_done:
            break
    return pieces


def mistake(state: State, rng: random.Random) -> Turn:
    """A turn that somebody who errs may take: often impossible, never meant to help."""
    goal, house = state.house.goal, state.house
    anything = [piece for pieces in house.furniture.values() for piece in pieces]
    piece = rng.choice(state.here or anything)
    lying = [t for t, place in state.places.items() if place in state.here and t in state.seen]
    thing = rng.choice([goal.thing, state.held or goal.thing, *(lying or list(THINGS))])
    kind = rng.randrange(5)
    if kind == 0 or not state.room:
        room = rng.choice(house.rooms)
        return Turn(f"need {goal.thing}, try {room}", Command("go", room))
    if kind == 1:
        shut = [p for p in state.here if p in CLOSED]
        piece = rng.choice(shut or [piece])
        return Turn(f"need {goal.thing}, look in {piece}", Command("open", piece))
    if kind == 2:
        return Turn(f"{thing} is in {piece}, take it", Command("take", thing))
    if kind == 3:
        return Turn(f"{piece} is here, put {thing}", Command("put", thing, piece))
    verb = rng.choice([does for does, _ in CHANGES.values()])
    return Turn(f"{piece} is here, {verb} {thing}", Command(verb, thing))
