"""Where a completion ends, whatever a service does with stop conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr.tokenization.stop import CompletionEnd, cut


def letters(token: int) -> bytes:
    """Token n is byte n; 0 is the end token, which has no text."""
    return bytes([token]) if token else b"<end>"


def of(text: bytes, *stops: str) -> CompletionEnd:
    return cut(list(text), ends={0}, stops=stops, bytes_of=letters)


@pytest.mark.parametrize(
    ("text", "stops", "expected"),
    [
        (b"abc", (), (3, "abc", False)),
        (b"ab\x00cd", (), (3, "ab", True)),
        (b"a--b", ("--",), (3, "a", True)),
        (b"a--b\x00", ("b", "--"), (3, "a", True)),
        (b"\x00", (), (1, "", True)),
        (b"", ("x",), (0, "", False)),
        (b"caf\xc3\xa9!", ("\u00e9",), (5, "caf", True)),
        (b"abab", ("bab", "ab"), (2, "", True)),
        (b"x", ("",), (1, "x", False)),
    ],
)
def test_it_ends_at_the_first_stop(
    text: bytes, stops: tuple[str, ...], expected: tuple[int, str, bool]
) -> None:
    """At the token that completes a stop text or is an end token; the text leaves both out."""
    found = of(text, *stops)

    assert (found.count, found.text, found.is_stopped) == expected


@given(st.binary(max_size=30), st.lists(st.text("abc", min_size=1, max_size=3), max_size=3))
def test_it_agrees_with_looking_at_every_prefix(text: bytes, stops: list[str]) -> None:
    """Brute force: the shortest prefix that ends in a stop or an end token."""
    found = of(text, *stops)

    ends = [
        n
        for n in range(1, len(text) + 1)
        if text[n - 1] == 0 or any(text[:n].endswith(stop.encode()) for stop in stops)
    ]
    assert found.count == min(ends, default=len(text))
    assert found.is_stopped == bool(ends)
