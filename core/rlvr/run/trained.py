"""The model that a run trained: its options, and the weights of its last checkpoint."""

from __future__ import annotations

from pathlib import Path

import attrs

from rlvr.config.layers import Layer
from rlvr.errors import CheckpointError, ConfigError, explain
from rlvr.parts import Backend, BuildContext, Checkpointer
from rlvr.run.configure import Configured
from rlvr.run.lineage import Lineage
from rlvr.run.recipe import build
from rlvr.run.rundir import RunDir
from rlvr.run.state import RunState

NOT_KEPT = ("run.sampler", "run.out")
"""Options of a run that say nothing about how its model is evaluated."""


def options_of(run: Path) -> Layer:
    """
    The resolved options of a run, as the lowest layer of a command that works on its model.

    Raises:
        ConfigError: There is no run there, or its `run.json` cannot be read.
    """
    config = RunDir.open(run).read_run()["config"]
    kept = {key: value for key, value in config.items() if key not in NOT_KEPT}
    return Layer(f"run {run}", kept, is_typed=True)


def lineage_in(run: Path) -> Lineage:
    """What the model of a run was trained on."""
    return Lineage.from_json(RunDir.open(run).read_run(), str(run / "run.json"))


def check_alone(run: Path, model: str | None) -> None:
    """
    Refuse a second model beside the run's.

    Raises:
        ConfigError: `--model` was given too.
    """
    if model is not None:
        raise ConfigError(
            explain(
                f"the model of the run {run} was to be evaluated (--run).",
                f"found: --model {model} too",
                "leave one of them out",
            )
        )


async def load_last(
    configured: Configured, context: BuildContext, run: Path, backend: Backend
) -> int:
    """
    Load the last checkpoint of a run into the backend; gives back its step.

    Raises:
        CheckpointError: The run has no checkpoint, or it cannot be trusted.
    """
    spec = configured.chosen.checkpointer
    assert spec is not None, "configure(needs='trained') finds one"
    checkpointer: Checkpointer = build(configured, spec, attrs.evolve(context, run_dir=run))
    checkpoints = checkpointer.list()
    if not checkpoints:
        raise CheckpointError(
            explain(
                f"the model of the run {run} was to be evaluated.",
                "found: no checkpoint of it",
                f"go on with the run: rlvr run --resume {run}",
            )
        )
    state = RunState.from_json(await checkpointer.load(checkpoints[-1], backend))
    return state.step
