"""A game of a person against a mover, without a terminal: text in, lines out."""

from __future__ import annotations

import contextlib
from datetime import date

import chess
from attrs import define, field

from rlvr import seed_of
from rlvr_chess.play.board import board_pgn, board_text
from rlvr_chess.questions.transition import legal_move
from rlvr_chess.selfplay.game import Ending, Rules, ended_by_rules, won_by
from rlvr_chess.selfplay.movers import Mover, Turn

HELP = """moves: UCI (e2e4, e7e8q) or SAN (e4, Nf3, O-O, exd5, e8=Q)
commands: help, board, undo, fen, pgn, resign, quit"""
RETRIES = 3
RULES = Rules(max_plies=100_000)


@define
class Session:
    """
    One game.

    Attributes:
        mover: The model.
        board: With its history.
        colour: The person's.
        seed: Of the model's answers.
        ascii_only: Letters for pieces.
        retries: How often the model is asked again before it resigns.
        result: "1-0", "0-1", "1/2-1/2"; "*" while it goes on; `reason` is why it ended.
        is_left: The person quit.
        begun: The day it is played on.
    """

    mover: Mover
    board: chess.Board
    colour: chess.Color = chess.WHITE
    seed: int = 0
    ascii_only: bool = False
    retries: int = RETRIES
    result: str = "*"
    reason: str = ""
    is_left: bool = False
    begun: date = field(factory=date.today)
    _asked: int = field(default=0, init=False)

    @property
    def is_over(self) -> bool:
        """Nobody can move any more."""
        return self.result != "*" or self.is_left

    @property
    def is_models_turn(self) -> bool:
        """The model is to move."""
        return not self.is_over and self.board.turn != self.colour

    def shown(self) -> str:
        """The board from the person's side."""
        return board_text(
            self.board, ascii_only=self.ascii_only, flipped=self.colour == chess.BLACK
        )

    def take(self, line: str) -> list[str]:
        """Do what the person typed; gives what to print."""
        word = line.strip()
        commands = {
            "": lambda: [],
            "help": lambda: [HELP],
            "board": lambda: [self.shown()],
            "fen": lambda: [self.board.fen()],
            "pgn": lambda: [self.pgn().rstrip()],
            "undo": self._undo,
            "resign": lambda: self._ended(won_by(not self.colour, "resignation")),
            "quit": self._quit,
        }
        if word.lower() in commands:
            return commands[word.lower()]()
        move = legal_move(self.board, word)
        with contextlib.suppress(ValueError):
            move = move or self.board.parse_san(word)
        if not move:  # python-chess reads "--" as a null move
            return [f"{word!r} is no legal move here and no command; try: help"]
        self.board.push(move)
        return self._after()

    async def answer(self) -> list[str]:
        """Let the model move: its line as it wrote it, its move, the board."""
        lines = []
        for attempt in range(self.retries + 1):
            self._asked += 1
            turn = Turn(
                board=self.board,
                seed=seed_of(self.seed, self._asked),
                ply=self.board.ply(),
                attempt=attempt,
            )
            said = (await self.mover.moves([turn]))[0]
            lines.append(f"model:{printable(said.text)}" if said.text else f"model: {said.uci}")
            move = legal_move(self.board, said.uci or "")
            if move is not None:
                lines.append(f"it plays {self.board.san(move)}")
                self.board.push(move)
                return [*lines, *self._after()]
            what = "no answer in the grammar" if said.uci is None else f"{said.uci} is illegal"
            lines.append(
                f"{what}; asked again" if attempt < self.retries else f"{what}: the model resigns"
            )
        return [*lines, *self._ended(won_by(self.colour, "illegal move"))]

    def pgn(self) -> str:
        """The game so far."""
        names = {self.colour: "human", not self.colour: self.mover.name}
        headers = {
            "Event": "rlvr chess play",
            "Date": f"{self.begun:%Y.%m.%d}",
            "White": names[chess.WHITE],
            "Black": names[chess.BLACK],
            "Result": self.result,
        }
        reason = {"Reason": self.reason} if self.reason else {}
        return board_pgn(self.board, headers | reason)

    def _after(self) -> list[str]:
        ending = ended_by_rules(self.board, 0, RULES)
        return [self.shown(), *(self._ended(ending) if ending else [])]

    def _ended(self, ending: Ending) -> list[str]:
        self.result, self.reason = ending.result, ending.reason
        return [f"{ending.result} ({ending.reason})"]

    def _undo(self) -> list[str]:
        count = 2 if self.board.turn == self.colour else 1
        if len(self.board.move_stack) < count:
            return ["there is no move of yours to take back"]
        for _ in range(count):
            self.board.pop()
        return [self.shown()]

    def _quit(self) -> list[str]:
        self.is_left = True
        return []


def printable(text: str) -> str:
    """The text with everything that could steer a terminal replaced."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
