"""The real engine for tests, positions to ask about, and engines with a fault put in front."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator
from pathlib import Path

import chess
import pytest

from rlvr import PrerequisiteError
from rlvr.testing.tools import missing
from rlvr_chess.engine.identity import find_engine

QUICK = 10_000
"""Nodes that complete an iteration of the wildest positions here, in some 15 ms."""


@pytest.fixture
def stockfish() -> Path:
    """The real engine; skips aloud where it is not installed."""
    try:
        return find_engine()
    except PrerequisiteError as error:
        missing(str(error))
        raise


def random_games(rng: random.Random, plies: range) -> Iterator[chess.Board]:
    """Boards after so many random moves, without end; none is over."""
    while True:
        board = chess.Board()
        for _ in range(rng.choice(plies)):
            if board.is_game_over():
                break
            board.push(rng.choice(list(board.legal_moves)))
        if not board.is_game_over():
            yield board


def positions(count: int, seed: int = 1) -> list[str]:
    """FENs of random games, none twice."""
    return list(_positions(count, seed))


@functools.cache
def _positions(count: int, seed: int) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for board in random_games(random.Random(seed), range(1, 80)):
        found[board.fen()] = None
        if len(found) == count:
            break
    return tuple(found)


def script(folder: Path, text: str, name: str = "engine") -> Path:
    """A program of the shell; `text` follows the first line."""
    path = folder / name
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path
