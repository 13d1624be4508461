"""A pool of engine processes: values of all moves of a position, the same from run to run.

Every search begins with `ucinewgame` and ends at a number of nodes, on one thread: without the
first no two runs agree, with a time limit or two threads neither. What cannot be answered is an
error and never a score.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self, TypeVar

import structlog
from attrs import define, field, frozen
from attrs.validators import ge, gt

from rlvr import SingleFlight, Slots, VerifierError
from rlvr_chess.config import ChessConfig
from rlvr_chess.engine.identity import OPTIONS, EngineIdentity, find_engine, identify
from rlvr_chess.engine.process import EngineFailure, EngineProcess, best_of, last_complete
from rlvr_chess.fen import read_board
from rlvr_chess.values import ActionValues, Entry

log = structlog.get_logger()
T = TypeVar("T")

_TRIES = 2
_SLOWEST = 20_000
"""Nodes a second that a crowded machine still does: what a long search may take besides."""
_FULL_STRENGTH: dict[str, str | int] = {"UCI_LimitStrength": "false", "Skill Level": 20}


@frozen(kw_only=True)
class EngineConfig:
    """
    Which engine, how much it may search, how many of it.

    Attributes:
        path: The executable; "": where it is usually installed.
        nodes: Limit of a search of `action_values`.
        processes: Engine processes; 0: cores less one.
        timeout_s: An answer that takes longer (and longer than 20,000 nodes a second would) means
            that the process hangs: it is killed.
    """

    path: str = ""
    nodes: int = field(default=100_000, validator=ge(1))
    processes: int = field(default=0, validator=ge(0))
    timeout_s: float = field(default=30.0, validator=gt(0))

    @classmethod
    def of(cls, config: ChessConfig) -> EngineConfig:
        """From the options of the task."""
        return cls(path=config.engine, nodes=config.nodes, processes=config.engines)

    @property
    def count(self) -> int:
        """Processes there will be, at least one."""
        return self.processes or max(1, (os.cpu_count() or 1) - 1)


@define
class EnginePool:
    """
    Engine processes behind one queue: first come, first served (`async with` opens and ends them).

    Processes start when they are needed. One that dies, hangs or talks nonsense is killed and the
    search is done once more in a new one. Equal positions that are under way are one search, which
    ends with its last asker. Waiting for a free process does not count against the deadline of a
    verification.
    """

    config: EngineConfig = field(factory=EngineConfig)
    _path: Path = field(init=False, factory=Path)
    _identity: EngineIdentity | None = field(init=False, default=None)
    _slots: Slots = field(init=False, factory=lambda: Slots(1))
    _all: list[EngineProcess] = field(init=False, factory=list)
    _free: list[EngineProcess] = field(init=False, factory=list)
    _flying: SingleFlight[Entry] = field(init=False, factory=SingleFlight)

    async def __aenter__(self) -> Self:
        """
        Find the engine and ask who it is.

        Raises:
            PrerequisiteError: It is not installed, or is no engine.
        """
        self._path = find_engine(self.config.path)
        self._identity = await asyncio.to_thread(identify, self._path, self.config.nodes)
        self._slots = Slots(self.config.count)
        self._all = [EngineProcess(self._path) for _ in range(self.config.count)]
        self._free = list(self._all)
        return self

    async def __aexit__(self, *error: object) -> None:
        """End every search and every process."""
        await self._flying.stop()
        await asyncio.gather(*(process.close() for process in self._all))
        self._all, self._identity = [], None

    @property
    def identity(self) -> EngineIdentity:
        """Engine, settings and nodes: equal identities give equal values."""
        if self._identity is None:
            raise RuntimeError("the engine pool is not open: use `async with`")
        return self._identity

    @property
    def pids(self) -> list[int]:
        """Process ids of the engines that run."""
        return [process.pid for process in self._all if process.pid is not None]

    async def action_values(self, fen: str) -> ActionValues:
        """The value of every legal move, best first; as `analyse`."""
        return (await self.analyse(fen)).values

    async def analyse(self, fen: str) -> Entry:
        """
        The value of every legal move at `config.nodes` nodes.

        Raises:
            FenError: The position is invalid or over.
            VerifierError: The engine failed twice.
        """
        board = read_board(fen)
        known = board.fen()
        legal = [move.uci() for move in board.legal_moves]
        return await self._flying.done(known, lambda: self._all_moves(known, legal))

    async def best_move(
        self, fen: str, nodes: int = 0, elo: int | None = None, skill: int | None = None
    ) -> str:
        """
        The engine's move (UCI), as an opponent plays it.

        Args:
            fen: The position, not over.
            nodes: Limit; 0: `config.nodes`.
            elo: Play at this strength (UCI_Elo). Stockfish then draws by the clock: such moves
                differ from run to run, as they do with `skill`.
            skill: Skill Level 0..20.

        Raises:
            FenError: The position is invalid or over.
            VerifierError: The engine failed twice.
        """
        board = read_board(fen)
        settings: dict[str, str | int] = {**OPTIONS, **_FULL_STRENGTH, "MultiPV": 1}
        if elo is not None:
            settings |= {"UCI_LimitStrength": "true", "UCI_Elo": elo}
        if skill is not None:
            settings["Skill Level"] = skill

        def read(lines: list[bytes]) -> str:
            move = best_of(lines)
            if move not in {legal.uci() for legal in board.legal_moves}:
                raise EngineFailure(f"its move {move[:10]!r} is not legal")
            return move

        return await self._search(board.fen(), nodes or self.config.nodes, settings, read)

    async def _all_moves(self, fen: str, legal: list[str]) -> Entry:
        def read(lines: list[bytes]) -> Entry:
            ranking = last_complete(lines, legal)
            values = ActionValues(fen=fen, moves=ranking.moves, engine=self.identity.text)
            return Entry(values=values, depth=ranking.depth)

        return await self._search(fen, self.config.nodes, {**OPTIONS, **_FULL_STRENGTH}, read)

    @asynccontextmanager
    async def _process(self) -> AsyncIterator[EngineProcess]:
        """A process that nobody else uses in the block."""
        async with self._slots.taken():
            process = self._free.pop()
            try:
                yield process
            finally:
                self._free.append(process)

    async def _search(
        self,
        fen: str,
        nodes: int,
        settings: dict[str, str | int],
        read: Callable[[list[bytes]], T],
    ) -> T:
        """
        What `read` makes of all that a free process prints of one search.

        The search knows nothing of earlier ones. It is done once more in a fresh process where the
        first one fails.
        """
        commands, failures = [f"position fen {fen}", f"go nodes {nodes}"], []
        async with self._process() as process:
            for _ in range(_TRIES):
                try:
                    await process.start(settings)
                    process.new_game(settings)
                    timeout_s = self.config.timeout_s + nodes / _SLOWEST
                    lines = await process.ask(commands, b"bestmove", timeout_s)
                    process.forget()
                    return read(lines)
                except EngineFailure as failure:
                    failures.append(str(failure))
                    log.warning("engine_failed", engine=str(self._path), reason=str(failure))
                    await process.kill()
                except BaseException:  # cancelled: its output must not answer the next question
                    await process.kill()
                    raise
        raise VerifierError(
            f"the chess engine could not score {fen}.",
            f"found: {'; then '.join(failures)}",
            f"try: rlvr doctor --plugin chess, a larger chess.nodes (now {self.config.nodes}), "
            "or another chess.engine",
        )
