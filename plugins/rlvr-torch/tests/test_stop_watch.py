"""Stop texts are found wherever token borders fall."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_torch.generation.sequence import StopStrings, TailDecoder


@given(st.text(alphabet="abé", max_size=30), st.data())
def test_finds_a_stop_across_any_cut(text, data):
    """However a text is cut into pieces, the stop is noticed with the piece that completes it."""
    stops = ["ab", "éa", "bbb"]
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    bounds = [0, *cuts, len(raw)]
    watch = StopStrings(stops)
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
    watch = StopStrings(stops)
    assert not watch.add(b"anything")
    assert watch.text == "anything"


class Shards:
    """A tokenizer whose tokens are bytes, and that gives away whole texts only."""

    def decode(self, tokens):
        return bytes(tokens).decode("utf-8", errors="replace")


@given(st.text(alphabet="ab é€😀", max_size=20))
def test_a_tail_gives_each_character_with_its_last_part(text):
    """Added up, the pieces are the text; no piece holds a broken character."""
    decoder = TailDecoder(Shards().decode)
    told = ""
    raw = text.encode()
    for count, token in enumerate(raw, 1):
        told += decoder.add(token)
        assert told == raw[:count].decode("utf-8", errors="ignore")
    assert told == text
    assert decoder.rest == ""


def test_a_tail_that_stays_incomplete_is_the_rest():
    """Two of a euro sign's three bytes: nothing is told, the rest is one replacement character."""
    decoder = TailDecoder(Shards().decode)
    assert [decoder.add(token) for token in "a€".encode()[:3]] == ["a", "", ""]
    assert decoder.rest == "\N{REPLACEMENT CHARACTER}"


class Words:
    """A tokenizer that puts a space before each word but the first, as SentencePiece does."""

    def decode(self, tokens):
        return " ".join(["stop", "go", "now"][token] for token in tokens)


def test_a_tail_keeps_what_depends_on_the_token_before():
    """The space that a word gets in the middle of a text is in its piece."""
    decoder = TailDecoder(Words().decode)
    assert [decoder.add(token) for token in [1, 0, 2]] == ["go", " stop", " now"]
