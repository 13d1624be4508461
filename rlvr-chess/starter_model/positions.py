"""
Chooses the positions that ship, out of games that `games.py` played with another seed.

    python rlvr-chess/starter_model/positions.py --games shipped_games.jsonl --count 3600 \
        --not-in ../shared/data/chess --out shipped.fen

Then `rlvr chess build-table` scores them. A position needs two legal moves and something to
choose: in the shallow search its best and worst move are apart by `SPREAD` or more. Positions that
a folder of other people's data holds (`--not-in`) are left out.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from pathlib import Path

import chess.pgn

from rlvr_chess.fen import FenError, four_fields
from rlvr_chess.values import win_probability

SPREAD = 0.05  # win probability
FEN = re.compile(
    r"((?:[pnbrqkPNBRQK1-8]{1,8}/){7}[pnbrqkPNBRQK1-8]{1,8} [wb] (?:-|K?Q?k?q?) (?:-|[a-h][36]))"
)


def main(arguments: list[str]) -> int:
    """Write one FEN a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--games", type=Path, required=True, help="JSON Lines of games.py")
    parser.add_argument("--count", type=int, default=3600, help="positions to choose")
    parser.add_argument("--seed", type=int, default=1, help="of the choice")
    parser.add_argument("--not-in", type=Path, help="folder of positions to avoid")
    parser.add_argument("--out", type=Path, required=True, help="FEN list to write")
    options = parser.parse_args(arguments)
    avoid = positions_of(options.not_in) if options.not_in else set()
    rows = [json.loads(line) for line in options.games.read_text().splitlines()]
    random.Random(options.seed).shuffle(rows)
    chosen: dict[str, str] = {}
    met = 0
    for row in rows:
        worth = [win_probability(kind, value) for _, kind, value in row["moves"]]
        key = four_fields(row["fen"])
        met += key in avoid
        if len(worth) > 1 and max(worth) - min(worth) >= SPREAD and key not in avoid:
            chosen.setdefault(key, row["fen"])
    if len(chosen) < options.count:
        raise SystemExit(f"only {len(chosen)} positions, {options.count} wanted: play more games")
    fens = sorted(list(chosen.values())[: options.count])
    options.out.write_text("".join(f"{fen}\n" for fen in fens))
    print(f"{len(rows)} rows, {met} of them in the folder to avoid ({len(avoid)} positions)")
    return 0


def positions_of(folder: Path) -> set[str]:
    """Four fields of every position that a file of the folder spells, or a game of it meets."""
    found = set()
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        text = path.read_text("utf-8", errors="replace")
        for fields in FEN.findall(text):
            found.add(key_of(f"{fields} 0 1"))
        if path.suffix == ".pgn":
            found |= of_games(path)
        if path.suffix == ".uci":
            for line in text.splitlines():
                found |= of_line(line.split())
    return found


def key_of(fen: str) -> str:
    """Four fields; of an impossible position as they are written."""
    try:
        return four_fields(fen)
    except FenError:
        return " ".join(fen.split()[:4])


def of_games(path: Path) -> set[str]:
    """Every position on the main lines of a PGN."""
    found = set()
    with path.open(encoding="utf-8", errors="replace") as file:
        while (game := chess.pgn.read_game(file)) is not None:
            board = game.board()
            for move in game.mainline_moves():
                found.add(four_fields(board.fen()))
                board.push(move)
            found.add(four_fields(board.fen()))
    return found


def of_line(moves: list[str]) -> set[str]:
    """Every position along UCI moves from the start; what follows an illegal one is left out."""
    board, found = chess.Board(), set()
    for uci in moves:
        found.add(four_fields(board.fen()))
        try:
            board.push_uci(uci)
        except ValueError:
            break
    found.add(four_fields(board.fen()))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
