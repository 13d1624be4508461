"""The subcommand `rlvr sad spans`: one line of JSON a trajectory."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TextIO

from rlvr import ConfigError, counted
from rlvr_sad.commands.arguments import add_files, check_some, checked_files, parser_of
from rlvr_sad.sessions.cache import TrajectoryCache
from rlvr_sad.sessions.prepare import prepare
from rlvr_sad.sessions.record import Rejected
from rlvr_sad.trajectory import TYPES, AgentTrajectory

_TOLD = 20
"""Refused records that are told one by one; of the others only the number."""
_NOTHING = "nothing to learn (neither reasoning nor action)"


def spans(argv: list[str]) -> int:
    """Write spans; refused records are told on standard error."""
    parser = parser_of(
        "spans",
        "Write the spans of each trajectory; start and end count characters.",
        "rlvr sad spans runs.jsonl --json",
        "rlvr sad spans trajectories/ --json --out spans.jsonl",
        "rlvr sad spans log.txt --format transcript",
    )
    add_files(parser)
    parser.add_argument("--json", action="store_true", help="id, text and spans, a line each")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes (default 0)")
    parser.add_argument("--cache", action="store_true", help="keep results by content")
    parser.add_argument("--strict", action="store_true", help="exit 2 where a record is refused")
    options = parser.parse_args(argv)
    paths = checked_files(options)
    written = refused = 0
    notes: Counter[str] = Counter()
    with ExitStack() as stack:
        cache = stack.enter_context(closing(TrajectoryCache())) if options.cache else None
        out = stack.enter_context(_opened(options.out, paths)) if options.out else None
        for found in prepare(
            paths, workers=options.workers, cache=cache, format_name=options.format
        ):
            if isinstance(found, Rejected):
                refused += 1
                if refused <= _TOLD:
                    print(f"refused: {found}", file=sys.stderr)
                continue
            one = found.trajectory
            notes.update(one.notes if one.is_supervised else (*one.notes, _NOTHING))
            line = json.dumps(as_record(one), ensure_ascii=False) if options.json else _line(one)
            print(line, file=out or sys.stdout)
            written += 1
    for note, count in notes.most_common():
        print(f"note: {count} of {counted(written, 'trajectory')}: {note}", file=sys.stderr)
    if refused > _TOLD:
        print(f"refused: and {counted(refused - _TOLD, 'more record')}", file=sys.stderr)
    check_some(written, refused, is_strict=options.strict)
    return 0


def _opened(out: Path, paths: Sequence[Path]) -> TextIO:
    """
    The file to write; never one that is read.

    Raises:
        ConfigError: It is one of the logs, or cannot be written.
    """
    asked = f"spans were to be written to {out}."
    if out.exists() and any(out.samefile(path) for path in paths):
        raise ConfigError(asked, "found: it is one of the files to read", "choose another")
    try:
        return out.open("w", encoding="utf-8")
    except OSError as error:
        found = f"found: {error.strerror}"
        raise ConfigError(asked, found, "choose a file in a folder that is there") from None


def as_record(trajectory: AgentTrajectory) -> dict[str, Any]:
    """`{"id", "text", "spans"}`."""
    return {
        "id": trajectory.id,
        "text": trajectory.text,
        "spans": [{"start": s.start, "end": s.end, "type": s.type} for s in trajectory.spans()],
    }


def _line(trajectory: AgentTrajectory) -> str:
    counts = Counter(span.type for span in trajectory.spans())
    told = ", ".join(f"{counts[kind]} {kind}" for kind in TYPES if counts[kind])
    return f"{trajectory.source}:{trajectory.line} {trajectory.id} [{trajectory.format}] {told}"
