"""A house that is lived in: what a command does, and what is seen of it."""

from __future__ import annotations

from rlvr_sad.household.catalog import CHANGES, CLOSED
from rlvr_sad.household.commands import Command
from rlvr_sad.household.layout import House

NOTHING = "Nothing happens."
HAND = "hand"


class State:
    """
    Where everything is, and what the agent has seen.

    Attributes:
        house: As it was at the beginning.
        room: Where the agent is; "" before it has gone anywhere.
        places: Thing to the furniture it lies in, or `HAND`.
        changed: What was made of each thing: clean, hot or cold (of the last two the latest).
        is_open: Furniture that was opened.
        visited: Rooms the agent was in.
        seen: Things whose place the agent has seen.
    """

    def __init__(self, house: House) -> None:
        self.house = house
        self.room = ""
        self.places = dict(house.places)
        self.changed: dict[str, frozenset[str]] = dict.fromkeys(house.places, frozenset())
        self.is_open: set[str] = set()
        self.visited: set[str] = set()
        self.seen: set[str] = set()

    @property
    def held(self) -> str:
        """The thing in the agent's hand, "" for none."""
        return next((thing for thing, place in self.places.items() if place == HAND), "")

    @property
    def is_done(self) -> bool:
        goal = self.house.goal
        is_there = self.places[goal.thing] == goal.target
        return is_there and (not goal.change or goal.change in self.changed[goal.thing])

    @property
    def here(self) -> tuple[str, ...]:
        return self.house.furniture.get(self.room, ())

    def is_reachable(self, piece: str) -> bool:
        """Whether something can be taken from or put into a piece of furniture now."""
        return piece in self.here and (piece not in CLOSED or piece in self.is_open)

    def do(self, command: Command | None) -> str:
        """Carry a command out; what is seen then. What cannot be done changes nothing."""
        if command is None:
            return NOTHING
        verb, first, second = command.verb, command.first, command.second
        if verb == "go":
            return self._go(first)
        if verb == "open":
            return self._open(first)
        if verb == "take":
            return self._take(first)
        if verb == "put":
            return self._put(first, second)
        return self._change(verb, first)

    def _go(self, room: str) -> str:
        if room not in self.house.furniture or room == self.room:
            return NOTHING
        self.room = room
        self.visited.add(room)
        return f"{room}: " + "; ".join(self._look(piece) for piece in self.here)

    def _open(self, piece: str) -> str:
        if piece not in self.here or piece not in CLOSED or piece in self.is_open:
            return NOTHING
        self.is_open.add(piece)
        return self._look(piece)

    def _look(self, piece: str) -> str:
        if not self.is_reachable(piece):
            return f"{piece} closed"
        things = [thing for thing, place in self.places.items() if place == piece]
        self.seen.update(things)
        return " ".join([piece, *(sorted(things) or ["empty"])])

    def _take(self, thing: str) -> str:
        place = self.places.get(thing, HAND)
        if self.held or not self.is_reachable(place):
            return NOTHING
        self.places[thing] = HAND
        self.seen.add(thing)
        return f"You hold {thing}"

    def _put(self, thing: str, piece: str) -> str:
        if not thing or self.held != thing or not self.is_reachable(piece):
            return NOTHING
        self.places[thing] = piece
        return f"{thing} in {piece}"

    def _change(self, verb: str, thing: str) -> str:
        change = next(name for name, (does, _) in CHANGES.items() if does == verb)
        if not thing or self.held != thing or not CHANGES[change][1] & set(self.here):
            return NOTHING
        opposite = {"hot": "cold", "cold": "hot"}.get(change, "")
        self.changed[thing] = (self.changed[thing] - {opposite}) | {change}
        return f"{thing} {change}"
