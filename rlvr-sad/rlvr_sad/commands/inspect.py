"""The subcommand `rlvr sad inspect`: trajectories in colour, and a report of each file."""

from __future__ import annotations

import json
import sys

from rlvr import UnknownNameError, is_coloured
from rlvr_sad.commands.arguments import add_files, check_some, checked_files, parser_of
from rlvr_sad.sessions.prepare import trajectories_of
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.sessions.report import Report
from rlvr_sad.trajectory import AgentTrajectory, SpanType

_COLOURS: dict[SpanType, str] = {
    "reasoning": "36",
    "action": "1;32",
    "observation": "33",
    "other": "2",
}
_SHOWN = 10
_MARKS: dict[SpanType, str] = {"reasoning": "R", "action": "A", "observation": "O", "other": "-"}


def inspect(argv: list[str]) -> int:
    """Show some trajectories, then what was read from each file."""
    parser = parser_of(
        "inspect",
        "Show trajectories with their spans, and what was read from each file.",
        "rlvr sad inspect runs.jsonl",
        "rlvr sad inspect runs.jsonl --record 17",
        "rlvr sad inspect trajectories/ --report --json",
    )
    add_files(parser)
    parser.add_argument("--record", action="append", metavar="ID", help="show the one of this id")
    parser.add_argument("--limit", type=int, default=1, help="how many to show a file (default 1)")
    parser.add_argument("--report", action="store_true", help="the reports alone")
    parser.add_argument("--json", action="store_true", help="the reports as JSON")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto")
    options = parser.parse_args(argv)
    shows = not options.report and not options.json
    is_coloured = _is_coloured(options.color)
    reports = []
    asked, shown = set(options.record or ()), set[str]()
    ids: dict[str, None] = {}
    if shows:
        print("   ".join(painted(kind, kind, is_coloured=is_coloured) for kind in _COLOURS))
    for path in checked_files(options):
        report = Report(str(path))
        for found in trajectories_of([path], format_name=options.format):
            report.count(found)
            if isinstance(found, Rejected) or not shows:
                continue
            names = dict.fromkeys((found.id, str(found.labels.get("id", found.id))))
            ids |= names if asked else {}
            if asked & set(names) or (not asked and report.trajectories <= options.limit):
                print(drawn(found, is_coloured=is_coloured))
                shown |= set(names)
        reports.append(report)
    if options.json:
        print(json.dumps([report.as_dict() for report in reports], indent=2, ensure_ascii=False))
    else:
        print("\n".join(line for report in reports for line in ["", *report.lines()]))
    check_some(sum(r.trajectories for r in reports), sum(r.rejected for r in reports))
    if shows and asked - shown:
        raise _unknown(sorted(asked - shown), list(ids))
    return 0


def _unknown(missing: list[str], ids: list[str]) -> UnknownNameError:
    """The error that lists known ids: those similar to the missing ones first."""
    import difflib  # only errors need it

    near = [match for name in missing for match in difflib.get_close_matches(name, ids, n=2)]
    some = list(dict.fromkeys([*near, *ids]))[:_SHOWN]
    more = f", ... ({len(ids)} in all)" if len(ids) > _SHOWN else ""
    return UnknownNameError(
        f"the records {', '.join(missing)} were to be shown.",
        f"found: there are {', '.join(some) or 'none'}{more}",
        'an {"id", "text"} record goes by that id, any other by its place in the file, from 0, '
        "by its key, or by its own id",
    )


def drawn(trajectory: AgentTrajectory, *, is_coloured: bool) -> str:
    """A trajectory with its spans in colour; without colours, each line begins with its type."""
    where = f"{trajectory.source}:{trajectory.line}"
    head = f"\n=== {trajectory.id}  [{trajectory.format}]  {where}"
    for key, value in trajectory.labels.items():
        if len(str(value)) < 60 and (key, str(value)) != ("id", trajectory.id):
            head += f"  {key}={value}"
    blocks = []
    for segment in trajectory.segments:
        text = segment.text.strip("\n")
        if text.strip():
            blocks.append(painted(text, segment.type, is_coloured=is_coloured))
    notes = [f"  note: {note}" for note in trajectory.notes]
    return "\n".join([head, *notes, *blocks])


def painted(text: str, kind: SpanType, *, is_coloured: bool) -> str:
    """Text in the colour of its type, or with its letter before each line."""
    if is_coloured:
        return "\n".join(
            f"\x1b[{_COLOURS[kind]}m{_plain(line)}\x1b[0m" for line in text.split("\n")
        )
    return "\n".join(f"{_MARKS[kind]} {_plain(line)}" for line in text.split("\n"))


def _plain(line: str) -> str:
    """The line without control characters, which a terminal would obey."""
    return "".join(
        c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}"
        for c in line.rstrip("\r")
    )


def _is_coloured(choice: str) -> bool:
    return is_coloured(sys.stdout) if choice == "auto" else choice == "always"
