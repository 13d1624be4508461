"""The order of training by `cvdp.*`: difficulty, category, pass rate, strength, audited doubt."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from rlvr import BuildContext, ConfigError, PassRate, Problem, epochs
from rlvr.curriculum.select import problems_of_step
from rlvr.records.run_state import RunState
from rlvr.testing import TaskContract
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.datasets.strengths import read_audit, strength_weights
from rlvr_cvdp.task import CvdpTask


def rows(bench: Any, *kinds: tuple[str, str]) -> list[dict[str, Any]]:
    """Rows of these categories and difficulties, numbered from 1."""
    return [
        bench.row(id=f"cvdp_copilot_p{i}_0001", categories=list(kind))
        for i, kind in enumerate(kinds, 1)
    ]


def audit_file(folder: Path, **problems: Any) -> str:
    path = folder / "audit.json"
    path.write_text(json.dumps({"version": 1, "problems": problems}))
    return str(path)


def entry(strength: float | None, *, weak: bool = False, flaky: bool = False) -> dict[str, Any]:
    return {"strength": strength, "weak": weak, "flaky": flaky, "reference": "accepted"}


def chosen(task: CvdpTask, count: int, *, step: int, **facts: Any) -> list[str]:
    problems = list(task.problems("train"))
    facts = {"history": {}, "seed": 1, **facts}
    return [
        p.id.split("_")[2] for p in task.curriculum().choose(problems, count, step=step, **facts)
    ]


def test_easy_problems_come_first_and_hard_ones_later(bench: Any) -> None:
    """The first step is easy; after the ramp every difficulty is met."""
    kinds = [("cid003", d) for d in ("hard", "easy", "medium", "easy")]
    task = bench.task(*rows(bench, *kinds), curriculum="difficulty", curriculum_steps=10)

    assert set(chosen(task, 4, step=0)) == {"p2", "p4"}
    assert set(chosen(task, 4, step=10)) == {"p1", "p2", "p3", "p4"}


def test_categories_come_in_the_order_that_was_given(bench: Any) -> None:
    """`cvdp.stages` names the order; what it leaves out comes last."""
    kinds = [(c, "easy") for c in ("cid003", "cid016", "cid002")]
    task = bench.task(*rows(bench, *kinds), curriculum="category", stages=("cid002", "cid016"))

    assert set(chosen(task, 3, step=0)) == {"p3"}
    halfway = Counter(name for step in range(45, 55) for name in chosen(task, 2, step=step))
    assert set(halfway) == {"p2", "p3"}
    assert set(chosen(task, 3, step=100)) == {"p1", "p2", "p3"}


def test_pass_rates_decide_when_they_are_known(bench: Any) -> None:
    """The half-solved problem is trained on, the solved one waits."""
    task = bench.task(*rows(bench, ("cid003", "easy"), ("cid003", "easy")), curriculum="pass-rate")
    history = {
        "cvdp_copilot_p1_0001": PassRate(rate=1.0, count=3, step=5),
        "cvdp_copilot_p2_0001": PassRate(rate=0.5, count=3, step=5),
    }

    assert chosen(task, 1, step=6, history=history) == ["p2"]


def test_strong_harnesses_are_met_more_often(bench: Any, tmp_path: Path) -> None:
    """Strength 1 and 1/2, and one not audited, which counts as their mean: 4 to 2 to 3 of nine."""
    audit = audit_file(tmp_path, cvdp_copilot_p1_0001=entry(1.0), cvdp_copilot_p2_0001=entry(0.5))
    task = bench.task(*rows(bench, *[("cid003", "easy")] * 3), curriculum="strength", audit=audit)

    counts = Counter(name for step in range(40) for name in chosen(task, 9, step=step))

    assert {name: round(count / 40) for name, count in counts.items()} == {
        "p1": 4,
        "p2": 2,
        "p3": 3,
    }


def test_an_audit_of_other_problems_is_refused(bench: Any, tmp_path: Path) -> None:
    """Its weak problems are nobody's here: that is said, rather than all being trained on."""
    audit = audit_file(tmp_path, cvdp_other_0001=entry(0.2, weak=True))
    task = bench.task(*rows(bench, ("cid003", "easy")), weak="drop", audit=audit)
    with pytest.raises(ConfigError, match="it has none of the 1 problems"):
        list(task.problems("train"))


@pytest.mark.parametrize("doubt", ["weak", "flaky"])
def test_doubtful_problems_are_dropped_from_training_alone(
    bench: Any, tmp_path: Path, doubt: str
) -> None:
    """`cvdp.weak=drop` leaves them in every other split, and says how many it left out."""
    audit = audit_file(tmp_path, cvdp_copilot_p1_0001=entry(0.2, **{doubt: True}))
    task = bench.task(*rows(bench, *[("cid003", "easy")] * 2), weak="drop", audit=audit)

    assert [p.id for p in task.problems("train")] == ["cvdp_copilot_p2_0001"]
    assert len(list(task.problems("test"))) == len(list(task.problems("all"))) == 2
    assert any("1 of 2 problems are left out of training" in n for n in task.warnings("train"))


def test_doubtful_problems_can_be_met_less(bench: Any, tmp_path: Path) -> None:
    """`cvdp.weak=weigh`: strength 1/4 and weak is met once where another is met four times."""
    audit = audit_file(
        tmp_path,
        cvdp_copilot_p1_0001=entry(0.25, weak=True),
        cvdp_copilot_p2_0001=entry(0.25),  # as weak, but not called so
    )
    task = bench.task(*rows(bench, *[("cid003", "easy")] * 2), weak="weigh", audit=audit)

    counts = Counter(name for step in range(20) for name in chosen(task, 5, step=step))

    assert counts == {"p1": 20, "p2": 80}


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, ""),
        ({"weak": "drop"}, ""),
        ({"curriculum": "category"}, "cvdp.curriculum=category"),
        ({"weak": "weigh"}, "cvdp.weak=weigh"),
        ({"weak": "weigh", "curriculum": "pass-rate"}, "cvdp.curriculum=pass-rate"),
    ],
)
def test_the_task_says_what_asked_it_to_choose(
    bench: Any, tmp_path: Path, options: dict[str, str], asked: str
) -> None:
    """So that `--curriculum` is refused beside it, and nothing is said where nobody asked."""
    audit = audit_file(tmp_path, cvdp_copilot_p1_0001=entry(0.5, weak=True))
    extra = {"audit": audit} if "weak" in options else {}
    task = bench.task(*rows(bench, ("cid003", "easy")), **options, **extra)

    assert task.curriculum_option == asked


def test_without_a_curriculum_problems_are_met_in_epochs(bench: Any) -> None:
    """The default is what the run does with a task that does not choose."""
    task = bench.task(*rows(bench, *[("cid003", "easy")] * 5))
    problems = list(task.problems("train"))

    for step in range(4):
        state = RunState(step=step)
        assert problems_of_step(task, problems, 3, seed=2, state=state) == epochs(
            problems, 3, seed=2, step=step
        )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "No such file"),
        ("{", "not JSON"),
        ("[]", 'no object with "problems"'),
        ('{"problems": {}}', "version None, and this is read: 1"),
        ('{"version": 2, "problems": {}}', "version 2, and this is read: 1"),
        ('{"version": 1, "problems": {"a": {"strength": 2}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": {"strength": true}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": {}}}', "problem a has no"),
        ('{"version": 1, "problems": {"a": []}}', "problem a has no"),
    ],
)
def test_a_file_that_is_no_audit_is_refused(bench: Any, text: str | None, said: str) -> None:
    """Missing, unreadable or foreign: what was found, and how an audit is made."""
    path = bench.folder / "audit.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(ConfigError) as caught:
        bench.task(weak="drop", audit=str(path))

    assert said in str(caught.value)
    assert "rlvr audit --plugin cvdp" in str(caught.value)


def test_an_audit_of_unknown_strengths_weighs_alike(tmp_path: Path) -> None:
    """Where nothing is known, nothing is preferred; null is no zero."""
    audit = read_audit(Path(audit_file(tmp_path, a=entry(None), b=entry(0.5))))

    assert strength_weights(audit, ["a", "b", "c"]) == {"a": 0.5, "b": 0.5, "c": 0.5}
    assert strength_weights({}, ["a", "b"]) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"weak": "drop"}, "cvdp.weak=drop needs to know how strong"),
        ({"curriculum": "strength"}, "cvdp.curriculum=strength needs to know"),
        ({"proxy": "lint"}, "give both, or neither"),
        ({"proxy_steps": 3}, "give both, or neither"),
    ],
)
def test_options_that_would_do_nothing_are_refused(options: dict[str, Any], said: str) -> None:
    """No option is accepted and ignored."""
    with pytest.raises(ConfigError, match=said):
        CvdpConfig(**options)


class TestChoosingTask(TaskContract):
    """The task keeps the promises of every task with a curriculum, too."""

    def make_task(self) -> CvdpTask:
        """The embedded problems, by pass rate."""
        return CvdpTask(CvdpConfig(curriculum="pass-rate"), BuildContext())


def test_families_are_labels(bench: Any) -> None:
    """Every problem names its family, whatever else it is labelled with."""
    (problem,) = bench.task(bench.row(id="cvdp_agentic_FIFO_0007")).problems("train")

    assert isinstance(problem, Problem)
    assert problem.labels["family"] == "fifo"
