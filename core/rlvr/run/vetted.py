"""Option values that nobody typed: of the model, the task, the algorithm and a preset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from rlvr.config.core import RunOptions
from rlvr.config.layer import Layer
from rlvr.config.schema import options_of
from rlvr.errors import PluginError, UnknownNameError, explain
from rlvr.plugins.registry import Registry
from rlvr.run.model_scheme import is_starter

if TYPE_CHECKING:
    from rlvr.run.configure import Chosen

STARTER = "starter"
PARTS = ("curriculum", "sampler", "reward", "checkpointer")
"""Options of `run` that name parts which such values may choose."""
_BEFORE = ("plugin", "task", "algo", "model", "backend", "dataset")
"""Those that say which values apply, and so are known before."""


def backend_layers(chosen: Chosen, run: RunOptions) -> list[Layer]:
    """What model and backend chose of each other, so that `config show` says so."""
    backend, layers = chosen.backend, []
    if backend is not None and run.backend != RunOptions().backend:
        layers.append(Layer(f"model {run.model}", {"run.backend": run.backend}))
    if backend is not None and backend.default_model and run.model != RunOptions().model:
        layers.append(Layer(f"backend {backend.name}", {"run.model": run.model}))
    return layers


def parts_of(vetted: Sequence[Layer], given: Sequence[Layer]) -> dict[str, Any]:
    """
    The parts that vetted values name, by `run` option; what a person says outranks them.

    Raises:
        PluginError: They name what decides whether they apply.
    """
    found: dict[str, Any] = {}
    for layer in vetted:
        wrong = [f"run.{name}" for name in _BEFORE if f"run.{name}" in layer.values]
        if wrong:
            raise PluginError(
                explain(
                    f"{layer.name} was to be taken.",
                    f"found: it sets {', '.join(wrong)}, which decide whether it is taken",
                    f"it may choose {', '.join(f'run.{name}' for name in PARTS)}",
                )
            )
        found |= {n: str(layer.values[f"run.{n}"]) for n in PARTS if f"run.{n}" in layer.values}
    return {n: v for n, v in found.items() if n not in _said(given)}


def without_outranked(
    vetted: Sequence[Layer], given: Sequence[Layer], specs: Mapping[str, type], registry: Registry
) -> list[Layer]:
    """The layers without options of the parts that they name where a person chose another."""
    known, layers = options_of(specs), []
    for layer in vetted:
        gone = {n for n in _said(given) if f"run.{n}" in layer.values}
        kept = {
            key: value
            for key, value in layer.values.items()
            if not gone or key in known or not gone & {o.kind for o in registry.owners(key)}
        }
        layers.append(attrs.evolve(layer, values=kept))
    return layers


def _said(given: Sequence[Layer]) -> set[str]:
    """The parts that a person chose."""
    return {name for name in PARTS if any(f"run.{name}" in layer.values for layer in given)}


def vetted_layers(chosen: Chosen, run: RunOptions, preset: str | None) -> list[Layer]:
    """
    What the task, the algorithm and a preset bring, lowest first.

    Raises:
        UnknownNameError: The task has no such preset.
    """
    layers = []
    if chosen.task.values:
        layers.append(Layer(f"task {chosen.task.name}", _of_command(chosen.task.values, chosen)))
    if chosen.algorithm is not None:
        layers.append(Layer(f"algorithm {chosen.algorithm.name}", dict(chosen.algorithm.values)))
    presets = chosen.task.presets
    if preset is not None and preset not in presets:
        raise UnknownNameError(
            explain(
                f"no preset named '{preset}' for task {chosen.task.name}.",
                f"there are: {', '.join(presets) or 'none'}",
            )
        )
    is_default = not run.dataset and is_starter(run.model, chosen.task, chosen.backend)
    if preset is None and STARTER in presets and is_default:
        preset = STARTER
    if preset is not None:
        layers.append(Layer(f"preset {preset}", _of_command(presets[preset], chosen)))
    return layers


def _of_command(values: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    """Vetted values without those that only a run has, for `rlvr eval` and `rlvr score`."""
    if chosen.algorithm is not None:
        return dict(values)
    known = {"sampler", "eval", "verify"} | {s.option_namespace for s in chosen.parts()}
    return {key: value for key, value in values.items() if key.partition(".")[0] in known}
