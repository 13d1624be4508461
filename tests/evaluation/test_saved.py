"""Evaluations on disk: what is written is what is read, and damage is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr import (
    ConfigError,
    Failed,
    Outcome,
    Problem,
    Reward,
    ScoredGroup,
    Segment,
    Trajectory,
    UnknownNameError,
    Unscorable,
)
from rlvr.evaluation.saved import holds_verdicts, judged_lines, read_judged

OUTCOMES: list[Outcome] = [
    Reward(value=0.5, score01=1.0, components={"x": 0.5}, cost_s=1.5),
    Reward(value=1.0, score01=1.0, cached=True),
    Unscorable(reason="odd"),
    Failed(reason="no simulator"),
]


def evaluation() -> ScoredGroup:
    segments = [
        Segment(author="prompt", tokens=[1, 2], text="?"),
        Segment(author="policy", tokens=[3, 4, 5], logprobs=[-1.0, -0.5, -0.25], text="!"),
    ]
    return ScoredGroup(
        problem=Problem(
            id="p", prompt=(), split="test", labels={"kind": "x"}, digest="d", payload=None
        ),
        trajectories=[
            Trajectory(problem_id="p", segments=segments, seed=i, index=i) for i in range(4)
        ],
        outcomes=OUTCOMES,
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every kind of outcome, tokens, labels, digest, split and the facts come back equal."""
    facts = {"model": "m", "split": "test", "sample_s": 1.5, "judge_s": 0.5, "held_out": None}
    path = tmp_path / "s.jsonl"
    path.write_text("".join(judged_lines([evaluation()], facts)))

    found = read_judged(path)

    assert found.groups == (evaluation(),)
    assert (found.facts, found.unusable) == (facts, ())
    assert holds_verdicts(path)


def test_damaged_lines_are_named_and_cost_nothing_else(tmp_path: Path) -> None:
    """A cut line, one without verdict, one of another kind; the first line's facts stay."""
    lines = list(judged_lines([evaluation()], {"model": "m"}))
    path = tmp_path / "s.jsonl"
    odd = ['{"id": "p", "completion": "x"}\n', "[]\n", lines[1][:40] + "\n"]
    path.write_text("".join([lines[0], *odd, lines[2]]))

    found = read_judged(path)

    assert [g.outcomes for g in found.groups] == [(OUTCOMES[0], OUTCOMES[2])]
    assert [line.split(" is no ")[0] for line in found.unusable] == ["line 2", "line 3", "line 4"]


def test_answers_are_no_evaluation(tmp_path: Path) -> None:
    """They are told from samples with a verdict, and refused rather than read as nothing."""
    path = tmp_path / "a.jsonl"
    path.write_text('\n{"id": "p", "completion": "x"}\n')

    assert not holds_verdicts(path)
    with pytest.raises(ConfigError, match="no sample with its verdict"):
        read_judged(path)
    with pytest.raises(UnknownNameError, match="no such file"):
        read_judged(tmp_path / "b.jsonl")
