"""Turns and their commands; the state of a house, what a command does and what is seen then."""

from __future__ import annotations

import re

from attrs import frozen

from rlvr_household.layout import CHANGES, CLOSED, House

VERBS = ("go", "open", "take", "put", "wash", "heat", "cool")
THOUGHT, ACTION = "Thought:", "Action:"
END = "]"
"""Ends an action, and with it the turn: a stop text."""
_ACTION = re.compile(r"^[ \t]*Action:[ \t]*(\w+)\[([^\]\n]*)\]?", re.MULTILINE)
_WHERE = re.compile(r"^[ \t]*Action:", re.MULTILINE)


@frozen
class Command:
    """A verb and what it is done to; `put` names the thing and where to."""

    verb: str
    first: str
    second: str = ""

    def __str__(self) -> str:
        return f"{self.verb}[{', '.join(filter(None, [self.first, self.second]))}{END}"


@frozen
class Turn:
    """One turn: thought (without its mark) and action; None where there is none to be read."""

    thought: str
    command: Command | None

    def __str__(self) -> str:
        return f"{THOUGHT} {self.thought}\n{ACTION} {self.command}"


def read_turn(text: str) -> Turn:
    """
    The first action of a text and the thought before it; the closing bracket may be missing.

    What comes after the first action is not read: a turn acts once.
    """
    found = _ACTION.search(text)
    thought = text[: action_start(text)].strip()
    thought = thought.removeprefix(THOUGHT).strip()
    return Turn(thought, None if found is None else _command(found[1], found[2]))


def action_start(text: str) -> int:
    """Where the action begins, in characters: its mark, or the end of a text without one."""
    found = _WHERE.search(text)
    return len(text) if found is None else found.start()


def _command(verb: str, inside: str) -> Command | None:
    words = [word.strip() for word in inside.split(",")]
    wanted = 2 if verb == "put" else 1
    if verb not in VERBS or len(words) != wanted or not all(words):
        return None
    return Command(verb, *words)


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
