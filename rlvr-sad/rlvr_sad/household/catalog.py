"""What houses are made of: rooms with furniture, things, and where things are likely to lie."""

from __future__ import annotations

from collections.abc import Mapping

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
