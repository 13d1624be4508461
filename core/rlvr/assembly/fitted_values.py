"""Layers of option values that a task and a backend propose for a data set and a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rlvr.assembly.teachers import model_of
from rlvr.border.calls import Border, shown, told_by
from rlvr.config.layers import Layer, Options
from rlvr.errors import RlvrError
from rlvr.fitting import ModelFacts, Proposed, Situation
from rlvr.log import get
from rlvr.specs import BackendSpec, PartSpec

if TYPE_CHECKING:
    from rlvr.assembly.configured import Chosen

log = get(__name__)


def fitted_layers(
    chosen: Chosen, options: Options, given: Sequence[Layer], *, trains: bool
) -> list[Layer]:
    """
    Proposals of backend and task, lowest first, for options that this command has.

    Args:
        chosen: The parts; without a backend nothing is proposed.
        options: As resolved without proposals.
        given: The layers that a person gave: they outrank proposals.
        trains: Whether the command trains.

    Raises:
        PluginError: A plugin's function failed, or gave something else than proposals.
        ConfigError: The data set does not fit the model at all.
    """
    backend, task = chosen.backend, chosen.task
    if backend is None or not (backend.fit or task.fit):
        return []
    name, dataset = str(options.values["run.model"]), Path(str(options.values["run.dataset"]))
    model = ""
    with suppress(RlvrError):  # building the run reports a starter that does not exist
        model = model_of(name, task)
    situation = Situation(
        model=model,
        dataset=dataset if options.values["run.dataset"] and os.path.exists(dataset) else None,
        trains=trains,
        values=options.values,
        said=frozenset(key for layer in given for key in layer.values),
    )
    layers = []
    if backend.fit and model:
        layer = _proposed(f"model {name}", backend, backend.fit, situation)
        new = {k: v for k, v in layer.values.items() if k not in situation.said}
        situation = attrs.evolve(situation, values={**situation.values, **new})
        layers.append(layer)
    if task.fit and situation.dataset is not None:
        situation = attrs.evolve(situation, facts=_facts(backend, situation))
        layers.append(_proposed(f"data set {dataset.name}", task, task.fit, situation))
    return [layer for layer in layers if layer.values]


def _proposed(name: str, spec: PartSpec, target: str, situation: Situation) -> Layer:
    """
    Proposals of a plugin's function, of those options that this command has.

    Raises:
        PartError: It raised something unforeseen, or gave something else.
    """
    promised = "a mapping of dotted option keys to rlvr.fitting.Proposed"
    found: object = told_by(spec, target, object, promised, situation)
    if not isinstance(found, Mapping) or not all(isinstance(p, Proposed) for p in found.values()):
        raise Border(spec, spec.kind, target, promised=promised).broken(shown(found))
    kept = {key: one for key, one in found.items() if key in situation.values}
    return Layer(
        name,
        {key: one.value for key, one in kept.items()},
        where={key: f"{name}: {one.why}" for key, one in kept.items()},
        is_typed=True,
    )


def _facts(backend: BackendSpec, situation: Situation) -> ModelFacts | None:
    """Facts about the model; None if it cannot be read: opening the model reports why."""
    if not backend.facts or not situation.model:
        return None
    try:
        return told_by(backend, backend.facts, ModelFacts, "ModelFacts", situation)
    except RlvrError as error:
        log.debug("model_facts_unknown", backend=backend.name, reason=str(error))
        return None
