"""On-policy structured distillation: the student lives in the house, the teacher looks on."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_fixture import Bench

from rlvr_household.starter.model_path import student_model, teacher_model

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def test_spans_of_the_students_own_turns_are_weighed(tmp_path: Path) -> None:
    """`--algo opd opd.mode=supervised`: divergence by type of span, on rollouts of many turns."""
    bench = Bench(tmp_path, student_model(), teacher_model())
    done = bench.rlvr(
        f"run --task house --algo opd --model {bench.student} --teacher {bench.teacher} "
        "--steps 2 --out house opd.mode=supervised opd.loss=jsd opd.weighting=action_heavy "
        "train.problems=2 sampler.group_size=2 house.train=8 house.test=4 house.steps=4 "
        "eval.samples=0"
    )
    assert done.returncode == 0, done.stderr[-3000:]
    records = bench.lines("house", "metrics.jsonl")

    assert len(records) == 2
    for kind in ("reasoning", "action"):
        assert records[-1][f"kl/{kind}"] > 0
    assert records[-1]["share/reasoning"] + records[-1]["share/action"] == pytest.approx(1.0)
