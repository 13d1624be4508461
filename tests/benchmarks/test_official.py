from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging.answers import Answer, make_answers
from judging.official import OfficialRunner, official_row, unified

from rlvr import Problem

from .conftest import Checkout, agentic

LINES = st.lists(st.sampled_from(["a", "b", "  c;", "", "-- d", "++ e", "\\f"]), max_size=12)


def runner(folder: Path) -> OfficialRunner:
    return OfficialRunner(
        checkout=folder, python=sys.executable, image="some:tag", threads=3, timeout_s=77
    )


def test_verdicts_come_in_the_order_of_the_answers(
    checkout: Checkout, starter_rows: Path, tmp_path: Path
) -> None:
    """Several answers to one problem stay apart; image, threads and limit reach the runner."""
    answers = make_answers([starter_rows], kinds=["reference", "broken"]).answers
    run = runner(checkout.make()).judge(answers, tmp_path / "run")
    assert [v.is_right for v in run.verdicts] == [True, False] * 3
    assert all(v.ran and v.seconds == 1.5 for v in run.verdicts)
    assert [v.why for v in run.verdicts][1] == "exit 1: E   no"
    assert checkout.call() == {"image": "some:tag", "timeout": "77", "t": "3"}


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"blocked": True}, "failed to solve: no such host"),  # the image could not be built
        ({"status": 125}, "exit 125"),  # docker's own, as without its compose plugin
    ],
)
def test_without_a_container_there_is_no_verdict(
    checkout: Checkout, starter_rows: Path, tmp_path: Path, fault: dict[str, int], why: str
) -> None:
    """It says nothing about the answer, which the runner calls wrong."""
    answers = make_answers([starter_rows], kinds=["broken"]).answers
    run = runner(checkout.make(**fault)).judge(answers, tmp_path / "run")
    assert not any(v.ran for v in run.verdicts)
    assert run.verdicts[0].why == f"no container: {why}"


def test_an_answer_that_ran_out_of_time_says_so(
    checkout: Checkout, starter_rows: Path, tmp_path: Path
) -> None:
    """The runner's results do not tell; its output does."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    run = runner(checkout.make(stopped=True)).judge(answers, tmp_path / "run")
    assert all(v.stopped and v.ran and not v.is_right for v in run.verdicts)
    assert run.verdicts[0].why == "it ran into the runner's limit of time"


def test_a_runner_that_judges_other_files_gives_no_verdict(
    checkout: Checkout, starter_rows: Path, tmp_path: Path
) -> None:
    """Parity over different files would mean nothing."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    run = runner(checkout.make(written="text + ' '")).judge(answers, tmp_path / "run")
    assert not any(v.ran or v.is_right for v in run.verdicts)
    assert run.verdicts[0].why == f"it wrote another {next(iter(answers[0].files))}"


def test_a_runner_without_results_is_an_error_with_its_words(
    checkout: Checkout, starter_rows: Path, tmp_path: Path
) -> None:
    """A broken installation is not a list of wrong answers."""
    answers = make_answers([starter_rows], kinds=["reference"]).answers
    with pytest.raises(RuntimeError, match=r"no raw_result\.json"):
        runner(checkout.make(results=False)).judge(answers, tmp_path / "run")


def applied(before: list[str], diff: str) -> list[str]:
    made: list[str] = []
    at = 0
    for line in diff.split("\n") if diff else []:
        if hunk := re.match(r"@@ -(\d+)(?:,(\d+))? ", line):
            start = int(hunk[1]) - (hunk[2] != "0")
            made += before[at:start]
            at = start
        elif line[0] == "+":
            made.append(line[1:])
        else:
            assert before[at] == line[1:]
            made += [] if line[0] == "-" else [before[at]]
            at += 1
    return made + before[at:]


@given(before=LINES, after=LINES)
def test_a_patch_gives_the_answer(before: list[str], after: list[str]) -> None:
    """Agentic rows carry answers as hunks; applied to the context they give the answer."""
    old, new = "\n".join(before), "\n".join([*after, "end"])
    assert applied(old.split("\n") if old else [], unified(old, new)) == new.split("\n")


def test_an_agentic_row_keeps_its_family_and_gets_a_number_of_its_own() -> None:
    """The runner reads format and folder from the id."""
    row = agentic({"rtl/a.sv": "module a;\nendmodule\n"}, {"rtl/a.sv": "", "rtl/b.sv": ""})
    answer = Answer(
        source=Path("x.jsonl"),
        row=row,
        problem=Problem(id=row["id"], prompt=()),
        kind="reference",
        files={"rtl/a.sv": "module a;\n  wire b;\nendmodule\n"},
    )
    made = official_row(answer, 12)
    assert made["id"] == "cvdp_agentic_two_words_0000012"
    assert list(made["patch"]) == ["rtl/a.sv"]
    assert made["patch"]["rtl/a.sv"].startswith("@@ ")
    assert row["id"] == "cvdp_agentic_two_words_0004"
