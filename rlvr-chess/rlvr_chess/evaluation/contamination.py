"""
Which positions of an evaluation were trained on, by their first four fields; the rest by itself.

What the starter model read before anything else are far more positions than ship. Five bytes of the
sha256 of each one's first four fields stay, in a small file beside its weights
(`starter_model/seen.py`): a million of them find four of a million positions by mistake. Its
lessons were mirrored too, colours with ranks and (where nobody may castle) files, so a mirrored
position counts as seen.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import chess
from attrs import frozen

from rlvr import Metric, Problem
from rlvr_chess.evaluation.bench import Found
from rlvr_chess.evaluation.environment import by_category, headline
from rlvr_chess.evaluation.statistics import left_out, mean, rate
from rlvr_chess.fen import FenError, four_fields

STARTER = Path(__file__).parent.parent / "starter" / "seen.bin"
"""What the starter model was pretrained on, as package data; absent where it does not ship."""
_BYTES = 5
UNSEEN = "contamination/unseen"


@frozen
class Seen:
    """
    A set of positions to ask `in`, by their first four fields.

    Of the positions in `hashes` (`read_hashes`) the mirrors are seen as well.
    """

    exact: frozenset[str] = frozenset()
    hashes: frozenset[bytes] = frozenset()

    def __contains__(self, position: object) -> bool:
        if position in self.exact:
            return True
        return isinstance(position, str) and any(
            hash_of(m) in self.hashes for m in mirrors(position)
        )


def mirrors(position: str) -> list[str]:
    """The position (four fields) and what its mirrors are, itself first."""
    board = chess.Board(f"{position} 0 1")
    boards = [board, board.mirror()]
    if not board.castling_rights:
        boards += [one.transform(chess.flip_horizontal) for one in boards]
    return [four_fields(one.fen()) for one in boards]


@functools.cache
def read_hashes(path: Path) -> frozenset[bytes]:
    """The hashes of a file; none where it is absent."""
    raw = path.read_bytes() if path.is_file() else b""
    return frozenset(raw[i : i + _BYTES] for i in range(0, len(raw), _BYTES))


def hash_of(position: str) -> bytes:
    """The first bytes of the sha256 of a position (its four fields)."""
    return hashlib.sha256(position.encode()).digest()[:_BYTES]


def seen_positions(fens: Iterable[str]) -> frozenset[str]:
    """The four fields of the positions that were trained on."""
    found = set()
    for fen in fens:
        with contextlib.suppress(FenError):  # no position: none of the evaluation equals it
            found.add(four_fields(fen))
    return frozenset(found)


def figures(problems: Iterable[Problem], seen: Container[str], note: str) -> list[Metric]:
    """The share of positions seen, of all problems and of each kind."""
    by_kind: dict[str, dict[str, bool]] = {}
    for problem in problems:
        position = four_fields(problem.payload.fen)
        kind = problem.labels.get("task", "")
        by_kind.setdefault(kind, {})[position] = position in seen
    every = {position: hit for kind in by_kind.values() for position, hit in kind.items()}
    found = [rate("contamination/seen", list(every.values()), note)]
    for kind, positions in sorted(by_kind.items()):
        if kind:
            found.append(rate(f"contamination/seen/{kind}", list(positions.values())))
    return found


def unseen_figures(problems: Sequence[Problem], found: Found, seen: Container[str]) -> list[Metric]:
    """Best moves, regret, exact states, puzzles and suites of unseen positions."""
    kept = {problem.id for problem in problems if four_fields(problem.payload.fen) not in seen}
    if len(kept) == len(problems):
        return [left_out(UNSEEN, "no position was seen: all figures are of unseen positions")]
    judged = [one for name, one in found.policy.items() if name in kept]
    told = [one for name, one in found.environment.items() if name in kept]
    lines = [one.is_whole for name, one in found.puzzles.items() if name in kept]
    solved = [one.points == 1.0 for name, one in found.suites.items() if name in kept]
    exact = [one.is_exact for one in told]
    figures = []
    if found.policy:
        figures.append(rate(f"{UNSEEN}/policy/best", [one.is_best for one in judged]))
        figures.append(mean(f"{UNSEEN}/policy/regret", [one.regret for one in judged]))
    if found.environment:
        figures.append(headline(f"{UNSEEN}/environment/macro", by_category(told, exact)))
        figures.append(rate(f"{UNSEEN}/environment/exact", exact))
    if found.puzzles:
        figures.append(rate(f"{UNSEEN}/puzzles/line", lines))
    if found.suites:
        figures.append(rate(f"{UNSEEN}/suites/solved", solved))
    return figures
