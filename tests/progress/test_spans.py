"""Spans, lanes, the Trace Event Format, and how much overlapped."""

from __future__ import annotations

import pytest

from rlvr.progress.spans import Spans, chrome_trace, overlap


def span(lane: str, begin: float, end: float) -> dict[str, object]:
    return {"name": lane, "lane": lane, "begin_s": begin, "end_s": end, "step": 1}


def test_overlapping_spans_of_a_kind_get_lanes_of_their_own() -> None:
    """Two at once: two lanes; a lane that is free again is used again."""
    trace = Spans()
    with trace.span("a", "verification"):
        with trace.span("b", "verification"):
            pass
        with trace.span("c", "verification"), trace.span("train", "train", step=3):
            pass
    spans = {s["name"]: s for s in trace.take()}
    assert spans["a"]["lane"] == "verification 1"
    assert spans["b"]["lane"] == spans["c"]["lane"] == "verification 2"
    assert (spans["train"]["lane"], spans["train"]["step"]) == ("train", 3)
    assert spans["a"]["begin_s"] <= spans["b"]["begin_s"] <= spans["a"]["end_s"]
    assert trace.take() == []


def test_the_picture_is_in_the_trace_event_format() -> None:
    """Complete events in microseconds from the first on, one named thread a lane."""
    found = chrome_trace([span("sample", 10.0, 10.5), span("train", 10.25, 11.0)])
    names = [e for e in found["traceEvents"] if e["ph"] == "M"]
    events = [e for e in found["traceEvents"] if e["ph"] == "X"]
    assert [e["args"]["name"] for e in names] == ["sample", "train"]
    assert [(e["ts"], e["dur"], e["tid"]) for e in events] == [(0, 500000, 1), (250000, 750000, 2)]
    assert chrome_trace([])["traceEvents"] == []


def test_overlap_counts_lanes_of_a_kind_once() -> None:
    """2 s of verification in two lanes beside 1 s of training in 2 s of time: 1.5."""
    spans = [
        span("verification 1", 0.0, 2.0),
        span("verification 2", 0.5, 1.5),
        span("train", 1.0, 2.0),
        span("verify", 0.0, 2.0),  # the phase around the verifications
    ]
    found = overlap(spans)
    assert found["verification"] == pytest.approx(2.0)
    assert found["train"] == pytest.approx(1.0)
    assert found["any"] == pytest.approx(2.0)
    assert found["overlap"] == pytest.approx(1.5)
    assert overlap([]) == {"wall": 0.0, "any": 0.0, "overlap": 1.0}
