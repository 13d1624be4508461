"""docs/threat-model.md names tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
CORPUS = "rlvr-cvdp/tests/test_hostile.py"
NAMED = sorted(
    set(re.findall(r'`(?:pytest )?([\w./-]*test_\w+\.py|CORPUS)(?: -k ("[^"]+"|\S+))?`', PAGE))
)


def test_every_claim_names_a_test() -> None:
    """A row of a table says what shows it."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "shown by" not in line]
    claims = [row for row in rows if not row.startswith("| ---")]
    assert len(claims) > 25
    assert [row for row in claims if "test_" not in row and "CORPUS" not in row] == []


@pytest.mark.parametrize(("file", "words"), NAMED, ids=[f"{f} {w}".strip() for f, w in NAMED])
def test_the_tests_that_are_named_exist(file: str, words: str) -> None:
    """The file is there, and `-k` selects something of it: a test's name or a parameter."""
    text = (ROOT / (CORPUS if file == "CORPUS" else file)).read_text(encoding="utf-8")
    if file == "CORPUS":
        text += (ROOT / "rlvr-cvdp/tests/hostile_corpus.py").read_text(encoding="utf-8")
    for word in re.split(r" or | and ", words.strip('"')):
        assert word.lower().replace("_", "") in text.lower().replace("_", ""), word
