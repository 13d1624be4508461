"""
Questions of the rare kinds of moves for both splits of the starter: castling, mates, draws, ...

    python rlvr-chess/starter_model/questions.py [--not-in ../shared/data/chess]

The positions by themselves ask hardly any castling or mate. Games go on from those of a split with
random moves until every kind of move has `EACH` questions in it. A position is asked about once,
and what is held out (mirrors too) trains nothing. Left out of split "test" are positions that train
and those that the starter model has read (mirrors too); of both, those of a folder of other
people's data (`--not-in`). For draws by the clock the clock of a position is set. The same command
gives the same file again.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections import Counter
from collections.abc import Container, Iterator
from pathlib import Path

import chess
from positions import positions_of

from rlvr import BuildContext
from rlvr_chess.config import ChessConfig
from rlvr_chess.evaluation.contamination import STARTER, Seen, mirrors, read_hashes, seen_positions
from rlvr_chess.fen import four_fields
from rlvr_chess.questions.categories import category_of
from rlvr_chess.questions.environment import MAKERS
from rlvr_chess.questions.records import EnvironmentStep, Payload, PolicyPosition
from rlvr_chess.questions.transition import legal_move
from rlvr_chess.starter import QUESTIONS
from rlvr_chess.task import ChessTask

EACH = 40
"""Questions of each kind: some more than the 30 from which on a kind counts in the headline."""
PLIES = 60
ROUNDS = 40
"""Games that go on from each position, at most."""
CLOCKS = {"fifty_move_not_terminal": range(99, 149), "seventyfive_move_draw": range(149, 150)}


def main(arguments: list[str]) -> int:
    """Write one question a line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--not-in", type=Path, help="folder of positions to avoid")
    parser.add_argument("--out", type=Path, default=QUESTIONS, help="file to write")
    options = parser.parse_args(arguments)
    task = ChessTask(ChessConfig(), BuildContext())
    # but for what an earlier drawing has left
    given = [p for p in task.problems("all") if not p.id.startswith("starter-rare-")]
    avoid = positions_of(options.not_in) if options.not_in else set()
    trained = seen_positions(p.payload.fen for p in given if p.split == "train")
    seen = Seen(trained | frozenset(avoid), read_hashes(STARTER))
    rows = list(rare([p.payload for p in given if p.split == "test"], seen, "test"))
    held_out = [p.payload.fen for p in given if p.split == "test"] + [row["fen"] for row in rows]
    avoid |= {mirror for fen in held_out for mirror in mirrors(four_fields(fen))}
    rows += rare([p.payload for p in given if p.split == "train"], avoid, "train")
    options.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    print(f"{len(rows)} questions in {options.out}")
    return 0


def rare(asked: list[Payload], avoid: Container[str], split: str) -> list[dict[str, str]]:
    """Rows for the kinds that have too few questions; no position of `avoid` (four fields)."""
    starts = [step.fen for step in asked if isinstance(step, PolicyPosition)]
    counts = Counter(step.category for step in asked if isinstance(step, EnvironmentStep))
    found = []
    taken = {four_fields(fen) for fen in starts}
    for fen, uci, category in candidates(starts):
        position = four_fields(fen)
        if counts[category] >= EACH or position in taken or position in avoid:
            continue
        taken |= set(mirrors(position))
        counts[category] += 1
        found.append((category, fen, uci))
        if all(counts[kind] >= EACH for kind in KINDS):
            break
    for kind in sorted(set(KINDS) | set(counts)):
        print(f"{split:5} {kind:28} {counts[kind]}")
    return [
        {"category": category, "fen": fen, "split": split, "uci": uci}
        for category, fen, uci in sorted(found)
    ]


KINDS = (
    *("capture", "castle_k", "castle_q", "check", "checkmate", "double_push_ep_square"),
    *("double_push_no_ep", "ep_capture", "fifty_move_not_terminal", "illegal_empty"),
    *("illegal_geometry", "illegal_into_check", "illegal_malformed", "illegal_null"),
    *("illegal_opponent", "illegal_promo_extra", "illegal_promo_missing"),
    *("insufficient_material", "loses_castling", "loses_castling_by_capture", "promo_b"),
    *("promo_capture", "promo_n", "promo_q", "promo_r", "quiet", "seventyfive_move_draw"),
    "stalemate",
)


def candidates(starts: list[str]) -> Iterator[tuple[str, str, str]]:
    """Position, move and kind, over and over, from games that go on from the positions."""
    for number in range(ROUNDS):
        for place, start in enumerate(starts):
            rng = random.Random(f"questions {number} {place}")
            board = chess.Board(start)
            for _ in range(rng.randrange(1, PLIES)):
                if board.is_game_over():
                    break
                fen = board.fen()
                kinds: dict[str, list[chess.Move]] = {}
                for move in sorted(board.legal_moves, key=chess.Move.uci):
                    kinds.setdefault(category_of(fen, move.uci()), []).append(move)
                for kind, moves in kinds.items():
                    yield fen, rng.choice(moves).uci(), kind
                yield from _mistakes(fen, rng)
                yield from _clocks(fen, rng)
                board.push(rng.choice(kinds[rng.choice(sorted(kinds))]))


def _mistakes(fen: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """An illegal move of each kind of mistake that the position offers."""
    board = chess.Board(fen)
    for maker in MAKERS:
        uci = maker(board, rng)
        if uci and legal_move(board, uci) is None:
            yield fen, uci, category_of(fen, uci)


def _clocks(fen: str, rng: random.Random) -> Iterator[tuple[str, str, str]]:
    """The position with a clock that draws, or nearly draws, the game."""
    fields = fen.split(" ")
    for clocks in CLOCKS.values():
        clock = rng.choice(clocks)
        late = " ".join([*fields[:4], str(clock), str(max(int(fields[5]), clock // 2 + 1))])
        moves = sorted(move.uci() for move in chess.Board(late).legal_moves)
        uci = rng.choice(moves)
        yield late, uci, category_of(late, uci)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
