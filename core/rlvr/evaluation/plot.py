"""Draw the curves of several runs into one PNG or SVG file; needs no display."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from rlvr.errors import ConfigError, PrerequisiteError
from rlvr.evaluation.compare_runs import Curve, Points
from rlvr.install import pip_install
from rlvr.records.atomic import write_out
from rlvr.records.run_directory import check_writable

FORMATS = (".png", ".svg")
COLUMNS = 2


def check_drawable(path: Path) -> None:
    """
    Make sure, before any work, that a picture can be drawn and written.

    Raises:
        ConfigError: It is neither PNG nor SVG, or cannot be written there.
        PrerequisiteError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise ConfigError(
            f"a picture was to be drawn to {path}.",
            f"found: the ending '{path.suffix}'",
            f"choose one of {', '.join(FORMATS)}",
        )
    check_writable(path)
    try:
        import matplotlib  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise PrerequisiteError(
            f"a picture was to be drawn to {path}.",
            "found: no matplotlib",
            f"{pip_install('rlvr[plot]')}, or leave --out away: the table needs none",
        ) from error


def draw(path: Path, curves: Sequence[tuple[Curve, Mapping[str, Points]]]) -> None:
    """
    Draw a panel for each curve, a line for each run that has it.

    Args:
        path: The picture; its ending decides the format.
        curves: The points of each run, by the run's name; empty ones have no line.

    Raises:
        CheckpointError: The disk is full.
    """
    import matplotlib
    from matplotlib.figure import Figure

    rows = -(-len(curves) // COLUMNS)
    names = list(dict.fromkeys(name for _, runs in curves for name in runs))
    colours = {name: f"C{place % 10}" for place, name in enumerate(names)}
    suffix = path.suffix.lower()[1:]
    with matplotlib.rc_context({"svg.hashsalt": "rlvr", "svg.fonttype": "none"}):
        figure = Figure(figsize=(5.5 * COLUMNS, 3.0 * rows + 0.4), layout="constrained")
        panels = figure.subplots(rows, COLUMNS, squeeze=False).flatten()
        handles = {}
        for panel, (curve, runs) in zip(panels, curves, strict=False):
            for name, found in runs.items():
                if found:
                    steps, values = zip(*found, strict=True)
                    marker = "o" if len(found) < 3 else None
                    (handles[name],) = panel.plot(
                        steps, values, label=name, color=colours[name], marker=marker
                    )
            panel.set(title=curve.title, xlabel="step")
            panel.xaxis.get_major_locator().set_params(integer=True)
            panel.grid(alpha=0.3)
        for panel in panels[len(curves) :]:
            panel.set_visible(False)
        figure.legend(
            handles=list(handles.values()), loc="outside upper center", ncols=min(len(handles), 4)
        )
        written = io.BytesIO()
        metadata = {"Date": None} if suffix == "svg" else None
        figure.savefig(written, format=suffix, dpi=110, metadata=metadata)
    write_out(path, written.getvalue())
