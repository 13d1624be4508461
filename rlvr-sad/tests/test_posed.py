"""Logs that a policy can be put before, and those that begin with the agent's own words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from training_fixture import bench_in

from rlvr import BuildContext
from rlvr_sad.config import SadConfig
from rlvr_sad.task import SadTask

MUTE = "Thought: I look.\nAction: look\nObservation: a box\n"


def test_a_log_that_begins_with_the_agents_words_poses_nothing(
    write: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Blank text before them is nothing either; a prompt, or an observation, is something."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    said = {"role": "assistant", "content": "yes"}
    records = [
        {"id": "mute", "text": MUTE},
        {"id": "blank", "text": f"\n \n{MUTE}"},
        {"id": "asked", "text": f"Question: where?\n{MUTE}"},
        {"messages": [{"role": "system", "content": "S"}, said], "id": "system"},
        {"messages": [said]},
    ]
    task = SadTask(
        SadConfig(),
        BuildContext(dataset=write("a.jsonl", "\n".join(map(json.dumps, records)))),
    )

    found = [bool(task.why_unanswerable(problem)) for problem in task.problems("all")]

    assert found == [True, True, False, False, True]
    for problem, is_mute in zip(task.problems("all"), found, strict=True):
        messages = task.episode(problem).prompt() or ()
        text = "".join(m.content for m in messages)
        assert is_mute or "I look" not in text


@pytest.mark.integration
def test_a_run_of_such_logs_alone_ends_at_the_start(tmp_path: Path) -> None:
    """Exit 2, the first of them and what to do; nothing was sampled."""
    bench = bench_in(tmp_path)
    (tmp_path / "mute.txt").write_text("\n\n=====\n\n".join([MUTE] * 3))
    done = bench.train("--dataset mute.txt --out mute sampler.max_tokens=8", algo="opd")

    assert done.returncode == 2, done.stderr
    assert "nothing stands before the agent's first word" in done.stderr
    assert "--sampler replay" in done.stderr
    assert not (tmp_path / "mute" / "run.json").exists()
