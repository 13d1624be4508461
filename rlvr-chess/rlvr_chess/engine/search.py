"""What a search says: every legal move with its score, from the last iteration that is complete.

Searching all moves at once (MultiPV), the engine prints a line for each after every iteration. Cut
off by the limit, it prints a last block in which some lines are one iteration older than others;
comparing those misorders moves, so that block is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import frozen

from rlvr_chess.engine.process import EngineFailure


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
