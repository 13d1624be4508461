"""The subcommand `rlvr sad cache-teacher`: a teacher's answers about trajectories, in files."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from rlvr import ConfigError, counted, is_redrawn, open_policy, open_teacher, redraw
from rlvr_sad.commands.arguments import parser_of
from rlvr_sad.teacher_cache.make import Made, Wish, make


def cache_teacher(argv: list[str]) -> int:
    """Ask about every trajectory, training and held out, that has no answer yet."""
    parser = parser_of(
        "cache-teacher",
        "Ask a teacher once about recorded trajectories and keep its likeliest tokens, "
        "for runs with --teacher file:DIR. Goes on where it was interrupted.",
        "rlvr sad cache-teacher --teacher hf:big --model hf:small --dataset logs/ --out answers",
        "rlvr sad cache-teacher --teacher hf:big --model hf:small --dataset a.jsonl --k 20 "
        "--out answers replay.max_tokens=4096",
        "rlvr run --plugin sad --algo sad --dataset logs/ --model hf:small "
        "--teacher file:answers distill.top_k=64",
    )
    parser.add_argument(
        "--teacher", required=True, metavar="SPEC", help="model spec of the teacher"
    )
    parser.add_argument("--model", required=True, metavar="SPEC", help="model spec of the student")
    parser.add_argument("--dataset", required=True, metavar="FILES", help="file or folder of logs")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="where they are kept"
    )
    parser.add_argument("--k", type=int, default=64, help="tokens a position (default 64)")
    parser.add_argument("--temperature", type=float, default=1.0, help="of the teacher (default 1)")
    parser.add_argument("--batch", type=int, default=8, help="trajectories at once (default 8)")
    parser.add_argument(
        "overrides", nargs="*", metavar="key=value", help="sad.*, replay.*, torch.*"
    )
    options = parser.parse_args(argv)
    if options.k < 1 or options.batch < 1 or not options.temperature > 0:
        raise ConfigError(
            "a teacher's likeliest tokens were to be kept.",
            f"found: --k {options.k} --batch {options.batch} --temperature {options.temperature:g}",
            "give numbers above 0",
        )
    made = asyncio.run(_make(options))
    print(
        f"{options.out}: {counted(made.asked, 'sequence')} asked about "
        f"({counted(made.positions, 'position')}), {made.known} were there"
    )
    return 0


async def _make(options: argparse.Namespace) -> Made:
    wish = Wish(
        folder=options.out,
        k=options.k,
        temperature=options.temperature,
        at_once=options.batch,
    )
    chosen = [*options.overrides, "run.sampler=replay"]
    async with (
        open_policy(
            "sad", model=options.model, dataset=Path(options.dataset), options=chosen
        ) as student,
        open_teacher(options.teacher, options=options.overrides) as teacher,
    ):
        return await make(wish, teacher, student.policy, student.task, student.sampler, _tell)


def _tell(done: int, of: int) -> None:
    if is_redrawn(sys.stderr):
        redraw(f"{done} of {of} trajectories")
        if done == of:
            print(file=sys.stderr)
