"""The tutorial's code is the example's code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial" / "first-task-plugin.md"
EXAMPLE = ROOT / "examples" / "rlvr-countdown"
MARK = re.compile(r"^<!-- file: (\S+) -->\n```\w*\n(.*?)```$", re.MULTILINE | re.DOTALL)


def test_each_block_equals_its_file() -> None:
    """A block with a file name holds exactly that file (mend with scripts/include_code.py)."""
    blocks = MARK.findall(PAGE.read_text(encoding="utf-8"))

    assert blocks
    for name, code in blocks:
        assert code == (ROOT / name).read_text(encoding="utf-8"), name


def test_every_file_is_shown() -> None:
    """Whoever follows the page to its end has every file of the example but its data."""
    shown = {ROOT / name for name, _ in MARK.findall(PAGE.read_text(encoding="utf-8"))}
    wanted = {*EXAMPLE.glob("pyproject.toml"), *EXAMPLE.glob("rlvr_countdown/*.py")}
    wanted |= {*EXAMPLE.glob("tests/*.py")}

    assert shown == wanted


def test_the_puzzle_that_is_shown_is_in_the_data() -> None:
    """The line of `puzzles.jsonl` that the page quotes is a line of it."""
    lines = (EXAMPLE / "rlvr_countdown" / "puzzles.jsonl").read_text("utf-8").splitlines()
    quoted = re.findall(r'^\{"id".*"solution".*\}$', PAGE.read_text("utf-8"), re.MULTILINE)

    assert quoted
    assert set(quoted) <= set(lines)


def test_the_script_finds_a_difference(tmp_path: Path) -> None:
    """`include_code.py --check` exits 1 for a page that differs, and a rewrite mends it."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "docs").mkdir()
    script = tmp_path / "scripts" / "include_code.py"
    script.write_text((ROOT / "scripts" / "include_code.py").read_text("utf-8"), encoding="utf-8")
    (tmp_path / "a.py").write_text("x = 1\n")
    page = tmp_path / "docs" / "page.md"
    page.write_text("<!-- file: a.py -->\n```python\nx = 2\n```\n")

    check = [sys.executable, str(script), "--check"]

    assert subprocess.run(check, check=False, capture_output=True, timeout=240).returncode == 1
    subprocess.run(check[:-1], check=True, capture_output=True, timeout=240)
    assert page.read_text() == "<!-- file: a.py -->\n```python\nx = 1\n```\n"
    assert subprocess.run(check, check=False, capture_output=True, timeout=240).returncode == 0
