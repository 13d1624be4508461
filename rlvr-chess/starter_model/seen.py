"""
Write `rlvr_chess/starter/seen.bin`: five bytes of each position that the starter was trained on.

    python rlvr-chess/starter_model/seen.py POSITIONS.jsonl SEEN.bin
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from rlvr_chess.evaluation.contamination import hash_of
from rlvr_chess.fen import four_fields


def write_seen(path: Path, fens: Iterable[str]) -> int:
    """Write the file; the number of different positions."""
    hashes = sorted({hash_of(four_fields(fen)) for fen in fens})
    path.write_bytes(b"".join(hashes))
    return len(hashes)


def main(argv: list[str]) -> int:
    """`seen.py POSITIONS.jsonl SEEN.bin`: rows with a "fen"."""
    source, target = map(Path, argv)
    with source.open(encoding="utf-8") as lines:
        count = write_seen(target, (json.loads(line)["fen"] for line in lines))
    print(f"wrote {count} positions to {target}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
