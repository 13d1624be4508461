"""The subcommand `rlvr sad gold`: how many labelled characters get their label."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlvr import ConfigError
from rlvr_sad.commands.arguments import parser_of
from rlvr_sad.sessions.prepare import trajectories_of
from rlvr_sad.sessions.read import read_record
from rlvr_sad.sessions.record import Raw, Rejected
from rlvr_sad.trajectory import TRAINED, AgentTrajectory, Segment


def gold(argv: list[str]) -> int:
    """Print a row a source, and all together."""
    parser = parser_of(
        "gold",
        "Compare spans with labelled ones: JSON lines with source, id, text and spans. "
        "Each text is read by itself, its style detected; with --native, one that is the text of a "
        "record of its source is read from there instead.",
        "rlvr sad gold gold_spans.jsonl",
        "rlvr sad gold gold_spans.jsonl --native trajectories/",
        "rlvr sad gold gold_spans.jsonl --json",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="the labelled records")
    parser.add_argument("--native", type=Path, metavar="DIR", help="folder that sources lie in")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_args(argv)
    tallies: dict[tuple[str, str], Tally] = {}
    everything = Tally()
    natives: dict[str, dict[str, AgentTrajectory]] = {}
    for record in _records(options.file):
        found, how = _found(record, options.native, natives)
        tally = compare(record, found)
        tallies.setdefault((str(record.get("source", "")), how), Tally()).update(tally)
        everything.update(tally)
    if not tallies:
        raise ConfigError(
            f"labelled spans were to be read from {options.file}.",
            "found: no record in it",
            'a line: {"source": ..., "id": ..., "text": ..., "spans": [...]}',
        )
    rows = [(source, how, tally) for (source, how), tally in tallies.items()]
    rows.append(("all", "", everything))
    if options.json:
        told = [
            {
                "source": source,
                "read_from": how,
                "characters": tally.total(),
                "right": tally.share,
                "leaked": tally.leak,
                "confused": {f"{a} as {b}": n for (a, b), n in tally.confused.most_common()},
            }
            for source, how, tally in rows
        ]
        print(json.dumps(told, indent=2))
    else:
        print(f"{'right':>9}  {'characters':>10}  {'leaked':>8}  read from  source")
        for source, how, tally in rows:
            print(
                f"{100 * tally.share:8.3f} %  {tally.total():10}  {100 * tally.leak:6.3f} %"
                f"  {how:9}  {source}"
            )
    return 0


def _records(path: Path) -> Iterator[dict[str, Any]]:
    asked = f"labelled spans were to be read from {path}."
    try:
        lines = path.read_text("utf-8").split("\n")  # U+2028 and the like may stand inside a line
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else f"it is no UTF-8: {error}"
        raise ConfigError(asked, f"found: {reason}", "give a file of JSON lines") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        record = None
        with suppress(ValueError):
            record = json.loads(line)
        if not isinstance(record, dict) or not {"text", "spans"} <= set(record):
            raise ConfigError(
                asked,
                f"found: line {number} is no object with text and spans",
                'a line: {"source": ..., "id": ..., "text": ..., "spans": [...]}',
            )
        yield record


def _found(
    record: dict[str, Any], native: Path | None, natives: dict[str, dict[str, AgentTrajectory]]
) -> tuple[AgentTrajectory, str]:
    """The record's trajectory, and where it was read from."""
    name = str(record.get("source", ""))
    if native is not None and (native / name).is_file():
        if name not in natives:
            read = trajectories_of([native / name])
            natives[name] = {t.id: t for t in read if not isinstance(t, Rejected)}
        found = natives[name].get(str(record.get("id", "")))
        if found is not None and found.text.rstrip() == record["text"].rstrip():
            return found, "native"
    data = json.dumps({"id": str(record.get("id", "")), "text": record["text"]})
    outcome = read_record(Raw("0", 0, "json", data.encode()), name)
    if outcome.rejected is not None:  # nothing in it has a label then
        print(f"refused: {outcome.rejected}", file=sys.stderr)
        nothing = Segment(role="user", type="other", text=record["text"], start=0, end=0)
        return AgentTrajectory(id=str(record.get("id", "")), format="", segments=(nothing,)), "no"
    return outcome.trajectories[0], "text"


class Tally(Counter[tuple[str, str]]):
    """Non-blank labelled characters by their label and the type that was found."""

    @property
    def confused(self) -> Counter[tuple[str, str]]:
        """Those that are wrong."""
        return Counter({pair: n for pair, n in self.items() if pair[0] != pair[1]})

    @property
    def share(self) -> float:
        """Share of the labelled characters that are right; 1 where there are none."""
        total = self.total()
        return (total - self.confused.total()) / total if total else 1.0

    @property
    def leak(self) -> float:
        """Share of the observations' characters that would be learnt."""
        seen = {found: n for (label, found), n in self.items() if label == "observation"}
        leaked = sum(n for found, n in seen.items() if found in TRAINED)
        return leaked / sum(seen.values()) if seen else 0.0


def compare(gold: Mapping[str, Any], found: AgentTrajectory) -> Tally:
    """
    One labelled record against a trajectory of the same text.

    `gold["spans"]` have `start`, `end` and `type`; characters in none of them are not counted.
    """
    text: str = gold["text"]
    labels = [segment.type for segment in found.segments for _ in segment.text]
    tally = Tally()
    for span in gold["spans"]:
        for at in range(span["start"], span["end"]):
            if not text[at].isspace():
                tally[span["type"], labels[at]] += 1
    return tally
