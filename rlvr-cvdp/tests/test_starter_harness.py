"""The harnesses at work: right designs pass in every style, wrong ones fail in part."""

from __future__ import annotations

import random
import shutil
from typing import Any

import pytest

from starter_problems.build import row
from starter_problems.equivalence import is_indistinguishable
from starter_problems.families import FAMILIES
from starter_problems.judge import judge
from starter_problems.style import STYLES, Style

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not shutil.which("iverilog"), reason="needs the simulator iverilog"),
]


@pytest.mark.one_of(4)
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize(("number", "family"), list(enumerate(FAMILIES)), ids=str)
def test_right_design_passes(bench: Any, number: int, family: str) -> None:
    """The solution passes as an answer does; families take turns at the three styles."""
    draft = FAMILIES[family](random.Random(11))
    style = STYLES[number % 3]
    (problem,) = bench.task(row("p", "train", draft)).problems("all")
    found = bench.judge({draft.target: draft.render(style)}, problem)
    assert found.score01 == 1.0, found.evidence


@pytest.mark.parametrize("style", STYLES, ids=lambda style: style.name)
def test_each_style_is_valid_verilog(style: Style) -> None:
    """A clocked design with internal nets passes whoever wrote it."""
    draft = FAMILIES["fifo"](random.Random(12))
    verdict = judge(row("p", "train", draft), {draft.target: draft.render(style)})
    assert verdict.is_right, verdict.log


def test_share_of_tests_tells_how_wrong_an_answer_is() -> None:
    """A slip fails some tests, undriven outputs fail more, a syntax error gives none."""
    draft = FAMILIES["counter"](random.Random(13))
    problem = row("p", "train", draft)
    signs = str.maketrans("+-", "-+")
    slip = draft.solution.translate(signs)
    silent = draft.solution.split(");\n")[0] + ");\nendmodule\n"
    broken = draft.solution.replace("endmodule", "")
    verdicts = [judge(problem, {draft.target: text}) for text in (slip, silent, broken)]
    assert 0 < verdicts[0].passed < verdicts[0].total
    assert 0 < verdicts[1].passed < verdicts[0].passed
    assert not verdicts[2].compiles


def test_equivalence_sees_a_rare_difference_and_no_false_one() -> None:
    """Equal designs are the same; a counter that wraps one later is not."""
    draft = FAMILIES["mod_counter"](random.Random(14))
    ports = draft.design.ports
    assert is_indistinguishable(draft.solution, draft.solution, ports)
    changed = draft.solution.replace(" == ", " > ", 1)
    assert not is_indistinguishable(draft.solution, changed, ports)
