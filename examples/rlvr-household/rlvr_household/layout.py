"""Houses and their goals: what they are made of, and how a seed makes the same one everywhere."""

from __future__ import annotations

import hashlib
import json
import random
import zlib
from collections.abc import Iterator, Mapping

from attrs import asdict, field, frozen

from rlvr import Message, Problem

CLOSED = frozenset(
    {"cupboard", "fridge", "cabinet", "dresser", "drawer", "closet"}
    | {"icebox", "crate", "toolbox", "box"}
)
"""Furniture that is shut at the beginning: what it holds is seen once it is open."""

FURNITURE: Mapping[str, tuple[str, ...]] = {
    "kitchen": ("counter", "cupboard", "fridge", "sink", "stove"),
    "bath": ("tub", "cabinet", "rack"),
    "bedroom": ("bed", "dresser", "nightstand"),
    "study": ("desk", "shelf", "drawer"),
    "hall": ("bench", "closet", "stand"),
    "den": ("sofa", "fire", "table"),
    "cellar": ("icebox", "crate", "barrel"),
    "shed": ("trough", "toolbox", "workbench"),
}
"""Room to the furniture that may stand there, and nowhere else."""

MOVABLE = ("box", "basket", "tray")
"""Furniture that may stand in any room."""

CHANGES: Mapping[str, tuple[str, frozenset[str]]] = {
    "clean": ("wash", frozenset({"sink", "tub", "trough"})),
    "hot": ("heat", frozenset({"stove", "fire"})),
    "cold": ("cool", frozenset({"fridge", "icebox"})),
}
"""What a thing can be made: the verb that does it, and the furniture it is done at."""

THINGS: Mapping[str, tuple[str, ...]] = {
    "mug": ("kitchen", "study", "den"),
    "plate": ("kitchen", "den", "cellar"),
    "bowl": ("kitchen", "cellar", "den"),
    "knife": ("kitchen", "shed", "hall"),
    "apple": ("kitchen", "cellar", "study"),
    "egg": ("kitchen", "cellar", "shed"),
    "potato": ("cellar", "kitchen", "shed"),
    "bread": ("kitchen", "den", "cellar"),
    "soap": ("bath", "kitchen", "shed"),
    "towel": ("bath", "bedroom", "hall"),
    "shirt": ("bedroom", "bath", "hall"),
    "book": ("study", "bedroom", "den"),
    "pen": ("study", "hall", "bedroom"),
    "candle": ("den", "cellar", "bedroom"),
    "key": ("hall", "shed", "study"),
    "rope": ("shed", "cellar", "hall"),
}
"""Thing to the rooms it is likely in, likeliest first."""

CHANGEABLE: Mapping[str, tuple[str, ...]] = {
    "clean": ("mug", "plate", "bowl", "knife", "towel", "shirt", "apple", "potato"),
    "hot": ("mug", "apple", "egg", "potato", "bread", "soap"),
    "cold": ("mug", "apple", "egg", "potato", "bread", "bowl"),
}
"""Change to the things that a problem may ask it of."""

LIKELIHOOD = (6.0, 3.0, 2.0)
"""Weights of a thing's rooms, in their order; `ELSEWHERE` for any other room."""
ELSEWHERE = 0.5


def weight(thing: str, room: str) -> float:
    """How likely a thing lies in a room, up to a factor."""
    rooms = THINGS[thing]
    return LIKELIHOOD[rooms.index(room)] if room in rooms else ELSEWHERE


def rooms_of(furniture: str, rooms: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the rooms in which a piece of furniture may stand."""
    if furniture in MOVABLE:
        return rooms
    return tuple(room for room in rooms if furniture in FURNITURE[room])


ROOMS, PIECES, OTHERS = 4, 3, 5
"""Rooms of a house; furniture of a room at most; things besides the goal's."""
AS_IS = ""
HELD_OUT = 5
"""One goal of so many is held out."""


@frozen(kw_only=True)
class Goal:
    """
    A thing that has to lie in or on a piece of furniture.

    Attributes:
        thing: What.
        change: What has to be done to it before: clean, hot, cold; "" nothing.
        target: Where to.
    """

    thing: str
    change: str
    target: str

    def __str__(self) -> str:
        return " ".join(filter(None, ["put", self.change, self.thing, "in", self.target]))


@frozen(kw_only=True)
class House:
    """
    A house as it is at the beginning.

    Attributes:
        goal: What is wanted.
        furniture: Room to what stands there, in the order in which it is seen.
        places: Thing to the furniture it lies in or on.
    """

    goal: Goal
    furniture: Mapping[str, tuple[str, ...]] = field(hash=False)
    places: Mapping[str, str] = field(hash=False)

    @property
    def rooms(self) -> tuple[str, ...]:
        return tuple(self.furniture)

    def room_of(self, piece: str) -> str:
        return next(room for room, pieces in self.furniture.items() if piece in pieces)

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    @property
    def task(self) -> str:
        """What is wanted, and the rooms, in words."""
        return f"Task: {self.goal}\nRooms: {' '.join(self.rooms)}\n"


def make_house(seed: str) -> House:
    """
    The house of a seed: four rooms, and a goal that can be reached in it.

    Where something has to be washed, heated or cooled, at least one room has what it takes.
    """
    rng = random.Random(seed)
    change = rng.choice([AS_IS, *CHANGES])
    thing = rng.choice(CHANGEABLE.get(change, tuple(THINGS)))
    rooms = _rooms(rng, change)
    furniture = {room: _pieces(rng, room) for room in rooms}
    if change:
        _give_tool(rng, furniture, change)
    for piece in rng.sample(MOVABLE, rng.randint(1, 2)):
        furniture[rng.choice(rooms)].append(piece)
    others = rng.sample([one for one in THINGS if one != thing], OTHERS)
    places = {one: _place(rng, one, furniture) for one in [thing, *others]}
    targets = [p for pieces in furniture.values() for p in pieces if p != places[thing]]
    goal = Goal(thing=thing, change=change, target=rng.choice(targets))
    return House(
        goal=goal,
        furniture={room: tuple(pieces) for room, pieces in furniture.items()},
        places=places,
    )


def _rooms(rng: random.Random, change: str) -> tuple[str, ...]:
    """Four rooms, one of which may hold the tool."""
    while True:
        rooms = tuple(rng.sample(list(FURNITURE), ROOMS))
        if not change or _tool_rooms(rooms, change):
            return rooms


def _tool_rooms(rooms: tuple[str, ...], change: str) -> list[tuple[str, str]]:
    """(room, tool) for each tool of a change that may stand in one of the rooms."""
    return [(r, tool) for tool in sorted(CHANGES[change][1]) for r in rooms_of(tool, rooms)]


def _pieces(rng: random.Random, room: str) -> list[str]:
    """Some of what may stand in a room, in the catalogue's order."""
    whole = FURNITURE[room]
    chosen = rng.sample(whole, min(len(whole), rng.randint(2, PIECES)))
    return [piece for piece in whole if piece in chosen]


def _give_tool(rng: random.Random, furniture: dict[str, list[str]], change: str) -> None:
    """Put a tool somewhere, unless one stands there already."""
    options = _tool_rooms(tuple(furniture), change)
    if any(tool in furniture[room] for room, tool in options):
        return
    room, tool = rng.choice(options)
    furniture[room][rng.randrange(len(furniture[room]))] = tool


def _place(rng: random.Random, thing: str, furniture: dict[str, list[str]]) -> str:
    rooms = list(furniture)
    room = rng.choices(rooms, [weight(thing, room) for room in rooms])[0]
    return rng.choice(furniture[room])


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
