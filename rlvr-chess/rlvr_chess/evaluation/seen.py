"""
Positions that a model was trained on, as a small file beside its weights.

What the starter model read before anything else are far more positions than ship. Five bytes of the
sha256 of each one's first four fields stay: a million of them find four of a million positions by
mistake. Its lessons were mirrored too, colours with ranks and (where nobody may castle) files, so a
mirrored position counts as seen.

    python -m rlvr_chess.evaluation.seen POSITIONS.jsonl SEEN.bin
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from attrs import frozen

from rlvr_chess.fen import flip, four_fields

STARTER = Path(__file__).parent.parent / "starter" / "seen.bin"
"""What the starter model was pretrained on, as package data; absent where it does not ship."""
_BYTES = 5
_FILES = str.maketrans("abcdefgh", "hgfedcba")


@frozen
class Seen:
    """
    A set of positions to ask `in`, by their first four fields.

    Attributes:
        exact: Positions.
        hashes: Of others (`write_seen`), whose mirrors are seen as well.
    """

    exact: frozenset[str] = frozenset()
    hashes: frozenset[bytes] = frozenset()

    def __contains__(self, position: object) -> bool:
        if position in self.exact:
            return True
        return isinstance(position, str) and any(_hash(m) in self.hashes for m in mirrors(position))

    def hashes_of_exact(self) -> frozenset[bytes]:
        """The hashes of the positions in `exact`."""
        return frozenset(map(_hash, self.exact))


def mirrors(position: str) -> list[str]:
    """The position (four fields) and what its mirrors are, itself first."""
    found = [position, four_fields(flip(f"{position} 0 1"))]
    if position.split()[2] == "-":
        found += [_other_wing(one) for one in found]
    return found


def write_seen(path: Path, fens: Iterable[str]) -> int:
    """Write the file; the number of different positions."""
    hashes = sorted({_hash(four_fields(fen)) for fen in fens})
    path.write_bytes(b"".join(hashes))
    return len(hashes)


@functools.cache
def read_hashes(path: Path) -> frozenset[bytes]:
    """The hashes of a file; none where it is absent."""
    raw = path.read_bytes() if path.is_file() else b""
    return frozenset(raw[i : i + _BYTES] for i in range(0, len(raw), _BYTES))


def _hash(position: str) -> bytes:
    return hashlib.sha256(position.encode()).digest()[:_BYTES]


def _other_wing(position: str) -> str:
    board, turn, castling, passant = position.split()
    board = "/".join(rank[::-1] for rank in board.split("/"))
    return " ".join([board, turn, castling, passant.translate(_FILES)])


def main(argv: list[str]) -> int:
    """`seen POSITIONS.jsonl SEEN.bin`: rows with a "fen"."""
    source, target = map(Path, argv)
    with source.open(encoding="utf-8") as lines:
        count = write_seen(target, (json.loads(line)["fen"] for line in lines))
    print(f"wrote {count} positions to {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
