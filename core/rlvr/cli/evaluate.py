"""`rlvr eval`: how often is a model right?"""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import attrs

from rlvr.builtin.scoring_progress import scoring_progress
from rlvr.cli.options import add_config_flags, add_run_flags
from rlvr.cli.parser import examples
from rlvr.config.core import EvalOptions
from rlvr.errors import ConfigError, explain
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.run.batches import seed_of
from rlvr.run.board import Board
from rlvr.run.configure import Configured
from rlvr.run.configure import configure as resolve_configuration
from rlvr.run.evaluate import evaluate
from rlvr.run.prerequisites import check_prerequisites
from rlvr.run.recipe import build_context, open_student
from rlvr.run.rundir import check_writable, trajectory_records, write_atomic
from rlvr.types import EvalReport, ScoredGroup

SUMMARY = "measure how often a model is right"
DEFAULT_SAMPLES = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr eval --plugin cvdp",
        "rlvr eval --plugin cvdp --samples 8 --out samples.jsonl",
        "rlvr eval --plugin toy --model starter --samples 16",
    )
    add_run_flags(parser)
    parser.add_argument("--samples", type=int, help="samples a problem (default: 4)")
    parser.add_argument("--split", help="split of the data set (default: test)")
    parser.add_argument("--out", dest="out_file", metavar="FILE", help="write every sample here")
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Sample, judge, print pass@k with its interval."""
    host = PluginHost.load()
    setup(verbosity=args.verbosity)
    if args.samples is not None and args.samples < 1:
        raise ConfigError(
            explain(
                f"{args.samples} samples a problem were asked for.", do="set --samples 1 or more"
            )
        )
    given = {"eval.samples": args.samples, "eval.split": args.split}
    args.flag_options = {key: value for key, value in given.items() if value is not None}
    configured = resolve_configuration(args, host, needs="eval")
    check_prerequisites(host, configured.chosen.task.provider)
    if args.out_file:
        check_writable(Path(args.out_file))
    report, groups = asyncio.run(_evaluate(configured, args))
    if args.out_file:
        lines = [json.dumps(r) + "\n" for g in groups for r in trajectory_records(g, 0)]
        write_atomic(Path(args.out_file), "".join(lines))
    summary = _summary(configured, report)
    print(json.dumps(summary) if args.json else _as_text(summary))
    return 0


async def _evaluate(
    configured: Configured, args: argparse.Namespace
) -> tuple[EvalReport, list[ScoredGroup]]:
    board = Board()
    context = build_context(configured, None)
    async with open_student(configured, context, board) as student:
        options: EvalOptions = configured.options.record("eval")
        problems = list(student.judge.task.problems(options.split))
        problems = problems[: options.problems or None]
        if not problems:
            raise ConfigError(
                explain(
                    f"split '{options.split}' was to be evaluated.",
                    f"found: no usable problem in it; {len(student.judge.task.unsupported())} "
                    "rows are unsupported",
                    "choose another --split or --dataset",
                )
            )
        params = attrs.evolve(
            student.params,
            group_size=options.samples or DEFAULT_SAMPLES,
            seed=seed_of(configured.run.seed, "evaluate"),
        )
        with scoring_progress(board, quiet=args.json):
            return await evaluate(
                await student.backend.policy(),
                student.judge.task,
                student.sampler,
                student.judge.scorer,
                problems,
                params,
                split=options.split,
            )


def _summary(configured: Configured, report: EvalReport) -> dict[str, Any]:
    return {
        "model": configured.run.model,
        "split": report.split,
        "problems": len(report.scores),
        "samples": report.samples,
        "failed": report.failed,
        "pass_at": {str(k): v for k, v in report.pass_at.items()},
        "low": report.low,
        "high": report.high,
        "reward_mean": report.reward_mean,
        "seconds": round(report.seconds, 2),
    }


def _as_text(summary: dict[str, Any]) -> str:
    rates = "  ".join(f"pass@{k} {v:.1%}" for k, v in summary["pass_at"].items())
    return (
        f"{rates or 'nothing could be verified'}  95 % interval of pass@1 "
        f"[{summary['low']:.1%}, {summary['high']:.1%}]  mean reward {summary['reward_mean']:.3f}\n"
        f"{summary['problems']} {summary['split']} problems, {summary['samples']} samples, "
        f"{summary['failed']} not scored, {summary['seconds']:.0f} s"
    )
