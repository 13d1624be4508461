"""`rlvr chess generate`: training rows with right answers, for supervised training elsewhere."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from rlvr import BuildContext, ConfigError, Problem
from rlvr_chess.commands.arguments import parser_of, share
from rlvr_chess.config import ChessConfig
from rlvr_chess.problem import right_answer
from rlvr_chess.questions.records import EnvironmentStep, Solution
from rlvr_chess.tables.store import TableStore
from rlvr_chess.task import ChessTask

_AT_ONCE = 64
"""Positions whose values are asked for at the same time."""


def generate(argv: list[str]) -> int:
    """Write `{"id", "prompt", "completion"}` a line; says what was left out."""
    options = _parser().parse_args(argv)
    chosen = ("profile", "tasks", "holdout", "history", "tables", "nodes", "engine")
    config = ChessConfig(**{name: getattr(options, name) for name in chosen})
    task = ChessTask(config, BuildContext(dataset=options.dataset, seed=options.seed))
    problems = [p for p in task.problems(options.split) if not isinstance(p.payload, Solution)]
    for name, reason in task.unsupported().items():
        print(f"left out: {name}: {reason}", file=sys.stderr)
    for text in task.warnings(options.split):
        print(f"note: {text}", file=sys.stderr)
    if not problems:
        raise ConfigError(
            f"training rows of {options.dataset or 'the starter positions'} were asked for.",
            f"found: no position to train on in split {options.split!r}",
            "choose another --split, --tasks or --dataset (suites and puzzles have no values "
            "of moves, so no rows are made of them)",
        )
    count = asyncio.run(_write(options.out, problems, config, options.seed))
    print(f"{options.out}: {count} rows, profile {config.profile}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(
        "generate",
        "Write training rows with right answers: a policy line is the table's best "
        "moves for the side to move, a state is what the rules say.",
        "generate --out rows.jsonl",
        "generate --dataset games.pgn --tasks environment --out rows.jsonl",
        "generate --dataset values.jsonl --profile rookworld --out rows.jsonl",
    )
    parser.add_argument("--dataset", type=Path, help="any chess data set; default: the starter's")
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines to write")
    parser.add_argument("--profile", choices=("canonical", "rookworld"), default="canonical")
    parser.add_argument("--tasks", choices=("both", "policy", "environment"), default="both")
    parser.add_argument("--split", choices=("train", "test", "all"), default="train")
    parser.add_argument("--seed", type=int, default=0, help="of the candidates' order (rookworld)")
    parser.add_argument("--holdout", type=share, default=0.2, help="share held out as split test")
    parser.add_argument("--history", type=int, default=0, help="last moves in environment prompts")
    parser.add_argument("--tables", default="", help="action-value tables of the positions")
    parser.add_argument("--nodes", type=int, default=100_000, help="of searches, on a table's miss")
    parser.add_argument("--engine", default="", help="engine binary; default: stockfish")
    return parser


async def _write(out: Path, problems: Sequence[Problem], config: ChessConfig, seed: int) -> int:
    count = 0
    try:
        handle = out.open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"training rows were to be written to {out}.",
            f"found: {error.strerror}",
            "choose another --out",
        ) from None
    with handle:
        async for problem, text in _answered(problems, config, seed):
            row = {"id": problem.id, "prompt": problem.prompt[0].content, "completion": text}
            handle.write(json.dumps(row) + "\n")
            count += 1
    return count


async def _answered(
    problems: Sequence[Problem], config: ChessConfig, seed: int
) -> AsyncIterator[tuple[Problem, str]]:
    """Each problem with its right answer; the engine scores what no table holds."""
    async with TableStore.of(config) as store:

        async def answer(problem: Problem) -> str:
            payload, values = problem.payload, None
            if not isinstance(payload, EnvironmentStep) and payload.values is None:
                values = await store.values(payload.fen)
            text = right_answer(payload, config.wording, values, seed)
            assert text is not None  # values are known by now
            return text

        for start in range(0, len(problems), _AT_ONCE):
            batch = problems[start : start + _AT_ONCE]
            for problem, text in zip(batch, await asyncio.gather(*map(answer, batch)), strict=True):
                yield problem, text
