"""Mutants: each differs from its source in one place, and what is no operator stays."""

from __future__ import annotations

import random

from starter_problems.families import FAMILIES
from starter_problems.mutants import mutants
from starter_problems.slips import slip_in_names, slip_in_syntax

COUNTER = """\
module m (
  input logic clk,
  input logic [3:0] d,
  output logic [3:0] q
);
  always_ff @(posedge clk) begin
    if (d <= q) q <= q + 4'd1;
  end
endmodule
"""


def test_assignments_are_not_mistaken_for_comparisons() -> None:
    """``q <= q + 1`` keeps its arrow; ``d <= q`` in the condition becomes ``<`` and ``>=``."""
    kept = [mutant for mutant in mutants(COUNTER) if mutant.kind != "dropped statement"]
    texts = [mutant.text for mutant in kept]
    assert all(") q <= q" in text for text in texts)
    assert sum("(d < q)" in text for text in texts) == 1
    assert sum("(d >= q)" in text for text in texts) == 1


def test_known_places_are_mutated() -> None:
    """Operator, constant, edge, condition, width and whole statement."""
    kinds = {mutant.kind for mutant in mutants(COUNTER)}
    assert kinds >= {
        "+ to -",
        "constant",
        "posedge to negedge",
        "inverted condition",
        "width",
        "dropped statement",
    }


def test_every_family_has_mutants_and_none_repeats() -> None:
    """At least a dozen different texts for most modules, never the source itself."""
    for name, draw in FAMILIES.items():
        source = draw(random.Random(1)).solution
        texts = [mutant.text for mutant in mutants(source)]
        assert len(texts) >= 8, name
        assert len(texts) == len(set(texts)), name
        assert source not in texts, name


def test_slips_change_the_text() -> None:
    """A slip in names or syntax never leaves the design as it was."""
    rng = random.Random(2)
    for draw in FAMILIES.values():
        draft = draw(rng)
        assert slip_in_names(draft.design, rng) != draft.design
        assert slip_in_syntax(draft.solution, rng) != draft.solution
