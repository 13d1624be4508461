"""Every loss has its page, and the catalogue offers what the options name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlvr_distill.config import LOSSES, REDUCTIONS, WEIGHTINGS, DivergenceConfig
from rlvr_distill.divergences.catalogue import kernel

PAGES = Path(__file__).parents[3] / "docs" / "algorithms" / "distill"


@pytest.mark.parametrize("loss", LOSSES)
def test_a_page_with_formula_and_source(loss: str) -> None:
    """`distill.loss=NAME` has a page of that name, with formula and source, linked in the index."""
    page = PAGES / f"{loss.replace('_', '-')}.md"
    text = page.read_text(encoding="utf-8")

    assert text.startswith(f"# {loss}:")
    assert "## Formula" in text
    assert "## Source" in text
    assert f"[{loss}]({page.name})" in (PAGES / "index.md").read_text(encoding="utf-8")


def test_the_index_names_every_choice() -> None:
    """Weightings and reductions are explained."""
    text = (PAGES / "index.md").read_text(encoding="utf-8")

    assert [name for name in (*WEIGHTINGS, *REDUCTIONS) if name not in text] == []


def test_transport_says_that_it_needs_embeddings() -> None:
    """Except at equal cost, where it is total variation; others never need them."""
    for loss in LOSSES:
        if loss != "wasserstein":
            assert kernel(loss, None).rows >= 1
    assert kernel(DivergenceConfig(loss="wasserstein", cost="discrete")) == kernel("tv")
    with pytest.raises(ValueError, match="embeddings"):
        kernel("wasserstein")
    assert kernel("wasserstein", torch.eye(3)).support == 32
