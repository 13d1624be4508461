"""What a turn of the policy says: a thought, and an action that the house can be asked to do."""

from __future__ import annotations

import re

from attrs import frozen

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
