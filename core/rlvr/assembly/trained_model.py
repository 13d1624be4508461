"""The model that a run trained: its options, and the weights of one of its checkpoints."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import reduce
from pathlib import Path

import attrs

from rlvr.assembly.build_part import build
from rlvr.assembly.configured import Configured
from rlvr.assembly.teachers import model_of, teacher_keys
from rlvr.border.calls import Border
from rlvr.border.promises import checkpoints_of
from rlvr.config.describe import as_text
from rlvr.config.layers import DEFAULT, Layer, without_gone
from rlvr.errors import CheckpointError, ConfigError
from rlvr.parts import Backend, BuildContext, Checkpointer
from rlvr.records.lineage import Lineage, joined, lineage_of
from rlvr.records.read_runs import (
    Trained,
    checkpoints_at,
    is_run,
    seen_from_here,
    trained_at,
    without_checkpoint,
)
from rlvr.records.run_directory import RunDir
from rlvr.teachers.route_spec import models_of


def options_of(run: Path) -> Layer:
    """
    The resolved options of a run, as the lowest layer of a command that works on its model.

    Raises:
        ConfigError: There is no run there, or its `run.json` cannot be read.
    """
    record = RunDir.open(run).read_run()
    config = without_gone(record["config"])
    if spec := record.get("model_spec"):  # another task's `starter` is another model
        config["run.model"] = spec
    config = seen_from_here(run, config)
    # how groups were drawn and where they went says nothing about how the model is evaluated
    kept = {k: v for k, v in config.items() if k != "run.sampler"}
    return Layer(f"run {run}", kept, is_typed=True)


def other_sampling(configured: Configured) -> dict[str, str]:
    """
    Sampling options that the run of the start model was given, where they are others now.

    For the log; {} where they sample alike, or where the model is none of a run.
    """
    model = configured.run.model.partition(":")[2]
    if not model or not is_run(model):
        return {}
    run = trained_at(Path(model)).run
    record, now = RunDir.open(run).read_run(), configured.options.values
    before, origin = record["config"], record.get("origin", {})
    other = [
        (key, was, value)
        for key, place in origin.items()
        if key.startswith("sampler.") and place != DEFAULT and not place.startswith("algorithm ")
        if key in before and key in now
        if (was := as_text(before[key])) != (value := as_text(now[key]))
    ]
    if not other:
        return {}
    return {
        "run": str(run),
        "differs": ", ".join(f"{k} {was or 'empty'}, now {v or 'empty'}" for k, was, v in other),
        "do": f"to sample as it did: {shlex.join(f'{k}={was}' for k, was, _ in other)}",
    }


def lineage_in(trained: Trained) -> Lineage:
    """
    Lineage of a run's model: that of its data set, joined with the one beside the weights.

    Only the latter names problems that a task found during training (`Task.discover`).
    """
    record, source = RunDir.open(trained.run).read_run(), str(trained.run / "run.json")
    lineages = [Lineage.from_json(record, source)]
    lineages += [lineage_of(f"path:{place / 'model'}") for place in checkpoints_at(trained)[-1:]]
    return attrs.evolve(reduce(joined, lineages), source=source)


def check_alone(run: Path, model: str | None) -> None:
    """
    Reject a second model beside the run's.

    Raises:
        ConfigError: `--model` was given too.
    """
    if model is not None:
        raise ConfigError(
            f"the model of the run {run} was to be evaluated (--run).",
            f"found: --model {model} too",
            "leave one of them out",
        )


async def load_last(
    configured: Configured, context: BuildContext, run: Path, backend: Backend, name: str = ""
) -> int:
    """
    Load the last checkpoint of a run, or the named one, into the backend; return its step.

    Raises:
        CheckpointError: The run has no such checkpoint, or it cannot be trusted.
    """
    spec = configured.chosen.checkpointer
    assert spec is not None, "configure(needs='trained') finds one"
    checkpointer: Checkpointer = build(configured, spec, attrs.evolve(context, run_dir=run))
    checkpoints = checkpoints_of(checkpointer)
    if not checkpoints:
        raise without_checkpoint(Trained(run))
    named = {checkpoint.path.name: checkpoint for checkpoint in checkpoints}
    which = named.get(name) if name else checkpoints[-1]
    if which is None:
        raise CheckpointError(
            f"checkpoint {name} of the run {run} was to be evaluated.",
            f"found: {', '.join(named)}",
            "name one of those, or the run for its last one; checkpoint.keep keeps more",
        )
    with Border(checkpointer, "checkpointer", "load", promised="the state it saved"):
        state: object = await checkpointer.load(which, backend)
    step = state.get("step") if isinstance(state, Mapping) else None  # of any version's state
    if not isinstance(step, int) or step < 0:
        raise CheckpointError(
            f"the state in the checkpoint {which.path} cannot be read.",
            f"found: {step!r} as its step",
            "name another checkpoint of the run",
        )
    return step


def lineage_at_start(configured: Configured, model: str) -> Lineage:
    """
    Lineage of a start model, joined with that of all other weights that influence the run.

    These are its teachers and whatever else the backend starts from (`BackendSpec.starts`).
    """
    chosen, values = configured.chosen, configured.options.values
    starts = chosen.backend.starts if chosen.backend is not None else ()
    models = [model, *(f"path:{values[key]}" for key in starts if values.get(key))]
    for key in teacher_keys(chosen):
        models += [model_of(m, chosen.task) for m in models_of(str(values.get(key) or ""))]
    return reduce(joined, map(lineage_of, models))
