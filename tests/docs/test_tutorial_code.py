"""The tutorial is short, and pages install what they use."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-task-plugin.md"


def test_the_tutorial_is_short_and_uses_both_commands() -> None:
    """At most 60 lines; `tests/packaging/test_typed_pages.py` types them into an empty folder."""
    text = PAGE.read_text(encoding="utf-8")

    assert len(text.splitlines()) <= 60
    assert "\nrlvr plugins new digits" in text
    assert "\nrlvr plugins check digits\n" in text


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/*/*.md")), ids=lambda page: page.stem)
def test_a_page_that_draws_curves_installs_what_draws_them(page: Path) -> None:
    """Runs draw a curve unless `--callback` leaves it out: a page's own environment has `plot`."""
    text = page.read_text(encoding="utf-8")
    typed = "\n".join(re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
    runs = re.findall(r"^rlvr run (?:.*\\\n)*.*", typed, re.MULTILINE)
    if "python3 -m venv" in typed and any("--callback" not in r or "curve" in r for r in runs):
        assert '"../rlvr[plot,testing]"' in typed
