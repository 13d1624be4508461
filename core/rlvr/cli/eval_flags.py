"""Reject flags of `rlvr eval` that exclude each other or would have no effect."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlvr.assembly.trained_model import check_alone
from rlvr.cli.eval_against import kind_of
from rlvr.config.part_flags import unknown_flag
from rlvr.errors import ConfigError
from rlvr.evaluation.saved import holds_verdicts
from rlvr.records.read_runs import trained_at

JUDGING = ("plugin", "task", "reward", "dataset", "seed", "samples", "split", "workers", "config")
SAMPLING = ("model", "backend", "sampler")


def check_flags(args: argparse.Namespace) -> None:
    """
    Reject flags that exclude each other, before any work.

    Raises:
        ConfigError: Names the flags, and what to leave out.
    """
    if args.samples is not None and args.samples < 1:
        raise ConfigError(
            f"{args.samples} samples a problem were asked for.", do="set --samples 1 or more"
        )
    against = kind_of(args.against) if args.against else None
    sampling = _given(args, SAMPLING) + (["--run"] if args.run_dir else [])
    if args.completions and sampling:
        raise _refused(
            "answers of a file were to be evaluated (--completions).",
            f"found: {', '.join(sampling)}, which would sample a model",
        )
    samples_model = not args.completions or against in ("model", "run")
    if args.figures and not samples_model:
        raise _refused(
            "answers of a file were to be evaluated (--completions).",
            f"found: --figures {args.figures}, and figures are measured of a model",
        )
    if args.run_dir:
        run = trained_at(Path(args.run_dir)).run
        check_alone(run, args.model)
    if args.missing and not args.completions and against != "answers":
        raise ConfigError(
            f"--missing {args.missing} was given.",
            "found: no --completions, so no answer can be missing",
            "leave --missing out, or name a file of answers with --completions",
        )
    if args.report:
        _check_report(args, against)


def _check_report(args: argparse.Namespace, against: str | None) -> None:
    idle = ["out_file", "completions", "run_dir", "model"]
    if against in (None, "judged"):  # nothing is sampled or judged at all
        idle += [*JUDGING, *SAMPLING[1:], "figures", "preset", "overrides", "flag_options"]
        if (flags := getattr(args, "part_flags", None)) is not None and flags.given:
            raise unknown_flag(flags.given[0][0], flags.command, flags.own)
    if given := _given(args, idle):
        raise _refused(
            "an evaluation that was written before was to be read (--report).",
            f"found: {', '.join(given)}, which would have no effect on it",
        )
    path = Path(args.report)
    if path.is_file() and path.read_bytes().strip() and not holds_verdicts(path):
        raise ConfigError(
            f"an evaluation was to be read from {args.report} (--report).",
            "found: answers without a verdict",
            f"have them judged: --completions {args.report}",
        )


def _given(args: argparse.Namespace, names: list[str] | tuple[str, ...]) -> list[str]:
    """The flags of these that were given, as a person types them."""
    flags = {"out_file": "--out", "run_dir": "--run", "overrides": "key=value"}
    flags["flag_options"] = "options="
    return [flags.get(n, f"--{n}") for n in names if getattr(args, n, None) not in (None, [], {})]


def _refused(asked: str, found: str) -> ConfigError:
    return ConfigError(asked, found, "leave one of them out")
