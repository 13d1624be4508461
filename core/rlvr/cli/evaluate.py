"""`rlvr eval`: pass rates of a model or of a file of answers, alone or beside another one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from rlvr.assembly.configure import configure as resolve_configuration
from rlvr.assembly.configured import Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.trained_model import options_of
from rlvr.cli.compare_report import comparison_as_json, comparison_as_text
from rlvr.cli.eval_against import prepare
from rlvr.cli.eval_figures import figures_as_text
from rlvr.cli.eval_flags import check_flags
from rlvr.cli.eval_report import as_json, as_text
from rlvr.cli.eval_sources import Evaluated, crossed, from_file, judged_before, sampled
from rlvr.cli.options import LIST_HELP, add_config_flags, add_run_flags
from rlvr.cli.parser import examples
from rlvr.concurrency import run_blocking
from rlvr.errors import ExitCode, counted, explain
from rlvr.evaluation import contamination
from rlvr.evaluation.breakdown import breakdown
from rlvr.evaluation.compare_models import compare
from rlvr.evaluation.saved import judged_lines
from rlvr.heartbeat import say
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.records.owner import writing_to
from rlvr.records.read_runs import is_run, trained_at
from rlvr.records.run_directory import write_out
from rlvr.types import Failed


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr eval --plugin cvdp --samples 8 --out samples.jsonl",
        "rlvr eval --plugin toy --model server:http://localhost:8000#NAME --samples 5",
        "rlvr eval --run runs/NAME --against starter",
    )
    add_run_flags(parser)
    parser.add_argument("--sampler", metavar="NAME", help="sampler (default: the backend's)")
    parser.add_argument(
        "--completions",
        metavar="FILE",
        help="evaluate these answers instead of a model; - is stdin",
    )
    parser.add_argument(
        "--run",
        dest="run_dir",
        metavar="DIR",
        help="evaluate the last checkpoint of this run, or DIR/checkpoints/NAME",
    )
    parser.add_argument(
        "--report", metavar="FILE", help="read an evaluation that --out wrote; nothing is sampled"
    )
    parser.add_argument(
        "--against",
        metavar="OTHER",
        help="compare, problem by problem, with a model, a run, or a file like those above",
    )
    parser.add_argument(
        "--missing",
        choices=("wrong", "skip"),
        help="what an answer that --completions lacks counts as (default: wrong)",
    )
    parser.add_argument(
        "--by", metavar="LABELS", default="", help=f"also slice by these together: {LIST_HELP}"
    )
    parser.add_argument("--samples", type=int, help="samples a problem (default: 4, or the file's)")
    parser.add_argument("--split", help="split of the data set (default: test)")
    parser.add_argument(
        "--figures",
        choices=("yes", "no"),
        help="also measure what the task knows to measure besides (default: yes)",
    )
    parser.add_argument("--out", dest="out_file", metavar="FILE", help="write every sample here")
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Sample or read, judge, print pass@k with its interval, by label; compare with another."""
    host = PluginHost.load()
    setup(verbosity=args.verbosity)
    evaluated, other = prepared(args, host)
    with writing_to(args.out_file, vars(args)):
        this = evaluated()
        broken = this.broken
        if other is None or not args.json or broken is not None:
            _print_report(this, args)
        save(this, args)
    sides = [this]
    if other is not None and broken is None:
        sides.append(_asked(other, this, args))
        _print_comparison(this, sides[1], args)
        broken = sides[1].broken
    if broken is not None:  # everything that was judged is reported by now
        raise broken
    return _exit_code(sides)


def prepared(
    args: argparse.Namespace, host: PluginHost
) -> tuple[Callable[[], Evaluated], Callable[[], Evaluated] | None]:
    """
    Read or configure both sides, the other one where `--against` names it; calling does the work.

    Raises:
        ConfigError, PluginError, PrerequisiteError: It cannot begin.
    """
    check_flags(args)
    if args.model and is_run(args.model):
        args.run_dir, args.model = args.model, None
    given = {"eval.samples": args.samples, "eval.split": args.split}
    before = judged_before(Path(args.report), crossed(args)) if args.report else None
    if before is not None:  # what the other side is asked, unless a flag says otherwise
        given = {"eval.samples": before.samples, "eval.split": before.split or None} | {
            key: value for key, value in given.items() if value is not None
        }
    given = {key: value for key, value in given.items() if value is not None}
    args.flag_options = given | getattr(args, "flag_options", {})
    configured = None if before is not None else _configured(args, host)
    other = prepare(args, host, configured) if args.against else None
    return lambda: before or _evaluated(configured, args), other


def save(this: Evaluated, args: argparse.Namespace) -> None:
    """Write every judged sample to `--out`."""
    if args.out_file:
        write_out(Path(args.out_file), "".join(judged_lines(this.scored, this.head)))


def _configured(args: argparse.Namespace, host: PluginHost) -> Configured:
    """The options and parts of an evaluation."""
    needs = "score" if args.completions else "trained" if args.run_dir else "eval"
    if args.run_dir:
        args.base = options_of(trained_at(Path(args.run_dir)).run)
    configured = resolve_configuration(args, host, needs=needs)
    check_prerequisites(host, configured.chosen.task.provider)
    return configured


def _evaluated(configured: Configured | None, args: argparse.Namespace) -> Evaluated:
    """Sample or read, and judge."""
    assert configured is not None, "there is a report where nothing is configured"
    work = from_file if args.completions else sampled
    return run_blocking(lambda: work(configured, args))


def _asked(other: Callable[[], Evaluated], this: Evaluated, args: argparse.Namespace) -> Evaluated:
    """Evaluate the other side; if that fails, print this side's JSON first, so it is not lost."""
    try:
        return other()
    except (Exception, KeyboardInterrupt) as error:
        if args.json:
            said = str(error) or type(error).__name__
            print(json.dumps(_as_json(this, args) | {"against_error": said}), flush=True)
        raise


def _as_json(this: Evaluated, args: argparse.Namespace) -> dict[str, Any]:
    return as_json(breakdown(this.scored, crossed(args)), this.facts) | this.besides.as_json()


def _print_report(this: Evaluated, args: argparse.Namespace) -> None:
    if args.json:
        print(json.dumps(_as_json(this, args)))
        return
    report, facts = breakdown(this.scored, crossed(args)), this.facts
    print(f"{as_text(report, facts)}\n{_held_out(this)}")
    if this.besides.figures:
        print(f"\n{figures_as_text(this.besides.figures)}")


def _print_comparison(this: Evaluated, against: Evaluated, args: argparse.Namespace) -> None:
    found = compare(this.scored, against.scored, crossed(args))
    whole, other = breakdown(this.scored, crossed(args)), breakdown(against.scored)
    if args.json:
        theirs = as_json(other, against.facts) | against.besides.as_json()
        told = _as_json(this, args) | {"against": theirs}
        print(json.dumps(told | {"paired": comparison_as_json(found)}))
        return
    sides = (whole.whole, this.facts), (other.whole, against.facts)
    print(f"\n{comparison_as_text(found, *sides)}\nof the other: {_held_out(against)}")
    if this.besides.figures and against.besides.figures:
        print(f"\n{figures_as_text(this.besides.figures, against.besides.figures)}")


def _held_out(side: Evaluated) -> str:
    if side.held is None:
        return contamination.recorded_sentence(side.facts)
    return contamination.sentence(side.held, side.facts)


def _exit_code(sides: Iterable[Evaluated]) -> int:
    """0; or 5, with the reason on standard error, if too many verifications could not run."""
    for side in sides:
        outcomes = [outcome for group in side.scored for outcome in group.outcomes]
        failed = [outcome for outcome in outcomes if isinstance(outcome, Failed)]
        if side.max_failures is None or len(failed) <= side.max_failures * len(outcomes):
            continue
        said = explain(
            f"{len(failed)} of {counted(len(outcomes), 'verification')} could not run "
            f"(at most {side.max_failures:.0%} may).",
            "the log above says why",
            "what could be judged is reported; verify.max_failures=SHARE allows more",
        )
        say(f"rlvr: {said}    (exit {int(ExitCode.VERIFIER)})")
        return int(ExitCode.VERIFIER)
    return int(ExitCode.DONE)
