"""`docs/python.md`, and `examples/grpo_in_one_file.py`: a whole run on the public door alone."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "grpo_in_one_file.py"


def test_it_uses_the_public_door_alone_and_fits() -> None:
    """At most 300 lines; of rlvr and its plugins it imports `rlvr` and nothing below."""
    source = FILE.read_text(encoding="utf-8")
    imported = {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
    }

    assert len(source.splitlines()) <= 300
    assert {name for name in imported if name.startswith("rlvr")} == {"rlvr"}


@pytest.mark.slow
@pytest.mark.integration
def test_it_learns(tmp_path: Path) -> None:
    """On the toy task the mean reward of the last steps is well above that of the first."""
    pytest.importorskip("torch", reason="it trains with torch")
    words = ["--plugin", "toy", "--steps", "40", "train.lr=7e-3"]
    done = subprocess.run(
        [sys.executable, FILE, *words], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    rewards = [float(found) for found in re.findall(r"reward ([\d.]+)", done.stdout)]

    assert len(rewards) == 40
    assert mean(rewards[-8:]) > mean(rewards[:8]) + 0.2


@pytest.mark.integration
def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """Each block is a script of its own, as a reader would paste it."""
    pytest.importorskip("torch", reason="it trains with torch")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)

    assert len(blocks) == 2
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        assert len(done.stdout.splitlines()) in (3, 4)
