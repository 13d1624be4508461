from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from judging.answers import break_syntax, make_answers
from judging.mix import MIXES, make_mix

from rlvr.testing.tools import require_tool

OPTIONS = {"sandbox": "bubblewrap", "limits": "off", "timeout_s": 20.0}


def test_every_kind_is_made_for_every_problem_with_a_reference(starter_rows: Path) -> None:
    """Reference, initial state, as many mutants as asked for, broken syntax."""
    bank = make_answers([starter_rows], mutant_count=2)
    kinds = [answer.kind for answer in bank.answers]
    assert kinds == ["reference", "initial", "mutant", "mutant", "broken"] * 3
    references = {a.problem.id: a.files for a in bank.answers if a.kind == "reference"}
    for answer in bank.answers:
        if answer.kind in ("mutant", "broken"):
            assert dict(answer.files) != dict(references[answer.problem.id])


def test_the_same_seed_chooses_the_same_mutants(starter_rows: Path) -> None:
    """A benchmark that is run again judges the same answers."""
    one, again, other = (
        [dict(a.files) for a in make_answers([starter_rows], kinds=["mutant"], seed=s).answers]
        for s in (1, 1, 2)
    )
    assert one == again
    assert one != other


def test_rows_that_give_no_problem_are_named(tmp_path: Path) -> None:
    """Nothing is left out silently."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "cvdp_copilot_x_0001", "categories": ["cid003", "easy"]}\n')
    bank = make_answers([path])
    assert not bank.answers
    assert list(bank.skipped) == ["rows: cvdp_copilot_x_0001"]


@pytest.mark.parametrize("text", ["module a;\nendmodule\n", "module a; endmodule // end", ""])
def test_broken_syntax_is_rejected_by_the_simulator(tmp_path: Path, text: str) -> None:
    """What stands for broken syntax is broken for iverilog, whatever it was made from."""
    iverilog = require_tool("iverilog")
    place = tmp_path / "a.sv"
    place.write_text(break_syntax(text))
    done = subprocess.run(
        [str(iverilog), "-g2012", "-t", "null", str(place)],
        capture_output=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0


@pytest.mark.thorough
@pytest.mark.integration
def test_a_mix_holds_its_proportions_and_its_wrong_answers_are_wrong(starter_rows: Path) -> None:
    """Shares are rounded to whole answers; each mutant was seen to compile and fail."""
    for tool in ("bwrap", "iverilog", "vvp"):
        require_tool(tool)
    mix = make_mix(MIXES["weak"], 9, sources=[starter_rows], options=OPTIONS, workers=2)
    made = sorted((a.kind, a.note if a.kind == "broken" else "") for a in mix)
    assert made == [
        ("broken", "elaboration"),
        *[("broken", "syntax")] * 3,
        *[("mutant", "")] * 4,
        ("reference", ""),
    ]
