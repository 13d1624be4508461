"""Several teachers from the command line: each problem's own, by its label."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

Call = Callable[..., tuple[int, str, str]]
OPD = ("run", "--plugin", "toy", "--algo", "opd", "eval.samples=0", "torch.threads=1")
SMALL = ("train.problems=2", "sampler.group_size=2")


def test_two_teachers_teach_a_run(rlvr_here: Call, tmp_path: Path) -> None:
    """By a label of the task's, the rest by the other; what both were trained on is recorded."""
    grpo = ("run", "--plugin", "toy", "--steps", "1", "--out", "first", "eval.samples=0")
    assert rlvr_here(*grpo)[0] == 0
    (model,) = (tmp_path / "first/checkpoints").glob("*/model")
    routes = f"family:a=gpt2:{model},*=starter"

    code, _, err = rlvr_here(*OPD, "--teacher", routes, *SMALL, "--steps", "1", "--out", "r")

    assert code == 0, err
    (metrics,) = [json.loads(x) for x in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert "teacher/kl" in metrics
    record = json.loads((tmp_path / "r/run.json").read_text())
    assert record["config"]["advantage.teacher"] == routes
    assert record["families_before"] == record["families"] != []


def test_the_options_of_each_teacher_are_shown(rlvr_here: Call) -> None:
    """`rlvr config show` knows the routes' plugins, and the value as it was given."""
    routes = "a=gpt2:new?layers=1&heads=1,*=starter"
    code, out, err = rlvr_here(
        "config",
        "show",
        "--plugin",
        "toy",
        "--algo",
        "opd",
        f"advantage.teacher={routes}",
        "--json",
    )
    assert code == 0, err
    shown = json.dumps(json.loads(out))
    assert routes in shown
    assert "torch.lora_rank" in shown


@pytest.mark.parametrize(
    ("routes", "code", "said"),
    [
        ("a=starter", 2, "found: no route takes its labels"),
        ("a=starter,b=", 2, "no model after the ="),
        ("a=starter,a=gpt2:x", 2, "task=a twice"),
        ("a=nobody:x,*=starter", 3, "no plugin takes it"),
        ("a=gpt2:nowhere,*=starter", 2, "no such folder"),
    ],
)
def test_bad_routes_are_refused_before_anything_is_sampled(
    rlvr_here: Call, tmp_path: Path, routes: str, code: int, said: str
) -> None:
    """With what was asked, what was found, and no run directory left."""
    found, _, err = rlvr_here(*OPD, "--teacher", routes, *SMALL, "--steps", "1", "--out", "r")

    assert (found, "Traceback" in err) == (code, False), err
    assert said in err
    assert not (tmp_path / "r/metrics.jsonl").exists()


def test_the_best_checkpoint_is_named(rlvr_here: Call, tmp_path: Path) -> None:
    """At the end of a run and by `rlvr runs show`, as text and as JSON."""
    words = ("run", "--plugin", "toy", "--algo", "grpo", "torch.threads=1", *SMALL, "--steps", "3")
    kept = ("eval.samples=1", "eval.every=1", "checkpoint.keep=1", "--out", "r")
    code, out, err = rlvr_here(*words, *kept, "train.lr=1e-9")  # learns nothing: first is best
    assert code == 0, err
    assert "best       step 1 (pass@1 " in out
    assert "r/checkpoints/step-000001" in out
    assert sorted(p.name for p in (tmp_path / "r/checkpoints").iterdir()) == [
        "step-000001",
        "step-000003",
    ]
    shown = json.loads(rlvr_here("runs", "show", "r", "--json")[1])
    assert shown["best"]["step"] == 1
    assert "best: step 1 (pass@1 " in rlvr_here("runs", "show", "r")[1]
