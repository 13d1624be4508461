"""The learning curve of a run as a PNG."""

from __future__ import annotations

from math import nan
from pathlib import Path

from rlvr.install import pip_install
from rlvr.log import get
from rlvr.run.rundir import RunDir
from rlvr.types import RunInfo

log = get(__name__)


def draw(run: RunInfo) -> Path | None:
    """
    Write `curve.png` into the run directory: reward and pass rate by step, evaluations with bars.

    On recorded trajectories it is the loss, trained on and held out.

    None where nothing was trained or matplotlib (extra `rlvr[plot]`) is not installed.
    """
    directory = RunDir(run.directory)
    metrics = directory.read_lines("metrics.jsonl")
    evaluations = directory.read_lines("eval.jsonl")
    if not metrics:
        return None
    try:
        import matplotlib
    except ImportError:
        log.warning("curve_not_drawn", reason="no matplotlib", fix=pip_install("rlvr[plot]"))
        return None
    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    steps = [m["step"] for m in metrics]
    appraised = [e for e in evaluations if e.get("measures")]
    if appraised:  # recorded trajectories: nothing is right or wrong
        losses = [(m["step"], m["loss"]) for m in metrics if "loss" in m]
        axes.plot(*zip(*losses, strict=True), label="loss (train)", alpha=0.7)
        held = [(e["step"], e["measures"].get("eval/loss", float("nan"))) for e in appraised]
        axes.plot(*zip(*held, strict=True), label=f"loss ({appraised[0]['split']})", marker="o")
    else:
        axes.plot(
            steps,
            [m.get("reward/mean", nan) for m in metrics],
            label="mean reward (train)",
            alpha=0.7,
        )
        axes.plot(
            steps,
            [m.get("reward/pass", nan) for m in metrics],
            label="pass rate (train)",
            alpha=0.7,
        )
        axes.set(ylim=(0, 1.02))
    if evaluations and not appraised:
        axes.errorbar(
            [e["step"] for e in evaluations],
            [e["pass1"] for e in evaluations],
            yerr=[
                [max(e["pass1"] - e["low"], 0.0) for e in evaluations],
                [max(e["high"] - e["pass1"], 0.0) for e in evaluations],
            ],
            label=f"pass@1 ({evaluations[0]['split']}, 95 %)",
            marker="o",
            capsize=4,
        )
    axes.set(xlabel="step", title=f"{run.plugin} {run.algo}, seed {run.seed}")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    path = run.directory / "curve.png"
    figure.savefig(path, dpi=110)
    return path
