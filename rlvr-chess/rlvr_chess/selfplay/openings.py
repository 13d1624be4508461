"""
Where games begin: our book of common openings, or lines and positions that a person gives.

Every line is played out by the rules when it is read, so a book cannot hold an illegal move, a
name that belongs to another line, or a position in which nothing can be played.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path

import chess
from attrs import field, frozen

from rlvr import ConfigError, UnknownNameError, as_tuple, counted
from rlvr_chess.fen import board_after, read_board
from rlvr_chess.questions.transition import UCI, first_illegal

BOOK = "openings.txt"


@frozen(kw_only=True)
class Opening:
    """
    The first moves (UCI, legal) of a game, from a position (six fields).

    Equal names share a quota. `eco` is a code of the Encyclopaedia of Chess Openings, or "".
    """

    name: str
    moves: tuple[str, ...] = field(default=(), converter=as_tuple)
    start_fen: str = chess.STARTING_FEN
    eco: str = ""

    def board(self) -> chess.Board:
        """A fresh board after the moves, with its history."""
        return board_after(self.start_fen, self.moves)


START = Opening(name="initial position")


@cache
def book() -> tuple[Opening, ...]:
    """The openings that come with the plugin."""
    text = resources.files("rlvr_chess.selfplay").joinpath(BOOK).read_text(encoding="utf-8")
    return read_lines(text.splitlines(), BOOK)


def read_openings(path: Path) -> tuple[Opening, ...]:
    """
    Openings of a file, one a line: `ECO; NAME; MOVES`, moves in UCI alone, or a FEN.

    Raises:
        UnknownNameError: There is no such file.
        ConfigError: A line is none of these, a move is illegal, or the file holds no opening.
    """
    if not path.is_file():
        raise UnknownNameError(
            f"openings of {path} were asked for.", "found: no such file", "check the path"
        )
    return read_lines(path.read_text(encoding="utf-8").splitlines(), str(path))


def read_lines(lines: Sequence[str], source: str) -> tuple[Opening, ...]:
    """The openings of the lines; empty ones and those that begin with # are left out."""
    found = []
    for number, text in enumerate(map(str.strip, lines), start=1):
        try:
            if text and not text.startswith("#"):
                found.append(_opening(text, number))
        except ValueError as error:
            raise _unreadable(f"{source}, line {number}", str(error)) from error
    if not found:
        raise _unreadable(source, "none in it")
    return tuple(found)


def _unreadable(source: str, found: str) -> ConfigError:
    do = "a line is 'ECO; NAME; MOVES', moves in UCI, or a FEN"
    return ConfigError(f"openings were read from {source}.", f"found: {found}", do)


def _opening(text: str, number: int) -> Opening:
    start, eco, name, moves = chess.STARTING_FEN, "", f"line {number}", text
    if text.count(";") == 2:
        eco, name, moves = (part.strip() for part in text.split(";"))
    elif "/" in text:
        words = text.split()
        start = read_board(" ".join([*words, "0", "1"] if len(words) == 4 else words)).fen()
        name, moves = f"position {number}", ""
    opening = Opening(name=name, eco=eco, moves=moves.split(), start_fen=start)
    board = chess.Board(start)
    if place := first_illegal(board, opening.moves):
        uci = opening.moves[place - 1]
        what = f"illegal in {board.fen()}" if uci == "0000" or UCI.fullmatch(uci) else "not UCI"
        raise ValueError(f"move {place}, {uci!r}, is {what}")
    if board.is_game_over():
        raise ValueError(f"the game is over after it: {board.fen()}")
    return opening


def choose_openings(
    openings: Sequence[Opening], count: int, *, seed: object, quota: int = 0
) -> list[Opening]:
    """
    Openings of `count` games, drawn without returning one before all others had their turn.

    Equal seeds give equal choices; `quota` is of games of one name (0: any number).

    Raises:
        ConfigError: The quota allows fewer games.
    """
    room = {o.name: quota or count for o in openings}
    if sum(room.values()) < count:
        raise ConfigError(
            f"{counted(count, 'game')} with at most {quota} an opening were asked for.",
            f"found: {counted(len(room), 'opening')}, enough for {sum(room.values())} games",
            "ask for fewer games, allow more an opening, or give more openings",
        )
    rng = random.Random(f"openings/{seed}")
    chosen: list[Opening] = []
    while len(chosen) < count:
        for opening in rng.sample(openings, len(openings)):
            if len(chosen) < count and room[opening.name] > 0:
                room[opening.name] -= 1
                chosen.append(opening)
    return chosen
