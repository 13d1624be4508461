"""`rlvr run`: train a model with verified rewards."""

from __future__ import annotations

import argparse
import json
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlvr.assembly.configure import configure as resolve_configuration
from rlvr.assembly.configured import Configured
from rlvr.assembly.trained_model import other_sampling
from rlvr.builtin.terminal import progress_for
from rlvr.cli.options import add_config_flags, add_run_flags, add_training_flags
from rlvr.cli.parser import examples
from rlvr.config.layers import GONE, Layer
from rlvr.errors import ConfigError, counted
from rlvr.evaluation.pass_at_k import gain
from rlvr.heartbeat import say
from rlvr.log import get, setup
from rlvr.plugins.author_error import said
from rlvr.plugins.host import PluginHost
from rlvr.progress.status import RunStatus
from rlvr.records.owner import RunOwnedError, check_named, owned
from rlvr.records.read_runs import seen_from_here
from rlvr.records.run_directory import RunDir, without_empty_parents
from rlvr.training.best_checkpoint import best, best_step, sentence
from rlvr.training.run_json import check_ahead, check_unchanged
from rlvr.training.second_opinions import FILE
from rlvr.training.session import Finished, make_default_directory
from rlvr.training.session import run as run_session
from rlvr.verification.trust import Trust

log = get(__name__)


class Begun(NamedTuple):
    """A run whose directory this process owns; `left` says who owned it before and died."""

    configured: Configured
    directory: RunDir
    left: dict[str, Any]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = examples(
        "rlvr run --plugin cvdp --algo grpo",
        "rlvr run --plugin cvdp --steps 5 --seed 2 sampler.group_size=4",
        "rlvr run --resume auto --plugin cvdp --algo grpo",
    )
    add_run_flags(parser)
    add_training_flags(parser)
    parser.add_argument(
        "--out", metavar="DIR", help="run directory (default: runs/TIME-PLUGIN-ALGO)"
    )
    parser.add_argument(
        "--resume", metavar="auto|DIR", help="go on with a run: a directory, or the newest fitting"
    )
    add_config_flags(parser)


def main(args: argparse.Namespace) -> int:
    """Run to the end and print what came of it."""
    host = PluginHost.load()
    finished, configured = trained(args, host)
    summary = _of_plugins(host, finished.directory) | _summary(finished, configured)
    print(json.dumps(summary, default=str) if args.json else _as_text(summary))
    return 0


def trained(args: argparse.Namespace, host: PluginHost) -> tuple[Finished, Configured]:
    """Begin or resume a run and take it to its end."""
    with ExitStack() as held:
        previous = _previous(args, host, held)
        configured, directory, left = previous or _fresh(args, host, held)
        setup(verbosity=args.verbosity, run_file=directory.events_file)
        if left:
            log.debug("dead_owner_replaced", **left)
        status = RunStatus()
        display = progress_for(status, quiet=args.json)
        if display is not None:
            host.register_observer(display, "progress")
            display.begin(configured, directory.path)
            held.callback(display.end, directory.path)
        if previous is None and (other := other_sampling(configured)):
            log.info("model_was_sampled_otherwise", **other)
        finished = run_session(configured, directory, status, resume=previous is not None)
        return finished, configured


def _fresh(args: argparse.Namespace, host: PluginHost, held: ExitStack) -> Begun:
    """A new run, in a directory that this process owns."""
    configured = resolve_configuration(args, host)
    held.enter_context(without_empty_parents(Path(args.out or "runs/NAME")))
    if args.out:
        check_named(Path(args.out))
    path = Path(args.out) if args.out else make_default_directory(configured)
    left = held.enter_context(owned(path, makes=True))
    directory = RunDir.create(path)
    held.callback(directory.discard)
    return Begun(configured, directory, left)


def _resumed(args: argparse.Namespace, host: PluginHost, path: Path, held: ExitStack) -> Begun:
    """The run at `path` with the options it had; owned before its record is read."""
    directory = RunDir.open(path)
    left = held.enter_context(owned(path))
    config = seen_from_here(path, directory.read_run()["config"])
    if gone := [key for key in GONE if key in config]:
        raise ConfigError(
            f"the run {path} was to be resumed.",
            f"found: it was made by an earlier version of rlvr, which had {', '.join(gone)}",
            f"evaluate it with rlvr eval --run {path}, or begin anew",
        )
    args.base = Layer(f"run {path}", config, is_typed=True)
    configured = resolve_configuration(args, host)
    check_unchanged(configured, config, path)
    check_ahead(configured, path)
    return Begun(configured, directory, left)


def _previous(args: argparse.Namespace, host: PluginHost, held: ExitStack) -> Begun | None:
    """The run that `--resume` means, owned; None for a fresh one."""
    if args.resume is None:
        return None
    if args.resume != "auto":
        if args.out is not None:
            raise ConfigError(
                f"the run {args.resume} was to be resumed.",
                f"found: --out {args.out}, but a resumed run goes on where it is",
                "leave --out away",
            )
        return _resumed(args, host, Path(args.resume), held)
    wanted = resolve_configuration(args, host)
    root = Path(args.out or "runs")
    misfits = []
    for path in [root, *sorted(root.glob("*"), key=_begun_at, reverse=True)]:
        if not (path / "run.json").is_file():
            continue
        if (misfit := _misfit(RunDir(path), wanted)) is not None:
            misfits.append(misfit)
            continue
        with ExitStack() as attempt:
            try:
                begun = _resumed(args, host, path, attempt)
            except RunOwnedError as error:
                say(f"rlvr: --resume auto passes over a run: {error}")
                continue
            if _misfit(begun.directory, wanted) is None:  # still: its owner may have ended it
                held.push(attempt.pop_all())
                return begun
    newest = next(filter(None, misfits), "")
    say(f"rlvr: --resume auto: no unfinished run below {root} fits; a new one is begun{newest}")
    args.base = None
    return None


def _begun_at(path: Path) -> tuple[str, str]:
    """When a run began and its name, to sort by; "" where its record does not tell."""
    with suppress(ValueError):
        return str(RunDir(path).read_run().get("created", "")), path.name
    return "", path.name


def _misfit(directory: RunDir, wanted: Configured) -> str | None:
    """Why the run is not the wanted one, "" where it is done; None if it can go on."""
    try:
        record = directory.read_run()
        if record.get("status") == "done":
            return ""
        check_unchanged(wanted, record["config"], directory.path)
    except ValueError as error:
        return f"\n  passed over: {error}"
    return None


def _of_plugins(host: PluginHost, directory: Path) -> dict[str, Any]:
    """The plugins' entries in the summary, without those that fail or are not JSON."""
    hook, entries = "rlvr_run_summarised", dict[str, Any]()
    for name, error in host.announce(hook, directory=directory, entries=entries):
        log.error("observer_failed", hook=hook, observer=name, error=said(error))
    faults = {name: _fault_of_entry(name, value) for name, value in entries.items()}
    for name, fault in faults.items():
        if fault:
            log.error("entry_left_out", hook=hook, entry=repr(name), why=fault)
    return {name: value for name, value in entries.items() if not faults[name]}


def _fault_of_entry(name: object, value: object) -> str:
    try:
        json.dumps({name: value}, default=str)
    except Exception as error:  # the plugin border: its __str__ is the plugin's
        return said(error)
    return "" if isinstance(name, str) else "its name is no text"


def _summary(finished: Finished, configured: Configured) -> dict[str, Any]:
    summary: dict[str, Any] = {
        "run": str(finished.directory),
        "steps": finished.state.step,
        "seconds": round(finished.state.seconds, 1),
    }
    curve = finished.directory / configured.options.values.get("curve.file", "curve.png")
    if curve.is_file():
        summary["curve"] = str(curve)
    evaluations = RunDir(finished.directory).read_lines("eval.jsonl")
    summary["evaluations"] = [
        {
            **{k: e[k] for k in ("step", "pass1", "low", "high", "problems", "samples", "failed")},
            "held_out": e.get("held_out"),
            "seen": len(e.get("seen", ())),
            **({"measures": e["measures"]} if e.get("measures") else {}),
        }
        for e in evaluations
    ]
    if (step := best_step(finished.reports)) is not None:
        summary["best"] = best(step, finished.reports[step], finished.directory)
    if records := RunDir(finished.directory).read_lines(FILE):
        trust = Trust.of(records)
        summary["trust"] = {**trust.metrics(), "sentence": trust.sentence()}
    is_sampled = not any(report.measures for report in finished.reports.values())
    if len(finished.reports) > 1 and is_sampled:
        first, last = (finished.reports[k] for k in (min(finished.reports), max(finished.reports)))
        difference, low, high = gain(first, last)
        summary["gain"] = {"pass1": difference, "low": low, "high": high}
    return summary


def _as_text(summary: dict[str, Any]) -> str:
    lines = []
    for entry in summary["evaluations"]:
        if measures := entry.get("measures"):
            shown = "  ".join(f"{name} {value:.4g}" for name, value in measures.items())
            count = counted(entry["problems"], "trajectory")
            lines.append(f"step {entry['step']:>4}  {shown}  ({count})")
            continue
        lines.append(
            f"step {entry['step']:>4}  pass@1 {entry['pass1']:6.1%}  "
            f"95 % interval [{entry['low']:.1%}, {entry['high']:.1%}]  "
            f"({_kind(entry)}, {counted(entry['samples'], 'sample')})"
        )
    if gained := summary.get("gain"):
        lines.append(
            f"gain       {gained['pass1'] * 100:+6.1f} points  "
            f"95 % interval [{gained['low'] * 100:+.1f}, {gained['high'] * 100:+.1f}]"
        )
    if "best" in summary:
        lines.append(f"best       {sentence(summary['best'])}")
    if trust := summary.get("trust"):
        see = f"; ALARM, see: rlvr runs show {summary['run']}" if trust["trust/alarm"] else ""
        lines.append(f"2nd judge  {trust['sentence']}{see}")
    lines.append(f"run        {summary['run']}  ({counted(summary['steps'], 'step')})")
    if "curve" in summary:
        lines.append(f"curve      {summary['curve']}")
    return "\n".join(lines)


def _kind(entry: dict[str, Any]) -> str:
    if entry["held_out"] is False:
        seen = f"{entry['seen']} of a family that is trained on"
        return f"{counted(entry['problems'], 'problem')}, NOT held-out: {seen}"
    return counted(entry["problems"], "held-out problem" if entry["held_out"] else "problem")
