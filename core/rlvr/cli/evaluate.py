"""`rlvr eval`: how often is a model, or a file of answers, right?"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from rlvr.cli.eval_report import as_json, as_text
from rlvr.cli.eval_sources import Evaluated, crossed, from_file, sampled
from rlvr.cli.options import add_config_flags, add_run_flags
from rlvr.cli.parser import examples
from rlvr.errors import ConfigError, ExitCode, explain
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.run import heldout, trained
from rlvr.run.breakdown import breakdown
from rlvr.run.completions import with_missing
from rlvr.run.configure import Configured
from rlvr.run.configure import configure as resolve_configuration
from rlvr.run.lineage import UNKNOWN, Lineage, lineage_of
from rlvr.run.out_file import write_out
from rlvr.run.prerequisites import check_prerequisites
from rlvr.run.rundir import check_writable, trajectory_records
from rlvr.types import Failed, ScoredGroup

SUMMARY = "measure how often a model is right"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr eval --plugin cvdp --samples 8 --out samples.jsonl",
        "rlvr eval --plugin cvdp --dataset cvdp.jsonl --completions answers.jsonl",
        "rlvr eval --plugin toy --model server:http://localhost:8000#NAME --samples 5",
    )
    add_run_flags(parser)
    parser.add_argument("--sampler", metavar="NAME", help="sampler (default: the backend's)")
    parser.add_argument(
        "--completions",
        metavar="FILE",
        help="evaluate these answers instead of a model; - is stdin",
    )
    parser.add_argument(
        "--run", dest="run_dir", metavar="DIR", help="evaluate the last checkpoint of this run"
    )
    parser.add_argument(
        "--missing",
        choices=("wrong", "skip"),
        help="what an answer that --completions lacks counts as (default: wrong)",
    )
    parser.add_argument(
        "--by", metavar="LABEL,LABEL", default="", help="also slice by these labels together"
    )
    parser.add_argument("--samples", type=int, help="samples a problem (default: 4, or the file's)")
    parser.add_argument("--split", help="split of the data set (default: test)")
    parser.add_argument("--out", dest="out_file", metavar="FILE", help="write every sample here")
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Sample or read, judge, print pass@k with its interval, by label."""
    host = PluginHost.load()
    setup(verbosity=args.verbosity)
    _check_flags(args)
    given = {"eval.samples": args.samples, "eval.split": args.split}
    args.flag_options = {key: value for key, value in given.items() if value is not None}
    needs = "score" if args.completions else "trained" if args.run_dir else "eval"
    if args.run_dir:
        args.base = trained.options_of(Path(args.run_dir))
    configured = resolve_configuration(args, host, needs=needs)
    check_prerequisites(host, configured.chosen.task.provider)
    if args.out_file:
        check_writable(Path(args.out_file))
    begun = time.monotonic()
    found = asyncio.run(
        from_file(configured, args) if args.completions else sampled(configured, args)
    )
    code = _report(configured, args, found, time.monotonic() - begun)
    if args.out_file:
        lines = [json.dumps(r) + "\n" for g in found.scored for r in trajectory_records(g, 0)]
        write_out(Path(args.out_file), "".join(lines))
    return code


def _report(
    configured: Configured, args: argparse.Namespace, found: Evaluated, seconds: float
) -> int:
    scored = found.scored
    as_wrong = args.missing != "skip"
    if found.completions is not None:
        lowest = configured.chosen.reward.bounds[0]
        scored = with_missing(scored, found.samples, lowest, as_wrong=as_wrong)
    facts: dict[str, Any] = {
        "model": args.completions or args.run_dir or configured.run.model,
        "split": found.split,
        "n": found.samples,
        "cut": sum(t.finish == "length" for g in found.scored for t in g.trajectories),
        "unsupported": found.unsupported,
        "seconds": round(seconds, 2),
    }
    if found.completions is not None:
        facts["missing"] = sum(found.completions.missing.values())
        facts["missing_counts_as"] = "wrong" if as_wrong else "nothing"
        facts["unusable"] = list(found.completions.unusable)
        facts["surplus"] = found.completions.surplus
    held = heldout.held_out([group.problem for group in scored], _lineage(configured, args))
    facts |= heldout.facts(held, scored)
    report = breakdown(scored, crossed(args))
    said = f"{as_text(report, facts)}\n{heldout.sentence(held, facts)}"
    print(json.dumps(as_json(report, facts)) if args.json else said)
    return _exit_code(configured, scored)


def _exit_code(configured: Configured, scored: list[ScoredGroup]) -> int:
    """5, and why on standard error, where too many verifications could not run."""
    outcomes = [outcome for group in scored for outcome in group.outcomes]
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
    allowed = configured.options.values["verify.max_failures"]
    if len(failed) <= allowed * len(outcomes):
        return int(ExitCode.DONE)
    said = explain(
        f"{len(failed)} of {len(outcomes)} verifications could not run "
        f"(at most {allowed:.0%} may).",
        f"found: {failed[0].reason}",
        "what could be judged is reported; verify.max_failures=SHARE allows more",
    )
    print(f"rlvr: {said}    (exit {int(ExitCode.VERIFIER)})", file=sys.stderr)
    return int(ExitCode.VERIFIER)


def _lineage(configured: Configured, args: argparse.Namespace) -> Lineage:
    if args.completions:
        return UNKNOWN
    if args.run_dir:
        return trained.lineage_in(Path(args.run_dir))
    return lineage_of(configured.run.model)


def _check_flags(args: argparse.Namespace) -> None:
    if args.samples is not None and args.samples < 1:
        raise ConfigError(
            explain(
                f"{args.samples} samples a problem were asked for.", do="set --samples 1 or more"
            )
        )
    sampling = [f"--{n}" for n in ("model", "backend", "sampler") if getattr(args, n) is not None]
    sampling += ["--run"] if args.run_dir else []
    if args.completions and sampling:
        raise ConfigError(
            explain(
                "answers of a file were to be evaluated (--completions).",
                f"found: {', '.join(sampling)}, which would sample a model",
                "leave one of them out",
            )
        )
    if args.run_dir:
        trained.check_alone(Path(args.run_dir), args.model)
    if args.missing and not args.completions:
        raise ConfigError(
            explain(
                f"--missing {args.missing} was given.",
                "found: no --completions, so no answer can be missing",
                "leave --missing out, or name a file of answers with --completions",
            )
        )
