"""
Batches of lessons: rows of one task and of like lengths together, with the hints.

Shapes: B rows, T tokens.
"""

from __future__ import annotations

import argparse
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hints import HEADS, IGNORED, Widths
from lessons import lessons, read_positions
from vocabulary import make_tokenizer

from rlvr_chess.fen import four_fields

POOL = 2048  # lessons sorted by length at a time

Row = tuple[list[int], int]  # tokens of prompt, answer and end; length of the prompt
Batch = tuple[Any, Any, Any, Any, Any]  # tokens, next tokens, and hints: (B, T) or (B, T, ...)


def make_batches(
    seed: int, policy: float, plain: float, options: argparse.Namespace
) -> Iterator[Batch]:
    """Batches without end: rows of one task and of like lengths together."""
    tokenizer = make_tokenizer()
    widths = Widths(tokenizer)
    positions = read_positions(options.positions, held_out(options.held_out))
    source = lessons(positions, seed, policy, plain)
    rng = random.Random(seed)
    while True:
        drawn = list(itertools.islice(source, POOL))
        prompts = tokenizer.encode_batch([prompt for prompt, _ in drawn])
        answers = tokenizer.encode_batch([answer for _, answer in drawn])
        rows = [([*p, *a, tokenizer.eos_id], len(p)) for p, a in zip(prompts, answers, strict=True)]
        rows.sort(key=lambda row: (row[0][0], len(row[0])))
        batches: list[list[Row]] = [[]]
        for row in rows:
            is_other = batches[-1] and batches[-1][0][0][0] != row[0][0]
            if len(row[0]) * (len(batches[-1]) + 1) > options.tokens or is_other:
                batches.append([])
            batches[-1].append(row)
        rng.shuffle(batches)
        yield from (pad(batch, widths) for batch in batches)


def held_out(path: Path) -> set[str]:
    """Four fields of each position of a FEN list."""
    return {four_fields(fen) for fen in path.read_text().splitlines()}


def pad(rows: list[Row], widths: Widths) -> Batch:
    """Tokens, what follows each, and hints; `IGNORED` where there is nothing to learn."""
    longest = max(len(tokens) for tokens, _ in rows) - 1
    tokens = np.zeros((len(rows), longest), dtype=np.int64)
    wanted, squares = (np.full_like(tokens, IGNORED) for _ in range(2))
    places = np.full((*tokens.shape, HEADS + 1), IGNORED)
    men = np.full((*tokens.shape, 8), IGNORED)
    for k, (row, start) in enumerate(rows):
        size = len(row) - 1
        tokens[k, :size] = row[:-1]
        wanted[k, start - 1 : size] = row[start:]
        squares[k, :size], places[k, :size], men[k, :size] = widths.hints(row[:-1], start)
    return tokens, wanted, squares, places, men
