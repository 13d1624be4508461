"""The learning curve of a run as a picture."""

from __future__ import annotations

from math import nan

from attrs import frozen
from attrs.validators import gt, max_len, min_len

from rlvr.config.fields import option
from rlvr.install import pip_install
from rlvr.log import get
from rlvr.parts import BuildContext, Callback
from rlvr.records.run_directory import RunDir
from rlvr.types import RunInfo

log = get(__name__)


@frozen(kw_only=True)
class CurveOptions:
    """Place and size of the learning curve's picture."""

    file: str = option(
        "curve.png", "Picture, in the run directory", validator=[min_len(1), max_len(200)]
    )
    width: float = option(8.0, "Width of the picture", unit="inches", validator=gt(0))
    height: float = option(4.5, "Height of the picture", unit="inches", validator=gt(0))
    dpi: int = option(110, "Pixels an inch", validator=gt(0))


class LearningCurve(Callback):
    """Draws the learning curve when the run has ended."""

    def __init__(self, config: CurveOptions | None, context: BuildContext) -> None:
        del context
        self._options = config or CurveOptions()

    def run_finished(self, run: RunInfo, outcome: str) -> None:
        """
        Draw reward and pass rate by step, evaluations with bars, however the run ended.

        On recorded trajectories it is the loss, trained on and held out. Nothing is drawn where
        nothing was trained or matplotlib (extra `rlvr[plot]`) is not installed.
        """
        options = self._options
        directory = RunDir(run.directory)
        metrics = directory.read_lines("metrics.jsonl")
        evaluations = directory.read_lines("eval.jsonl")
        if not metrics:
            return
        try:
            from matplotlib.figure import Figure  # not pyplot: a notebook's backend stays
        except ImportError:
            log.warning("curve_not_drawn", reason="no matplotlib", fix=pip_install("rlvr[plot]"))
            return

        figure = Figure(figsize=(options.width, options.height), layout="constrained")
        axes = figure.subplots()
        appraised = [e for e in evaluations if e.get("measures")]
        whose = "train" if metrics[-1].get("sampler/drawn", 1.0) else "references"
        curves = {"reward/mean": f"mean reward ({whose})", "reward/pass": f"pass rate ({whose})"}
        if appraised:  # recorded trajectories: nothing is right or wrong
            curves = {"loss": "loss (train)"}
        for name, label in curves.items():
            followed = [(m["step"], m.get(name, nan)) for m in metrics]
            axes.plot(*zip(*followed, strict=True), label=label, alpha=0.7)
        if appraised:
            held = [(e["step"], e["measures"].get("eval/loss", nan)) for e in appraised]
            axes.plot(*zip(*held, strict=True), label=f"loss ({appraised[0]['split']})", marker="o")
        else:
            axes.set(ylim=(0, 1.02))
        if evaluations and not appraised:
            low = [max(e["pass1"] - e["low"], 0.0) for e in evaluations]
            high = [max(e["high"] - e["pass1"], 0.0) for e in evaluations]
            axes.errorbar(
                [e["step"] for e in evaluations],
                [e["pass1"] for e in evaluations],
                yerr=[low, high],
                label=f"pass@1 ({evaluations[0]['split']}, 95 %)",
                marker="o",
                capsize=4,
            )
        axes.set(xlabel="step", title=f"{run.plugin} {run.algo}, seed {run.seed}")
        axes.grid(alpha=0.3)
        axes.legend(loc="lower right")
        figure.savefig(run.directory / options.file, dpi=options.dpi)
