"""`rlvr runs trace RUN`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlvr.cli.options import add_json_flag
from rlvr.cli.output import number, print_json, table
from rlvr.errors import ExitCode, UnknownNameError
from rlvr.progress.spans import chrome_trace, overlap
from rlvr.records.owner import writing_to
from rlvr.records.read_runs import locate
from rlvr.records.run_directory import RunDir, write_out

SUMMARY = "what overlapped: a Chrome trace of sampling, verification and training"
EXAMPLE = "rlvr runs trace runs/NAME --out trace.json"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("run", metavar="RUN", help="its directory, or its name below runs/")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="where the trace goes (default: trace.json in the run's directory)",
    )
    parser.add_argument(
        "--steps", metavar="A-B", type=_steps, help="only these steps, both included (3, 3-9)"
    )
    add_json_flag(parser)


def main(args: argparse.Namespace) -> int:
    """
    Write the trace in the Trace Event Format and print how long each kind of work went on.

    Raises:
        UnknownNameError: There is no such run, or it has finished no step among those asked for.
        CheckpointError: The file cannot be written.
        ConfigError: It is a run's own record, or its folder is missing.
    """
    directory = RunDir(locate(args.run))
    first, last = args.steps or (0, 2**63)
    spans = [s for s in directory.read_lines("trace.jsonl") if first <= s["step"] <= last]
    if not spans:
        raise UnknownNameError(
            f"a trace of {directory.path} was asked for.",
            "found: no finished step" + (" among those" if args.steps else ""),
            "wait for the first step, or choose another run: rlvr runs list",
        )
    out = args.out or directory.path / "trace.json"
    with writing_to(args.out):  # the default place is no record: a live run's may be written
        write_out(out, json.dumps(chrome_trace(spans)) + "\n")
    found = overlap(spans)
    if args.json:
        print_json({"trace": out, "spans": len(spans), "seconds": found})
        return ExitCode.DONE
    kinds = [(k, number(v)) for k, v in found.items() if k not in ("wall", "any", "overlap")]
    print(table(("WORK", "SECONDS"), kinds))
    print(
        f"\n{number(found['any'])} s of work in {number(found['wall'])} s; "
        f"overlap {found['overlap']:.2f} (1.00: nothing at the same time)"
    )
    print(f"trace: {out} (open it in ui.perfetto.dev or chrome://tracing)")
    return ExitCode.DONE


def _steps(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    try:
        return int(first), int(last or first)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no step and no range such as 3-9") from None
