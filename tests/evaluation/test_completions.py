"""Answers of a file as samples: order, the missing, the surplus, the unusable."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlvr import Failed, Message, Outcome, Problem, Reward, ScoredGroup, Trajectory
from rlvr.evaluation.answers_file import (
    Answer,
    Completions,
    group_answers,
    read_answers,
    with_missing,
)
from rlvr.evaluation.breakdown import breakdown
from rlvr.records.trajectories import trajectory_records

PROBLEMS = [Problem(id=name, prompt=[Message(role="user", content="?")]) for name in "abc"]


def answer(name: str, text: str) -> Answer:
    return Answer(id=name, trajectory=Trajectory.from_text(name, text), line=1)


def texts(completions: Completions) -> list[list[str]]:
    return [[t.completion for t in g.trajectories] for g in completions.groups]


def score(completions: Completions, *, as_wrong: bool) -> list[ScoredGroup]:
    """Every answer that is there is right."""
    right: Outcome = Reward(value=1.0, score01=1.0)
    scored = [
        ScoredGroup(
            problem=g.problem, trajectories=g.trajectories, outcomes=[right] * len(g.trajectories)
        )
        for g in completions.groups
    ]
    return with_missing(scored, completions.samples, 0.0, as_wrong=as_wrong)


def test_lines_of_an_id_are_its_samples_in_order() -> None:
    """Problems in the order of the data set, samples in that of the file."""
    made = group_answers([answer("b", "1"), answer("a", "2"), answer("b", "3")], PROBLEMS)

    assert texts(made) == [["2"], ["1", "3"], []]
    assert made.samples == 2
    assert made.missing == {"a": 1, "c": 2}


def test_more_answers_than_asked_for_are_left_out_and_counted() -> None:
    """`--samples 1` takes the first of each problem."""
    made = group_answers([answer("a", "1"), answer("a", "2"), answer("b", "3")], PROBLEMS, 1)

    assert texts(made) == [["1"], ["3"], []]
    assert (made.surplus, made.samples) == (1, 1)


def test_a_missing_answer_is_wrong_or_nothing() -> None:
    """The two readings of 3 right answers out of 6 places."""
    made = group_answers([answer("a", "1"), answer("a", "2"), answer("b", "3")], PROBLEMS)

    wrong = breakdown(score(made, as_wrong=True)).whole
    skipped = breakdown(score(made, as_wrong=False)).whole

    assert (wrong.problems, wrong.samples, wrong.right, wrong.pass1) == (3, 6, 3, 0.5)
    assert wrong.runs == pytest.approx((2 / 3, 1 / 3))
    assert (skipped.problems, skipped.samples, skipped.pass1) == (2, 3, 1.0)


def test_a_failed_verification_is_not_missing() -> None:
    """It has its place among the samples, and no verdict."""
    failed = ScoredGroup(
        problem=PROBLEMS[0],
        trajectories=[Trajectory.from_text("a", "x")],
        outcomes=[Failed(reason="no simulator")],
    )

    (filled,) = with_missing([failed], 2, 0.0, as_wrong=True)

    assert [type(o).__name__ for o in filled.outcomes] == ["Failed", "Reward"]


def test_lines_that_are_no_answer_to_these_problems_are_told() -> None:
    """Unreadable ones by their own reason, those of other problems by their line."""
    lines = [Answer(error="line 1: not JSON"), answer("elsewhere", "x"), answer("a", "y")]

    made = group_answers(lines, PROBLEMS)

    assert made.unusable[0] == "line 1: not JSON"
    assert "'elsewhere' is not among the problems" in made.unusable[1]
    assert made.samples == 1


def test_samples_that_were_written_are_read_back(tmp_path: Path) -> None:
    """`--out` of an evaluation is a file of completions: texts, files, errors, cut answers."""
    written = [
        Trajectory.from_text("a", "text"),
        Trajectory(problem_id="a", index=1, files={"rtl/a.sv": "module a; endmodule"}),
        Trajectory(problem_id="a", index=2, finish="error", error="HTTP 500"),
    ]
    group = ScoredGroup(
        problem=PROBLEMS[0], trajectories=written, outcomes=[Failed(reason="x")] * 3
    )
    path = tmp_path / "samples.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in trajectory_records(group, 0)))

    read = list(read_answers(str(path), {p.id: p for p in PROBLEMS}, {}))

    assert [a.trajectory for a in read] == written


def test_half_a_sample_is_told_by_its_line(tmp_path: Path) -> None:
    """What lacks a trajectory's fields is an unusable line, no crash."""
    path = tmp_path / "samples.jsonl"
    path.write_text('{"id": "a", "segments": []}\n{"id": "a", "segments": [3]}\n')

    errors = [a.error for a in read_answers(str(path), {p.id: p for p in PROBLEMS}, {})]

    assert [e.partition(":")[0] for e in errors] == ["line 1", "line 2"]
