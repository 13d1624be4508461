"""The layers of option values that a task and a backend propose for one data set and model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlvr.assembly.teachers import model_of
from rlvr.config.layers import Layer, Options
from rlvr.errors import PluginError, RlvrError
from rlvr.fitting import ModelFacts, Proposed, Situation
from rlvr.log import get
from rlvr.plugins.resolve import load_object
from rlvr.specs import BackendSpec, PartSpec, TaskSpec

if TYPE_CHECKING:
    from rlvr.assembly.configured import Chosen

log = get(__name__)


def fitted_layers(
    chosen: Chosen, options: Options, given: Sequence[Layer], *, trains: bool
) -> list[Layer]:
    """
    What backend and task propose, lowest first; only for options that this command has.

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
    path = Path(str(options.values["run.dataset"])) if options.values["run.dataset"] else None
    situation = Situation(
        model=_model(str(options.values["run.model"]), task),
        dataset=path if path is not None and path.exists() else None,
        trains=trains,
        values=options.values,
        said=frozenset(key for layer in given for key in layer.values),
    )
    layers = []
    if backend.fit and situation.model:
        proposed = _asked(backend, backend.fit, situation)
        layers.append(_layer(f"model {options.values['run.model']}", proposed, options))
        situation = attrs.evolve(situation, values={**situation.values, **_new(layers, situation)})
    if task.fit and path is not None and situation.dataset is not None:
        situation = attrs.evolve(situation, facts=_facts(backend, situation))
        proposed = _asked(task, task.fit, situation)
        layers.append(_layer(f"data set {path.name}", proposed, options))
    return [layer for layer in layers if layer.values]


def _new(layers: Sequence[Layer], situation: Situation) -> dict[str, Any]:
    return {k: v for layer in layers for k, v in layer.values.items() if k not in situation.said}


def _layer(name: str, proposed: Mapping[str, Proposed], options: Options) -> Layer:
    kept = {key: one for key, one in proposed.items() if key in options.values}
    return Layer(
        name,
        {key: one.value for key, one in kept.items()},
        where={key: f"{name}: {one.why}" for key, one in kept.items()},
        is_typed=True,
    )


def _asked(spec: PartSpec, target: str, situation: Situation) -> Mapping[str, Proposed]:
    """
    The proposals of a plugin's function.

    Raises:
        PluginError: It raised something unforeseen, or gave something else.
    """
    try:
        found = load_object(target, spec.provider)(situation)
    except RlvrError:
        raise
    except Exception as error:  # the plugin border
        raise _broken(spec, target, f"it raised {error!r}") from error
    is_sound = isinstance(found, Mapping) and all(isinstance(p, Proposed) for p in found.values())
    if not is_sound:
        raise _broken(spec, target, f"it gave {str(found)[:200]}")
    proposals: Mapping[str, Proposed] = found
    return proposals


def _broken(spec: PartSpec, target: str, found: str) -> PluginError:
    return PluginError(
        f"{spec.kind} {spec.full_name} was asked for option values ({target}).",
        f"found: {found}",
        "promised: a mapping of dotted option keys to rlvr.fitting.Proposed",
    )


def _model(model: str, task: TaskSpec) -> str:
    """The model spec; "" for a starter that does not exist, which building the run reports."""
    try:
        return model_of(model, task)
    except RlvrError:
        return ""


def _facts(backend: BackendSpec, situation: Situation) -> ModelFacts | None:
    """Facts about the model; None where it cannot be read, which opening it reports."""
    if not backend.facts or not situation.model:
        return None
    try:
        found = load_object(backend.facts, backend.provider)(situation)
    except Exception as error:  # the plugin border
        log.debug("model_facts_unknown", backend=backend.name, reason=repr(error))
        return None
    return found if isinstance(found, ModelFacts) else None
