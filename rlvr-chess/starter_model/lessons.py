"""What the starter model reads: prompts and right answers made of positions and their scores."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinds import ANY, Finder, decks
from mirrors import Moves, mirrored

from rlvr_chess.fen import flip, four_fields
from rlvr_chess.questions.grammar import (
    environment_prompt,
    environment_text,
    policy_prompt,
    policy_text_of,
)
from rlvr_chess.questions.transition import transition
from rlvr_chess.values import ActionValues

Lesson = tuple[str, str]  # prompt and answer


def read_positions(path: Path, held_out: set[str]) -> list[tuple[str, Moves]]:
    """FEN and scored moves of each position of the file that is not held out (four fields)."""
    with path.open() as lines:
        rows: list[Any] = [json.loads(line) for line in lines]
    return [
        (row["fen"], [(uci, kind, value) for uci, kind, value in row["moves"]])
        for row in rows
        if len(row["moves"]) > 1
        and not {four_fields(row["fen"]), four_fields(flip(row["fen"]))} & held_out
    ]


def lessons(
    positions: list[tuple[str, Moves]], seed: int, policy: float, plain: float = 0.0
) -> Iterator[Lesson]:
    """
    Lessons without end, a share `policy` of them policy lines.

    Each epoch asks for a line of every position once; of the environment questions between them a
    share `plain` asks for any legal move, the rest come off decks with so many of each kind.
    """
    rng = random.Random(seed)
    finder, kinds = Finder(positions), decks(rng)
    while True:
        for position in rng.sample(positions, len(positions)):
            while rng.random() >= policy:
                is_plain = plain > 0 and rng.random() < plain
                kind = ANY if is_plain else next(kinds)
                yield environment_lesson(*finder.question(kind, rng))
            yield policy_lesson(*mirrored(*position, rng))


def policy_lesson(fen: str, moves: Moves) -> Lesson:
    """The best moves, what they are worth, the best."""
    return policy_prompt(fen), policy_text_of(ActionValues(fen=fen, moves=moves))


def environment_lesson(fen: str, uci: str) -> Lesson:
    """What a move does."""
    return environment_prompt(fen, uci), environment_text(transition(fen, uci))
