"""The best evaluation: which it is, and that its weights survive."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest

from rlvr import BuildContext, EvalReport
from rlvr.builtin.file_checkpoints import FileCheckpointer, FileCheckpointOptions
from rlvr.records.run_directory import RunDir
from rlvr.testing.fakes import TinyBackend
from rlvr.training.best_checkpoint import best, best_step, recorded_reports, sentence


def judged(pass1: float, reward: float = 0.0) -> EvalReport:
    return EvalReport(
        split="test",
        scores={"p": (pass1,)},
        pass_at={1: pass1},
        low=0,
        high=1,
        reward_mean=reward,
        samples=1,
    )


def appraised(loss: float) -> EvalReport:
    return attrs.evolve(judged(0.0), scores={"p": ()}, pass_at={}, measures={"eval/loss": loss})


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        ({}, None),
        ({0: judged(1.0)}, None),  # no checkpoint of its own
        ({0: judged(1.0), 5: judged(0.2), 10: judged(0.7), 15: judged(0.7)}, 10),
        ({5: judged(0.0, 0.1), 10: judged(0.0, 0.4), 15: judged(0.0, 0.3)}, 10),
        ({0: appraised(0.1), 5: appraised(2.0), 10: appraised(0.5), 15: appraised(0.6)}, 10),
        ({5: appraised(np.nan), 10: appraised(3.0)}, 10),
        ({5: appraised(np.nan)}, None),
    ],
)
def test_the_best_is_the_highest_score_or_the_lowest_loss(
    reports: dict[int, EvalReport], wanted: int | None
) -> None:
    """Then the reward; the first of equals; never the start, never what is not a number."""
    assert best_step(reports) == wanted


def test_it_is_said_with_its_score(tmp_path: Path) -> None:
    """And with its folder, where it is there."""
    assert sentence(best(5, appraised(0.25), tmp_path)) == "step 5 (eval/loss 0.25)"
    (tmp_path / "checkpoints/step-000005").mkdir(parents=True)
    found = best(5, judged(0.5), tmp_path)
    assert found["checkpoint"] == str(tmp_path / "checkpoints/step-000005")
    assert sentence(found).startswith("step 5 (pass@1 50.0%)  ")


def test_evaluations_come_back_from_their_file(tmp_path: Path) -> None:
    """With measures, without a pass rate where nothing was judged, damaged lines apart."""
    run = RunDir(tmp_path)
    run.append_eval(5, appraised(0.25))
    run.append_eval(10, judged(0.5))
    lines = run.read_lines("eval.jsonl")
    assert [line["pass1"] for line in lines] == [None, 0.5]
    assert dict(run.read_evals()[5].measures) == {"eval/loss": 0.25}
    again = recorded_reports([*lines, {"step": "x"}, {}])
    assert {step: (r.pass1, dict(r.measures)) for step, r in again.items()} == {
        5: (0.0, {"eval/loss": 0.25}),
        10: (0.5, {}),
    }


def test_what_is_spared_stays_beside_the_newest(tmp_path: Path) -> None:
    """`keep` newest and the named one; when another is named, the one before may go."""
    checkpointer = FileCheckpointer(FileCheckpointOptions(keep=2), BuildContext(run_dir=tmp_path))
    backend: Any = TinyBackend()

    def steps() -> list[int]:
        return [checkpoint.step for checkpoint in checkpointer.list()]

    def save(*wanted: int) -> None:
        for step in wanted:
            asyncio.run(checkpointer.save(step, {}, backend))

    save(1, 2)
    checkpointer.pin(1)
    save(3, 4, 5)
    assert steps() == [1, 4, 5]
    checkpointer.pin(4)
    assert steps() == [4, 5]
    save(6, 7)
    assert steps() == [4, 6, 7]
    checkpointer.pin(None)
    assert steps() == [6, 7]
