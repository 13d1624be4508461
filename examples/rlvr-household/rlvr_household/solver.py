"""The solver: what a sensible agent thinks and does next, from what was seen so far.

Where several things are equally sensible (which room to search next, which cupboard to open) it
names all of them with their probabilities. It never uses what was not seen.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from attrs import frozen

from rlvr_household.layout import CHANGES, CLOSED, House, rooms_of, weight
from rlvr_household.state import HAND, Command, State, Turn


@frozen
class Option:
    """A turn that may come next, and how likely the solver takes it."""

    turn: Turn
    probability: float


def options(state: State) -> list[Option]:
    """All turns the solver may take now, likeliest rooms first; their probabilities sum to 1."""
    goal = state.house.goal
    if state.held and state.held != goal.thing:
        return _rid(state, state.held)
    if state.held != goal.thing:
        return _fetch(state, goal.thing)
    if goal.change and goal.change not in state.changed[goal.thing]:
        return _change(state, goal.thing, goal.change)
    return _deliver(state, goal.thing, goal.target)


def choose(state: State, rng: random.Random) -> Turn:
    """One of the options, drawn by their probabilities."""
    found = options(state)
    return rng.choices([o.turn for o in found], [o.probability for o in found])[0]


def solve(house: House, seed: str, *, limit: int = 100) -> list[Turn]:
    """The solver's turns until the goal holds."""
    state, rng = State(house), random.Random(seed)
    turns: list[Turn] = []
    while not state.is_done and len(turns) < limit:
        turns.append(choose(state, rng))
        state.do(turns[-1].command)
    return turns


def _fetch(state: State, thing: str) -> list[Option]:
    place = state.places[thing]
    if thing in state.seen and place != HAND:
        if state.is_reachable(place):
            return _one(f"{thing} is in {place}, take it", Command("take", thing))
        if place in state.here:  # cannot be: what was seen in it was seen open
            return _one(f"{thing} is in {place}, open it", Command("open", place))
        room = state.house.room_of(place)
        return _one(f"{thing} is in {room}", Command("go", room))
    shut = [piece for piece in state.here if piece in CLOSED and piece not in state.is_open]
    if shut:
        return _evenly(
            [(f"need {thing}, look in {piece}", Command("open", piece)) for piece in shut]
        )
    if set(state.house.rooms) <= state.visited:  # it went on too soon: something is still shut
        left = [room for room in state.house.rooms if _is_shut(state, room)]
        return _evenly([(f"need {thing}, try {room}", Command("go", room)) for room in left])
    return _search(state, f"need {thing}", state.house.rooms, thing)


def _is_shut(state: State, room: str) -> bool:
    """Whether a room has furniture that was never opened."""
    return any(p in CLOSED and p not in state.is_open for p in state.house.furniture[room])


def _change(state: State, thing: str, change: str) -> list[Option]:
    verb, tools = CHANGES[change]
    if at := [piece for piece in state.here if piece in tools]:
        return _one(f"{at[0]} is here, {verb} {thing}", Command(verb, thing))
    known = [
        (piece, room)
        for room, pieces in state.house.furniture.items()
        for piece in pieces
        if room in state.visited and piece in tools
    ]
    if known:
        return _evenly(
            [
                (f"{verb} {thing}, {piece} is in {room}", Command("go", room))
                for piece, room in known
            ]
        )
    rooms = state.house.rooms
    likely = tuple(room for room in rooms if any(rooms_of(tool, (room,)) for tool in tools))
    return _search(state, f"{verb} {thing}", likely)


def _deliver(state: State, thing: str, target: str) -> list[Option]:
    house = state.house
    if target in state.here:
        if state.is_reachable(target):
            return _one(f"{target} is here, put {thing}", Command("put", thing, target))
        return _one(f"{target} is closed, open it", Command("open", target))
    room = house.room_of(target)
    if room in state.visited:
        return _one(f"put {thing}, {target} is in {room}", Command("go", room))
    return _search(state, f"put {thing} in {target}", rooms_of(target, house.rooms))


def _rid(state: State, thing: str) -> list[Option]:
    """Put down what was taken by mistake: where it does no harm, else wherever there is room."""
    for piece in state.here:
        if state.is_reachable(piece):
            return _one(f"{thing} is wrong, put it down", Command("put", thing, piece))
    shut = [piece for piece in state.here if piece in CLOSED and piece not in state.is_open]
    return _one(f"{thing} is wrong, open {shut[0]}", Command("open", shut[0]))


def _search(state: State, why: str, rooms: Sequence[str], thing: str | None = None) -> list[Option]:
    """Go to a room not visited yet, by how likely the thing is there."""
    new = [room for room in rooms if room not in state.visited]
    weights = [1.0 if thing is None else weight(thing, room) for room in new]
    return [
        Option(Turn(f"{why}, try {room}", Command("go", room)), share / sum(weights))
        for room, share in zip(new, weights, strict=True)
    ]


def _one(thought: str, command: Command) -> list[Option]:
    return [Option(Turn(thought, command), 1.0)]


def _evenly(turns: Sequence[tuple[str, Command]]) -> list[Option]:
    return [Option(Turn(thought, command), 1.0 / len(turns)) for thought, command in turns]
