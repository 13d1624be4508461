"""The notebook of `examples/`, executed in a kernel as a reader would execute it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.integration
def test_every_cell_runs_and_the_policy_learns(tmp_path: Path) -> None:
    """A tool asked in two turns, a loss and a callback of its own; better than never asking."""
    pytest.importorskip("torch", reason="it trains with torch")
    nbformat = pytest.importorskip("nbformat", reason="pip install -r requirements-dev.txt")
    nbclient = pytest.importorskip("nbclient", reason="pip install -r requirements-dev.txt")
    book = nbformat.read(ROOT / "examples" / "a_task_of_your_own.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in book.cells)

    nbclient.NotebookClient(
        book, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    text = "".join(out.get("text", "") for cell in book.cells for out in cell.get("outputs", []))
    rewards = [float(found) for found in re.findall(r"mean reward ([\d.]+)", text)]

    assert len(rewards) == 8
    assert rewards[-1] > rewards[0] + 0.15
    assert "95 % interval" in text
