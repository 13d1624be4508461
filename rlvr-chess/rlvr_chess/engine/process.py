"""One engine process: started, asked, killed; and what its searches say.

It stands in place of `chess.engine`, which parses every line as it comes: that does 29 searches a
second of five moves and 2,000 nodes where this does 48 (benchmarks/bench_chess_engine.py).

Searching all moves at once (MultiPV), the engine prints a line for each after every iteration. Cut
off by the limit, it prints a last block in which some lines are one iteration older than others;
comparing those misorders moves, so that block is not used.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from attrs import define, field, frozen

_START_S = 120.0
"""Less than a second, but for a machine that many share."""
_CLOSE_S = 2.0
_MOST_BYTES = 64 * 2**20
_CHUNK = 2**16
_NEW_GAME = ("ucinewgame", "isready")


class EngineFailure(Exception):
    """The engine died, hung, or said what cannot be read. The pool tries again."""


@define
class EngineProcess:
    """
    A running engine, one question at a time.

    It has its own session, so that Ctrl-C in a terminal reaches us and not it. It ends with us even
    when we are killed: by SIGKILL where Linux's `setpriv` is installed, else because its input
    ends.
    """

    path: Path
    _process: asyncio.subprocess.Process | None = None
    _settings: dict[str, str] = field(factory=dict)
    _is_new: bool = False
    """It was told to begin a new game since it was asked last."""

    @property
    def pid(self) -> int | None:
        """The process id, None before `start` and after `kill`."""
        return None if self._process is None else self._process.pid

    async def start(self, settings: Mapping[str, str | int], timeout_s: float = _START_S) -> None:
        """
        Start it with these options, unless it runs already; it is ready then.

        Raises:
            EngineFailure: It does not run, or does not answer in time.
        """
        if self._process is not None and self._process.returncode is None:
            return
        await self.kill()
        try:
            self._process = await asyncio.create_subprocess_exec(
                *_command(self.path),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                limit=_CHUNK,
            )
        except OSError as error:
            raise EngineFailure(f"it does not start: {error}") from error
        await self.ask(["uci"], b"uciok", timeout_s)
        self._configure(settings)
        await self.ask(["isready"], b"readyok", timeout_s)

    def new_game(self, settings: Mapping[str, str | int]) -> None:
        """
        Begin a game with these options: what it searched before leaves no trace.

        Do not wait for it: the engine answers the next question when it is done. EngineFailure
        where it has ended.
        """
        if self._configure(settings) or not self._is_new:
            self._tell(*_NEW_GAME)
        self._is_new = False

    def forget(self) -> None:
        """Begin the next game now: clearing its memory goes on beside what the caller does."""
        with contextlib.suppress(EngineFailure):  # the next question finds that it has ended
            self._tell(*_NEW_GAME)
            self._is_new = True

    async def ask(self, commands: Sequence[str], end: bytes, timeout_s: float) -> list[bytes]:
        """
        Send lines; everything it prints up to the line that begins with `end`, that one included.

        Raises:
            EngineFailure: It ended, hung longer than `timeout_s`, or floods us.
        """
        self._tell(*commands)
        try:
            async with asyncio.timeout(timeout_s):
                return await self._read_until(end)
        except TimeoutError:
            raise EngineFailure(f"no {end.decode()!r} within {timeout_s:g} s") from None

    async def kill(self) -> None:
        """End it at once, whatever it does; nothing where none runs."""
        process, self._process, self._settings = self._process, None, {}
        self._is_new = False
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)  # with what a wrapper script started
        # close our ends of its pipes, or waiting does not return; the transport has no public name
        process._transport.close()  # type: ignore[attr-defined]
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _CLOSE_S)

    async def close(self) -> None:
        """Ask it to end, and kill it where it does not."""
        with contextlib.suppress(EngineFailure, TimeoutError):
            self._tell("quit").close()
            if self._process is not None:
                await asyncio.wait_for(self._process.wait(), _CLOSE_S)
        await self.kill()

    def _configure(self, settings: Mapping[str, str | int]) -> bool:
        """Set options that are not set so already; whether there were any."""
        changed = {k: str(v) for k, v in settings.items() if self._settings.get(k) != str(v)}
        self._settings |= changed
        if changed:
            self._tell(*(f"setoption name {name} value {value}" for name, value in changed.items()))
        return bool(changed)

    def _tell(self, *commands: str) -> asyncio.StreamWriter:
        process = self._process
        if process is None or process.stdin is None or process.returncode is not None:
            raise EngineFailure("it has ended")
        process.stdin.write("".join(f"{line}\n" for line in commands).encode())
        return process.stdin

    async def _read_until(self, end: bytes) -> list[bytes]:
        """Raw chunks: splitting into lines once, at the end, is what makes this fast."""
        assert self._process is not None
        assert self._process.stdout is not None
        stdout, text, start = self._process.stdout, bytearray(b"\n"), 0
        mark = b"\n" + end
        while True:
            chunk = await stdout.read(_CHUNK)
            if not chunk:
                words = bytes(text[-120:]).decode(errors="replace").strip()
                raise EngineFailure(f"it ended (last words: {words!r})")
            text += chunk
            found = text.find(mark, start)
            if found >= 0 and text.find(b"\n", found + len(mark)) >= 0:
                return bytes(text).splitlines()
            start = found if found >= 0 else max(0, len(text) - len(mark))
            if len(text) > _MOST_BYTES:
                raise EngineFailure(f"it printed {len(text)} bytes and no {end.decode()!r}")


def _command(path: Path) -> list[str]:
    """The command line; with Linux's setpriv the kernel kills the engine when we die."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", str(path)] if setpriv else [str(path)]


@frozen(kw_only=True)
class Ranking:
    """Moves best first, (UCI, "cp" or "mate", value) each, and the iteration they are from."""

    depth: int
    moves: tuple[tuple[str, str, int], ...]


@frozen
class _Line:
    slot: int
    depth: int
    move: str
    kind: str
    value: int


def last_complete(lines: Sequence[bytes], legal: Collection[str]) -> Ranking:
    """
    The last block of lines that scores every legal move at one depth.

    Raises:
        EngineFailure: There is none: a line is missing or cannot be read, or the limit is so small
            that the first iteration was cut off.
    """
    ranking = last_block(lines, len(legal))
    if ranking is None:
        raise EngineFailure(f"no iteration scored all {len(legal)} legal moves")
    if {move for move, _, _ in ranking.moves} != set(legal):
        raise EngineFailure("it scored other moves than the legal ones")
    return ranking


def last_block(lines: Sequence[bytes], count: int) -> Ranking | None:
    """The last block of `count` lines of one depth; None where there is none."""
    block: list[_Line] = []  # from the last slot down to the first
    for text in reversed(lines):
        line = _read(text)
        if line is None:
            continue
        if not (block and line.slot == block[-1].slot - 1 and line.depth == block[-1].depth):
            block = []
            if line.slot != count:
                continue
        block.append(line)
        if line.slot == 1:
            moves = tuple((entry.move, entry.kind, entry.value) for entry in reversed(block))
            return Ranking(depth=line.depth, moves=moves)
    return None


def best_of(lines: Sequence[bytes]) -> str:
    """
    The move after `bestmove`.

    Raises:
        EngineFailure: The last line does not hold one.
    """
    last = lines[-1] if lines else b""
    match last.split():
        case [b"bestmove", move, *_] if move != b"(none)":
            return move.decode(errors="replace")
    raise EngineFailure(f"no move in {last[:80]!r}" if lines else "it said nothing")


def _read(text: bytes) -> _Line | None:
    """A line of a MultiPV block; None for any other line, and where the score is only a bound."""
    words = text.split()
    if b"multipv" not in words or b"lowerbound" in words or b"upperbound" in words:
        return None
    try:
        score = words.index(b"score")
        kind = words[score + 1].decode()
        if kind not in ("cp", "mate"):
            return None
        return _Line(
            slot=int(words[words.index(b"multipv") + 1]),
            depth=int(words[words.index(b"depth") + 1]),
            move=words[words.index(b"pv") + 1].decode(),
            kind=kind,
            value=int(words[score + 2]),
        )
    except (ValueError, IndexError):
        return None
