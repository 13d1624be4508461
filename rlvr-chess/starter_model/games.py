"""
Plays games of a shallow engine against itself and writes each position with every move's score.

    python rlvr-chess/starter_model/games.py --out games.jsonl

One line a position: `{"fen", "moves": [[uci, kind, value]...], "game", "ply"}`. A game begins with
random moves, so no two are alike, and blunders on the way, so that won and lost positions and
endgames are met. The engine searches all legal moves at once and remembers within a game only:
the same seed gives the same games with any number of processes.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import chess

from rlvr_chess.values import win_probability

LONGEST = (40, 180)  # plies of a game: at most a number between these
Scored = list[tuple[str, str, int]]  # (UCI, "cp" or "mate", value) a legal move, best first


class Engine:
    """A Stockfish process that scores all legal moves of a position."""

    def __init__(self, path: str, nodes: int) -> None:
        self.nodes = nodes
        self._process = subprocess.Popen(
            [path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._say("uci\nsetoption name MultiPV value 256\nsetoption name Hash value 4\n")

    def _say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def new_game(self) -> None:
        """Forget what was searched."""
        self._say("ucinewgame\n")

    def scores(self, board: chess.Board) -> Scored:
        """Every legal move, of the last depth that was completed for all of them."""
        self._say(f"position fen {board.fen()}\ngo nodes {self.nodes}\n")
        count = board.legal_moves.count()
        done: Scored = []
        depth, rows = "", []
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("bestmove"):
                return done
            words = line.split()
            if len(words) < 20 or "multipv" not in words or "bound" in line:
                continue
            at = words.index("score")
            if words[2] != depth:
                depth, rows = words[2], []
            move = words[words.index("pv") + 1]
            rows.append((move, words[at + 1], int(words[at + 2])))
            if len(rows) == count and len({row[0] for row in rows}) == count:
                done = rows
        raise EOFError("the engine ended")

    def close(self) -> None:
        """End the process."""
        self._say("quit\n")
        self._process.wait()


def play(engine: Engine, rng: random.Random, blunders: float, warmth: float) -> list[Any]:
    """Positions of one game, as the rows to write."""
    board = chess.Board()
    for _ in range(rng.randint(2, 14)):
        if board.is_game_over():
            return []
        board.push(rng.choice(sorted(board.legal_moves, key=chess.Move.uci)))
    engine.new_game()
    rows: list[Any] = []
    longest = rng.randint(*LONGEST)
    while len(board.move_stack) < longest and not board.is_game_over():
        if board.is_repetition(3) or board.halfmove_clock >= 60:
            break
        scores = engine.scores(board)
        if not scores:
            break
        rows.append({"fen": board.fen(), "moves": scores, "ply": board.ply()})
        if rng.random() < blunders:
            chosen = rng.choice(sorted(uci for uci, _, _ in scores))
        else:
            worth = [win_probability(kind, value) for _, kind, value in scores]
            odds = [math.exp((w - max(worth)) / warmth) for w in worth]
            chosen = rng.choices([uci for uci, _, _ in scores], odds)[0]
        board.push_uci(chosen)
    return rows


def work(job: tuple[int, argparse.Namespace]) -> Path:
    """Play every `processes`-th game, into a part file."""
    number, options = job
    path = Path(f"{options.out}.{number}")
    engine = Engine(options.engine, options.nodes)
    began, total = time.monotonic(), 0
    with path.open("w") as out:
        for game in range(number, options.games, options.processes):
            rng = random.Random(f"{options.seed}/{game}")
            for row in play(engine, rng, rng.choice((0.05, 0.15, 0.3)), 0.04):
                out.write(json.dumps({**row, "game": game}, separators=(",", ":")) + "\n")
                total += 1
            if game // options.processes % 50 == 49:
                speed = total / (time.monotonic() - began)
                print(f"game {game}: {total} positions, {speed:.0f}/s", flush=True)
                out.flush()
    engine.close()
    return path


def merge(parts: list[Path], out: Path) -> None:
    """Write the games of the parts in the order of their numbers."""
    rows: list[tuple[int, str]] = []
    for part in parts:
        with part.open() as lines:
            rows += [(json.loads(line)["game"], line) for line in lines]
    rows.sort(key=lambda row: row[0])  # stable: plies stay in their order
    with out.open("w") as file:
        file.writelines(line for _, line in rows)


def main(arguments: list[str]) -> int:
    """Play on all processes, then put the parts together in the order of the games."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines to write")
    parser.add_argument("--games", type=int, default=1600, help="games to play")
    parser.add_argument("--nodes", type=int, default=6000, help="of a search")
    parser.add_argument("--seed", type=int, default=1, help="of openings and blunders")
    parser.add_argument("--processes", type=int, default=2, help="engines at a time")
    parser.add_argument("--engine", default="/usr/games/stockfish", help="Stockfish binary")
    options = parser.parse_args(arguments)
    with multiprocessing.Pool(options.processes) as pool:
        parts = pool.map(work, [(n, options) for n in range(options.processes)], chunksize=1)
    merge(parts, options.out)
    for part in parts:
        part.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
