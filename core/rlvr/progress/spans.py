"""Spans of a run: begin and end of each piece of work, for a trace of what overlapped.

A line of `trace.jsonl` is one span: `name`, `lane` ("sample", "train", "verification 3", ...; a row
of the picture),
`begin_s` and `end_s` (seconds since 1970), `step` (the one being trained when it began).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from attrs import define, field


@define
class Spans:
    """Collects the spans of a process."""

    _spans: list[dict[str, Any]] = field(factory=list)
    _busy: dict[str, list[bool]] = field(factory=dict)  # which numbered lanes of a kind are taken

    @contextmanager
    def span(self, name: str, kind: str, step: int = 0) -> Iterator[None]:
        """Keep when the block ran. Spans of one kind that overlap get a lane each."""
        lanes = self._busy.setdefault(kind, [])
        lane = lanes.index(False) if False in lanes else len(lanes)
        lanes[lane : lane + 1] = [True]
        begun = time.time()
        try:
            yield
        finally:
            lanes[lane] = False
            self._spans.append(
                {
                    "name": name,
                    "lane": kind if lane == 0 and kind == name else f"{kind} {lane + 1}",
                    "begin_s": round(begun, 6),
                    "end_s": round(time.time(), 6),
                    "step": step,
                }
            )

    def take(self) -> list[dict[str, Any]]:
        """The spans that ended since the last call, in the order in which they ended."""
        taken, self._spans = self._spans, []
        return taken


def chrome_trace(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """
    Spans in the Trace Event Format, for chrome://tracing or ui.perfetto.dev.

    One thread a lane, in the order in which lanes first appear; times in microseconds from the
    first span on.
    """
    first = min((span["begin_s"] for span in spans), default=0.0)
    lanes = {lane: i for i, lane in enumerate(dict.fromkeys(s["lane"] for s in spans), start=1)}
    names = [
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": i, "args": {"name": lane}}
        for lane, i in lanes.items()
    ]
    events = [
        {
            "ph": "X",
            "name": span["name"],
            "cat": span["lane"].rstrip(" 0123456789"),
            "pid": 1,
            "tid": lanes[span["lane"]],
            "ts": round((span["begin_s"] - first) * 1e6),
            "dur": round((span["end_s"] - span["begin_s"]) * 1e6),
            "args": {"step": span["step"]},
        }
        for span in spans
    ]
    return {"traceEvents": [*names, *events], "displayTimeUnit": "ms"}


def overlap(spans: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """
    Seconds in which each kind of work went on, their union, and their sum over it.

    Returns:
        By kind (lanes of one kind count once), and `wall` (from first to last span), `any`
        (something went on), `overlap` (sum of the kinds over `any`: 1.0 where nothing overlaps).
    """
    kinds: dict[str, list[tuple[float, float]]] = {}
    for span in spans:
        kind = span["lane"].rstrip(" 0123456789")
        if kind == "verify":  # the phase around the verifications themselves
            continue
        kinds.setdefault(kind, []).append((span["begin_s"], span["end_s"]))
    found = {kind: _length(parts) for kind, parts in kinds.items()}
    together = [part for parts in kinds.values() for part in parts]
    union = _length(together)
    if not together:
        return {"wall": 0.0, "any": 0.0, "overlap": 1.0}
    wall = max(end for _, end in together) - min(begin for begin, _ in together)
    ratio = sum(found.values()) / union if union else 1.0
    return {**found, "wall": wall, "any": union, "overlap": ratio}


def _length(parts: Sequence[tuple[float, float]]) -> float:
    """Length of the union of intervals."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(parts):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
