"""`rlvr audit`: does the verifier accept right answers and reject wrong ones, every time?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlvr.assembly.configure import configure as resolve_configuration
from rlvr.assembly.configured import Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.recipe import build_context, open_verifier
from rlvr.border.promises import problems_of
from rlvr.builtin.terminal import scoring_progress
from rlvr.cli.options import LIST_HELP, add_config_flags, add_run_flags
from rlvr.cli.output import print_json, table
from rlvr.cli.parser import examples
from rlvr.concurrency import run_blocking
from rlvr.config.coerce import names_in
from rlvr.config.core import MOST
from rlvr.errors import ConfigError, ExitCode, UnknownNameError, counted
from rlvr.heartbeat import is_redrawn, redraw, say
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.owner import writing_to
from rlvr.suggest import did_you_mean
from rlvr.training.run_json import versions
from rlvr.types import Failed, Problem
from rlvr.verifier_audit.auditor import Auditor, AuditPlan
from rlvr.verifier_audit.findings import AuditFile, ProblemAudit


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr audit --plugin cvdp --only cvdp_starter_bitwise_0001",
        "rlvr audit --plugin cvdp --dataset problems.jsonl --out audit.json",
        "rlvr audit --plugin cvdp --dataset problems.jsonl cvdp.references=solutions.jsonl",
    )
    add_run_flags(parser, model=False)
    parser.add_argument("--split", default="all", help="split that is audited (default: all)")
    parser.add_argument("--only", metavar="IDS", help=f"these problems: {LIST_HELP}")
    parser.add_argument("--mutants", type=int, default=25, metavar="N", help="a problem (25)")
    parser.add_argument(
        "--repeats", type=int, default=3, metavar="N", help="seeds for the reference (3)"
    )
    parser.add_argument(
        "--weak",
        type=float,
        default=0.9,
        metavar="SHARE",
        help="a problem that rejects a smaller share of its mutants is weak (0.9)",
    )
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    parser.add_argument(
        "--out", dest="out_file", metavar="FILE", help="result as JSON, kept up to date"
    )
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Audit, print a line a problem and the whole, or with `--json` the result itself."""
    setup(verbosity=args.verbosity)
    file, done, has_failed = audited(args, PluginHost.load())
    if args.json:
        print_json(file.to_json())
    else:
        print(_as_text({name: file.problems[name] for name in done}))
    return int(ExitCode.VERIFIER if has_failed else ExitCode.DONE)


def audited(
    args: argparse.Namespace, host: PluginHost, told: Callable[[], None] = lambda: None
) -> tuple[AuditFile, list[str], bool]:
    """
    The result, the ids of this audit, and whether too many verifications could not run.

    `told` is called whenever a problem is done.
    """
    _check(args)
    configured = resolve_configuration(args, host, needs="score")
    check_prerequisites(host, configured.chosen.task.provider)
    path = Path(args.out_file) if args.out_file else None
    with writing_to(path, vars(args)):
        file = AuditFile.open(path, _head(configured, host, args), args.weak)
        try:
            done, failed, judged = run_blocking(lambda: _audit(configured, args, file, told))
        except KeyboardInterrupt:
            if path is not None:
                say(f"rlvr: {counted(len(file.problems), 'problem')} kept in {path}")
            raise
    allowed = configured.options.values["verify.max_failures"] * max(judged, 1)
    return file, done, failed > allowed


def _check(args: argparse.Namespace) -> None:
    for flag, value, least in (("--mutants", args.mutants, 0), ("--repeats", args.repeats, 1)):
        if not least <= value <= MOST:
            do = f"give a number from {least} to {MOST}"
            raise ConfigError(f"{flag} {value} was given.", do=do)
    if not 0 <= args.weak <= 1:
        raise ConfigError(f"--weak {args.weak} was given.", do="give a share from 0 to 1")


def _head(configured: Configured, host: PluginHost, args: argparse.Namespace) -> dict[str, Any]:
    namespaces = {
        spec.option_namespace
        for spec in (configured.chosen.task, configured.chosen.reward)
        if spec is not None and spec.config
    }
    own = {
        key: value
        for key, value in configured.options.values.items()
        if key.partition(".")[0] in namespaces
    }
    asked = {"mutants": args.mutants, "repeats": args.repeats, "weak": args.weak}
    return {
        "plugin": configured.chosen.task.provider,
        "dataset": Path(configured.run.dataset).name if configured.run.dataset else "",
        "options": {**asked, "seed": configured.run.seed, "split": args.split, **own},
        "versions": versions(host),
    }


async def _audit(
    configured: Configured, args: argparse.Namespace, file: AuditFile, told: Callable[[], None]
) -> tuple[list[str], int, int]:
    """Ids in order, verifications that could not run, and all of them."""
    status = RunStatus()
    context = build_context(configured, None)
    async with open_verifier(configured, context, status) as verifier:
        problems = _chosen(problems_of(verifier.task, args.split), args)
        plan = AuditPlan(
            mutants=args.mutants,
            seeds=tuple(range(1, args.repeats + 1)),
            seed=configured.run.seed,
        )

        def finished(audit: ProblemAudit) -> None:
            file.add(audit)
            told()
            if getattr(args, "quiet", 0):
                return
            count = sum(p.id in file.problems for p in problems)
            if is_redrawn(sys.stderr):
                redraw("")
            line = _line(audit, args.weak)
            say(f"{count}/{len(problems)}  {line}")

        auditor = Auditor(verifier.task, verifier.runner, plan, finished)
        with scoring_progress(status, quiet=args.json):
            await auditor.audit(problems)
    failed = sum(isinstance(o, Failed) for o in auditor.outcomes)
    return [p.id for p in problems], failed, len(auditor.outcomes)


def _chosen(problems: list[Problem], args: argparse.Namespace) -> list[Problem]:
    if args.only:
        known = {p.id: p for p in problems}
        names = names_in(args.only, known)
        for name in names:
            if name not in known:
                raise UnknownNameError(
                    f"problem {name!r} was to be audited.", did_you_mean(name, known)
                )
        problems = [known[name] for name in dict.fromkeys(names)]
    if not problems:
        raise ConfigError(
            f"split '{args.split}' of the data set was to be audited.",
            "found: no problem in it",
            "choose another --split or --dataset, or let Task.problems yield problems of it",
        )
    return problems


def _line(audit: ProblemAudit, least: float) -> str:
    reasons = audit.reasons(least)
    strength = audit.strength
    told = "no mutants" if strength is None else f"{strength:.0%} of the mutants rejected"
    return f"{audit.problem.id}: {told}" + (f"; weak: {'; '.join(reasons)}" if reasons else "")


def _as_text(problems: dict[str, Any]) -> str:
    rows = []
    for name, record in problems.items():
        counts = record["kinds"].values()
        mutants = record["strength"]
        rows.append(
            [
                name,
                record["reference"],
                record["initial"],
                "-" if mutants is None else f"{mutants:.0%}",
                sum(c["equivalent"] for c in counts),
                sum(c["undecided"] for c in counts),
                "flaky" if record["flaky"] else "steady",
                "; ".join(record["reasons"]) or "-",
            ]
        )
    header = ["problem", "reference", "initial", "strength", "equivalent", "undecided"]
    header += ["verdicts", "weak because"]
    weak = sum(record["weak"] for record in problems.values())
    flaky = sum(record["flaky"] for record in problems.values())
    known = [r["strength"] for r in problems.values() if r["strength"] is not None]
    told = "no mutants, so that strength was not measured: Task.probes gives them"
    if known:
        told = f"mean strength {sum(known) / len(known):.1%} over {len(known)} with mutants"
    return (
        f"{table(header, rows)}\n"
        f"{counted(len(problems), 'problem')}: {weak} weak, {flaky} flaky; {told}"
    )
