"""`rlvr score`: judge answers in a file, or the references of the data set."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlvr.assembly.configure import configure as resolve_configuration
from rlvr.assembly.configured import Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.recipe import Verifier, build_context, open_verifier
from rlvr.border.promises import problems_of, unsupported_by
from rlvr.builtin.terminal import scoring_progress
from rlvr.cli.options import add_config_flags, add_run_flags
from rlvr.cli.parser import examples
from rlvr.concurrency import Broken, kept, run_blocking
from rlvr.errors import ConfigError, ExitCode, counted
from rlvr.evaluation.answers_file import Answer, golden_answers, none_found, read_answers
from rlvr.heartbeat import say
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.owner import writing_to
from rlvr.records.run_directory import write_out
from rlvr.types import Failed, Outcome, Reward, Unscorable


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr score --plugin cvdp --golden",
        "rlvr score --plugin cvdp --dataset problems.jsonl --golden --out verdicts.jsonl",
        "rlvr score --plugin cvdp --dataset problems.jsonl --completions answers.jsonl",
    )
    add_run_flags(parser, model=False)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--completions", metavar="FILE", help="JSON Lines of answers; - is stdin")
    source.add_argument("--golden", action="store_true", help="the data set's own references")
    parser.add_argument("--out", dest="out_file", metavar="FILE", help="where verdicts go (stdout)")
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    parser.add_argument("--split", default="all", help="split that is scored (default: all)")
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Score, print a line an answer in the order of the input, then a summary."""
    host = PluginHost.load()
    setup(verbosity=args.verbosity)
    configured = resolve_configuration(args, host, needs="score")
    check_prerequisites(host, configured.chosen.task.provider)
    with writing_to(args.out_file, vars(args)):
        records, summary, unclosed = scored(configured, args)
        lines = "".join(json.dumps(record) + "\n" for record in records)
        if args.out_file:
            write_out(Path(args.out_file), lines)
        else:
            sys.stdout.write(lines)
    print(json.dumps(summary) if args.json else _as_text(summary, args.golden))
    if unclosed is not None:
        raise unclosed
    failed = summary["failed"]
    allowed = configured.options.values["verify.max_failures"] * max(summary["answers"], 1)
    if failed > allowed:
        return int(ExitCode.VERIFIER)
    broken = [str(r["error"]) for r in records if _is_unusable(r)]
    if broken and not args.golden:  # everything that could be judged is written
        others = "the others were" if len(broken) < summary["answers"] else "nothing was"
        say(
            f"rlvr: {len(broken)} of {summary['answers']} lines of {args.completions} could not be "
            f"used; {others} scored.\n  found: {broken[0]}    (exit {int(ExitCode.USAGE)})"
        )
        return int(ExitCode.USAGE)
    return int(ExitCode.DONE)


def scored(
    configured: Configured, args: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, Any], Broken]:
    """A record an answer, in the order of the input, the summary, and what closing raised."""
    begun, status = time.monotonic(), RunStatus()
    opening = open_verifier(configured, build_context(configured, None), status)
    (records, problems), unclosed = run_blocking(
        lambda: kept(opening, lambda verifier: _score(verifier, status, args))
    )
    return records, _summary(records, problems, time.monotonic() - begun), unclosed


def _is_unusable(record: Mapping[str, Any]) -> bool:
    """Whether the line of the file is the fault: it was neither judged nor unscorable."""
    error = record["error"]
    return bool(error) and not str(error).startswith(("unscorable", "verification failed"))


async def _score(
    verifier: Verifier, status: RunStatus, args: argparse.Namespace
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    problems = {p.id: p for p in problems_of(verifier.task, args.split)}
    unsupported = unsupported_by(verifier.task)
    for name, reason in unsupported.items():
        say(f"rlvr: {name}: unsupported: {reason}")
    if not problems:
        raise _nothing_to_score(args.split, unsupported)
    if args.golden:
        answers = list(golden_answers(verifier.task, problems.values()))
        if all(answer.trajectory is None for answer in answers):
            raise ConfigError(
                "references were to be scored (--golden).",
                f"found: none for any of the {len(problems)} problems",
                "give answers with --completions, or a data set with references",
            )
    else:
        answers = list(read_answers(args.completions, problems, unsupported))
        if not answers:
            raise none_found(args.completions, "scored", len(problems), args.split)
    pairs = [(problems[a.id], a.trajectory) for a in answers if a.trajectory is not None]
    with scoring_progress(status, quiet=args.json):
        outcomes = iter(await verifier.runner.pairs(pairs))
    records = [_record(a, next(outcomes) if a.trajectory is not None else None) for a in answers]
    return records, {"problems": len(problems), "unsupported": len(unsupported)}


def _nothing_to_score(split: str, unsupported: Mapping[str, str]) -> ConfigError:
    """The error of an empty split: how many rows were left out, and the first reason."""
    found = "no problem in it"
    if unsupported:
        name, reason = next(iter(unsupported.items()))
        found += f"; {counted(len(unsupported), 'unsupported row')}, the first {name}: {reason}"
    return ConfigError(
        f"split '{split}' of the data set was to be scored.",
        f"found: {found}",
        "choose another --split or --dataset, or let Task.problems yield problems of it",
    )


def _record(answer: Answer, outcome: Outcome | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "id": answer.id or None,
        "reward": None,
        "components": {},
        "tests_passed": None,
        "tests_total": None,
        "cached": False,
        "seconds": 0.0,
        "error": answer.error or None,
    }
    if answer.line:
        record["line"] = answer.line
    if isinstance(outcome, Reward):
        record.update(
            reward=outcome.value,
            score01=outcome.score01,
            components=dict(outcome.components),
            tests_passed=outcome.tests_passed,
            tests_total=outcome.tests_total,
            cached=outcome.cached,
            seconds=round(outcome.cost_s, 3),
            evidence=dict(outcome.evidence),
        )
    elif isinstance(outcome, Unscorable):
        record["error"] = f"unscorable: {outcome.reason}"
    elif isinstance(outcome, Failed):
        record["error"] = f"verification failed: {outcome.reason}"
    return record


def _summary(
    records: list[dict[str, Any]], problems: dict[str, int], seconds: float
) -> dict[str, Any]:
    rewards = [r for r in records if r["reward"] is not None]
    errors = [str(r["error"]) for r in records if r["error"]]
    return {
        "answers": len(records),
        "scored": len(rewards),
        "right": sum(r["score01"] == 1.0 for r in rewards),
        "reward_mean": sum(r["reward"] for r in rewards) / len(rewards) if rewards else None,
        "cached": sum(r["cached"] for r in rewards),
        "unscorable": sum(e.startswith("unscorable") for e in errors),
        "failed": sum(e.startswith("verification failed") for e in errors),
        "unusable": sum(map(_is_unusable, records)),
        **problems,
        "seconds": round(seconds, 2),
    }


def _as_text(summary: dict[str, Any], golden: bool) -> str:
    rate = summary["scored"] / summary["seconds"] if summary["seconds"] else 0.0
    mean = summary["reward_mean"]
    return (
        f"scored {summary['scored']} of {counted(summary['answers'], 'answer')}: "
        f"{summary['right']} right, mean reward {'-' if mean is None else f'{mean:.3f}'}; "
        f"{summary['unscorable']} unscorable, {summary['failed']} could not be verified, "
        f"{summary['unusable']} {'without a reference' if golden else 'unusable lines'}; "
        f"{summary['cached']} cached; "
        f"{counted(summary['problems'], 'problem')}, {summary['unsupported']} unsupported; "
        f"{summary['seconds']:.1f} s, {rate:.1f}/s"
    )
