"""Stop texts are found wherever token borders fall."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_torch.stop_watch import StopWatch


@given(st.text(alphabet="abé", max_size=30), st.data())
def test_finds_a_stop_across_any_cut(text, data):
    """However a text is cut into pieces, the stop is noticed with the piece that completes it."""
    stops = ["ab", "éa", "bbb"]
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    bounds = [0, *cuts, len(raw)]
    watch = StopWatch(stops)
    for low, high in pairwise(bounds):
        is_complete = any(stop.encode() in raw[:high] for stop in stops)
        assert watch.add(raw[low:high]) == is_complete
        if is_complete:
            found = [raw.find(stop.encode()) for stop in stops if stop.encode() in raw]
            assert watch.text.encode() == raw[: min(found)]
            return
    assert watch.text == text


@pytest.mark.parametrize("stops", [[], [""]])
def test_nothing_to_watch_for(stops):
    """No stop text, or an empty one, never stops."""
    watch = StopWatch(stops)
    assert not watch.add(b"anything")
    assert watch.text == "anything"
