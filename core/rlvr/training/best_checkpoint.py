"""Find the best evaluation of a run; its checkpoint is never deleted."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlvr.types import EvalReport

LOSS = "eval/loss"


def best_step(reports: Mapping[int, EvalReport]) -> int | None:
    """
    The step with the best evaluation, of those with a checkpoint of their own (not step 0).

    On recorded trajectories that is the lowest `eval/loss`; else the highest pass@1, then the
    highest mean reward. The first of equals.
    """
    ranked = [(_rank(report), -step) for step, report in reports.items() if step > 0]
    known = [entry for entry in ranked if not any(map(math.isnan, entry[0]))]
    return -max(known)[1] if known else None


def _rank(report: EvalReport) -> tuple[float, float]:
    """Larger is better."""
    if report.measures:
        return -report.measures.get(LOSS, math.nan), 0.0
    return report.pass1, report.reward_mean


def recorded_reports(records: Iterable[Mapping[str, Any]]) -> dict[int, EvalReport]:
    """As much of the evaluations in `eval.jsonl` as a ranking needs; damaged ones are left out."""
    found = {}
    for record in records:
        step, pass1, reward = (record.get(key) for key in ("step", "pass1", "reward_mean"))
        if isinstance(step, int):
            found[step] = EvalReport(
                split=str(record.get("split", "")),
                scores={},
                pass_at={1: float(pass1)} if isinstance(pass1, int | float) else {},
                low=0.0,
                high=0.0,
                reward_mean=float(reward) if isinstance(reward, int | float) else 0.0,
                samples=0,
                measures=record.get("measures") or {},
            )
    return found


def best(step: int, report: EvalReport, run: Path) -> dict[str, Any]:
    """The best checkpoint for a summary: `step`, `checkpoint` where it is a folder, its score."""
    path = run / "checkpoints" / f"step-{step:06d}"
    found: dict[str, Any] = {"step": step}
    if report.measures:
        found["loss"] = report.measures.get(LOSS)
    else:
        found["pass1"] = report.pass1
    return found | ({"checkpoint": str(path)} if path.is_dir() else {})


def sentence(best: Mapping[str, Any]) -> str:
    """`step 40 (pass@1 62.5%) runs/NAME/checkpoints/step-000040`."""
    score = (
        f"pass@1 {best['pass1']:.1%}" if "pass1" in best else f"{LOSS} {best.get('loss', 0):.4g}"
    )
    return f"step {best['step']} ({score})  {best.get('checkpoint', '')}".rstrip()
