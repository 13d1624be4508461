"""`rlvr rescore`: apply a reward to the trajectories of a run."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rlvr.assembly.configure import configure as resolve_configuration
from rlvr.assembly.configured import Configured
from rlvr.assembly.recipe import Verifier, build_context, open_verifier
from rlvr.border.promises import problems_of
from rlvr.cli.options import add_config_flags
from rlvr.cli.parser import examples
from rlvr.concurrency import Broken, kept
from rlvr.config.layers import Layer, without_gone
from rlvr.errors import ConfigError, ExitCode, counted
from rlvr.heartbeat import say
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.owner import writing_to
from rlvr.records.run_directory import RunDir, write_out
from rlvr.records.trajectories import trajectory_from_json
from rlvr.types import Outcome
from rlvr.verification.verdict import outcome_to_json


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr rescore runs/NAME",
        "rlvr rescore runs/NAME --reward cvdp --out rescored.jsonl",
        "rlvr rescore runs/NAME --workers 2 --json",
    )
    parser.add_argument("run", metavar="RUN", help="run directory")
    parser.add_argument("--reward", help="reward to apply (default: the run's own)")
    parser.add_argument(
        "--out", dest="out_file", metavar="FILE", help="default: RUN/rescored.jsonl"
    )
    parser.add_argument("--workers", type=int, help="verifications at a time (default: cores)")
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Score every kept trajectory again and compare with what the run saw."""
    directory = RunDir.open(Path(args.run))
    host = PluginHost.load()
    setup(verbosity=args.verbosity)
    config = without_gone(directory.read_run()["config"])
    config.pop("run.reward", None)
    args.base = Layer(f"run {directory.path}", config, is_typed=True)
    configured = resolve_configuration(args, host, needs="score")
    path = Path(args.out_file) if args.out_file else directory.path / "rescored.jsonl"
    with writing_to(path, vars(args)):
        records, unknown, unclosed = asyncio.run(_rescore(configured, directory))
        write_out(path, "".join(json.dumps(r) + "\n" for r in records))
    summary = {**_summary(records, configured, path), "unknown": len(unknown)}
    for name in sorted(set(unknown)):
        say(f"rlvr: {name}: no such problem in the data set any more")
    print(json.dumps(summary) if args.json else _as_text(summary))
    if unclosed is not None:
        raise unclosed
    allowed = configured.options.values["verify.max_failures"] * len(records)
    return int(ExitCode.VERIFIER if summary["failed"] > allowed else ExitCode.DONE)


async def _rescore(
    configured: Configured, directory: RunDir
) -> tuple[list[dict[str, Any]], list[str], Broken]:
    """A record a trajectory, the problems that are gone, and what closing raised."""
    lines: list[dict[str, Any]] = []
    for path in directory.trajectory_files():
        kind = path.stem.partition("-")[0]
        for line in directory.read_lines(f"trajectories/{path.name}"):
            try:
                found = None if "recorded" in line else trajectory_from_json(line)
            except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
                say(f"rlvr: {path}: no whole trajectory: {error!r}")
                continue
            lines.append({**line, "kind": kind, "trajectory": found})
    if not lines:
        raise ConfigError(
            f"the trajectories of {directory.path} were to be scored again.",
            "found: none",
            "choose a run that took at least one step",
        )
    if any("recorded" in line for line in lines):
        raise ConfigError(
            f"the trajectories of {directory.path} were to be scored again.",
            "found: they were replayed from recordings, which the run does not keep and "
            "nobody judges",
            "choose a run whose policy sampled",
        )
    opening = open_verifier(configured, build_context(configured, directory.path), RunStatus())
    (known, outcomes), unclosed = await kept(opening, lambda v: _judged(v, lines, directory))
    records = [
        {
            "step": line["step"],
            "kind": line["kind"],
            "id": line["id"],
            "index": line["index"],
            "before": line["outcome"].get("value"),
            "outcome": outcome_to_json(outcome),
        }
        for line, outcome in zip(known, outcomes, strict=True)
    ]
    ids = {line["id"] for line in known}
    return records, [line["id"] for line in lines if line["id"] not in ids], unclosed


async def _judged(
    verifier: Verifier, lines: Sequence[dict[str, Any]], directory: RunDir
) -> tuple[list[dict[str, Any]], Sequence[Outcome]]:
    """The lines whose problem is still there, and their outcomes."""
    problems = {p.id: p for p in problems_of(verifier.task, "all")}
    known = [line for line in lines if line["id"] in problems]
    if not known:
        raise ConfigError(
            f"{len(lines)} trajectories of {directory.path} were to be scored again.",
            f"found: none is of the data set's {len(problems)} problems, but of "
            f"{lines[0]['id']} and the like",
            "give the data set of the run its problems back",
        )
    pairs = [(problems[line["id"]], line["trajectory"]) for line in known]
    return known, await verifier.runner.pairs(pairs)


def _summary(records: list[dict[str, Any]], configured: Configured, path: Path) -> dict[str, Any]:
    pairs = [
        (r["before"], r["outcome"]["value"])
        for r in records
        if r["outcome"]["kind"] == "reward" and r["before"] is not None
    ]
    return {
        "reward": configured.chosen.reward.full_name,
        "trajectories": len(records),
        "scored": len(pairs),
        "failed": sum(r["outcome"]["kind"] == "failed" for r in records),
        "changed": sum(abs(a - b) > 1e-9 for a, b in pairs),
        "mean_before": sum(a for a, _ in pairs) / len(pairs) if pairs else None,
        "mean_after": sum(b for _, b in pairs) / len(pairs) if pairs else None,
        "out": str(path),
    }


def _as_text(summary: dict[str, Any]) -> str:
    before, after = summary["mean_before"], summary["mean_after"]
    means = "" if before is None else f"; mean reward {before:.3f} -> {after:.3f}"
    every = counted(summary["trajectories"], "trajectory")
    return (
        f"{summary['reward']}: {summary['scored']} of {every} "
        f"scored again, {summary['changed']} changed{means}"
        f"; {summary['failed']} could not be verified, {summary['unknown']} of unknown problems\n"
        f"written to {summary['out']}"
    )
