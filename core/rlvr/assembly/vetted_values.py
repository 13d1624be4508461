"""Option defaults from model, task, algorithm and preset, and options that a command leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from rlvr.assembly.configured import STARTER
from rlvr.border.calls import told_by
from rlvr.config.core import RunOptions
from rlvr.config.layer import Layer
from rlvr.config.schema import options_of
from rlvr.errors import PluginError, RlvrError, UnknownNameError
from rlvr.log import get
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import MODELS, home_of
from rlvr.plugins.registry import Registry
from rlvr.records.read_runs import is_run, trained_at, weights_of
from rlvr.records.run_directory import RunDir
from rlvr.specs import BackendSpec, PartSpec, TaskSpec

if TYPE_CHECKING:
    from rlvr.assembly.configured import Chosen

log = get(__name__)

PARTS = ("curriculum", "sampler", "reward", "advantage", "loss", "checkpointer")
"""Options of `run` that name parts; defaults may choose these parts."""
_BEFORE = ("task", "algo", "model", "backend", "dataset")
"""Options of `run` that decide which defaults apply: they are resolved before."""


def backend_for_model(model: str, host: PluginHost) -> str | None:
    """
    The only installed backend that takes the model's scheme (`server` of `server:URL#NAME`).

    If none does, the backend of this project that would, so that an error names it as missing.
    None if the spec has no scheme, or if no backend or several take it: `run.backend` decides.
    """
    scheme, colon, _rest = model.partition(":")
    if not colon:
        return None
    takers = [spec.name for spec in host.backends() if scheme in spec.models]
    if not takers:
        return MODELS.get(scheme)
    return takers[0] if len(takers) == 1 else None


def default_model(backend: str, host: PluginHost) -> str:
    """Default model of an installed backend, such as a server's only one; "": the starter."""
    home = home_of("backend", backend)  # a default's, if several are called so
    for spec in sorted(host.backends(), key=lambda spec: spec.provider != home):
        if backend in (spec.name, spec.full_name):
            found = ""
            if spec.find_model is not None:
                try:
                    found = told_by(spec, spec.find_model, str, 'a model spec, "" for none')
                except RlvrError as error:  # opening the backend says what is wrong
                    log.debug("model_not_found", backend=spec.name, reason=str(error))
            return found or spec.default_model
    return ""


def is_starter(model: str, task: TaskSpec, backend: BackendSpec | None) -> bool:
    """Whether it is the task's starter: its own, or a server's model named `PLUGIN-starter`."""
    if backend is None or backend.find_model is None:
        return model == STARTER
    served = model.partition(":")[2]
    return served in (f"{task.provider}-{STARTER}", f"{task.name}-{STARTER}")


def backend_layers(chosen: Chosen, run: RunOptions) -> list[Layer]:
    """Backend chosen by the model, or model chosen by the backend, as layers for `config show`."""
    backend, layers = chosen.backend, []
    if backend is not None and run.backend != RunOptions().backend:
        layers.append(Layer(f"model {run.model}", {"run.backend": run.backend}))
    if backend is not None and backend.default_model and run.model != RunOptions().model:
        layers.append(Layer(f"backend {backend.name}", {"run.model": run.model}))
    return layers


def with_weights(given: Sequence[Layer]) -> tuple[list[Layer], Mapping[str, Any]]:
    """
    The layers with a run that is named as the model replaced by its weights and its backend.

    Also that run's `run.json`; {} where the model is none of a run.

    Raises:
        CheckpointError: The run saved no weights.
    """
    layers, record = list[Layer](), dict[str, Any]()
    for layer in given:
        model = layer.values.get("run.model")
        if isinstance(model, str) and is_run(model):
            layer = attrs.evolve(layer, values={**layer.values, "run.model": weights_of(model)})
            record = RunDir.open(trained_at(Path(model)).run).read_run()
            own = {"run.backend": record["config"]["run.backend"]}
            layers.insert(0, Layer(f"run {record['id']}", own, is_typed=True))
        layers.append(layer)
    return layers, record


def preset_of(record: Mapping[str, Any], task: TaskSpec, run: RunOptions) -> str | None:
    """The preset that the model's run had, where the task and its data are the same again."""
    before = record.get("config", {})
    if record.get("task") != task.full_name or before["run.dataset"] != run.dataset:
        return None
    used = [name for name in task.presets if f"preset {name}" in record["origin"].values()]
    return used[0] if used else None


def parts_of(vetted: Sequence[Layer], given: Sequence[Layer]) -> dict[str, Any]:
    """
    Parts that vetted values name, by `run` option, where the user chose none.

    Raises:
        PluginError: They set an option that decides whether they apply.
    """
    found: dict[str, Any] = {}
    for layer in vetted:
        wrong = [f"run.{name}" for name in _BEFORE if f"run.{name}" in layer.values]
        if wrong:
            raise PluginError(
                f"{layer.name} was to be taken.",
                f"found: it sets {', '.join(wrong)}, which decide whether it is taken",
                f"it may choose {', '.join(f'run.{name}' for name in PARTS)}",
            )
        if "run.callbacks" in layer.values:
            found["callbacks"] = tuple(layer.values["run.callbacks"])
        found |= {n: str(layer.values[f"run.{n}"]) for n in PARTS if f"run.{n}" in layer.values}
    return {n: v for n, v in found.items() if n not in _said(given)}


def without_outranked(
    vetted: Sequence[Layer],
    given: Sequence[Layer],
    specs: Mapping[str, type],
    chosen: Chosen,
    registry: Registry,
) -> list[Layer]:
    """
    The layers without options of parts that were replaced.

    A part is replaced if a layer names it and a person chose another; the checkpointer needs not be
    named, since all values were vetted with the core's. The same holds for the
    algorithm's own advantage and loss: its values for them do not suit others by the same key.
    """
    known, layers = options_of(specs), []
    replaced = _replaced(chosen, registry)
    for layer in vetted:
        named = {n for n in (*PARTS, "callbacks") if f"run.{n}" in layer.values} | {"checkpointer"}
        gone = _said(given) & named | set(replaced)
        algorithm = chosen.algorithm
        is_algorithm = algorithm is not None and layer.name == f"algorithm {algorithm.name}"
        kept = {}
        for key, value in layer.values.items():
            owners = registry.owners(key) if gone else []
            was_own = is_algorithm and any(part in owners for part in replaced.values())
            is_shared = any(o in chosen.parts() and o.kind not in replaced for o in owners)
            if was_own and not is_shared:
                continue
            if key in known or not gone & {o.kind for o in owners}:
                kept[key] = value
        layers.append(attrs.evolve(layer, values=kept))
    return layers


def _replaced(chosen: Chosen, registry: Registry) -> dict[str, PartSpec]:
    """The algorithm's own advantage and loss, by kind, if they were replaced."""
    found: dict[str, PartSpec] = {}
    for kind, part in (("advantage", chosen.advantage), ("loss", chosen.loss)):
        if chosen.algorithm is not None and part is not None:
            own = getattr(chosen.algorithm, kind)
            if own not in (part.name, part.full_name):
                found[kind] = registry.find(kind, own, chosen.algorithm.provider)
    return found


def _said(given: Sequence[Layer]) -> set[str]:
    """The parts that a person chose."""
    keys = {key for layer in given for key in layer.values}
    return {name for name in (*PARTS, "callbacks") if f"run.{name}" in keys}


def vetted_layers(chosen: Chosen, run: RunOptions, preset: str | None) -> list[Layer]:
    """
    Option defaults of the task, the algorithm and a preset, lowest first.

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
            f"no preset named '{preset}' for task {chosen.task.name}.",
            f"there are: {', '.join(presets) or 'none'}",
        )
    is_default = not run.dataset and is_starter(run.model, chosen.task, chosen.backend)
    if preset is None and STARTER in presets and is_default:
        preset = STARTER
    if preset is not None:
        layers.append(Layer(f"preset {preset}", _of_command(presets[preset], chosen)))
    return layers


def _of_command(values: Mapping[str, Any], chosen: Chosen) -> dict[str, Any]:
    """The values without those of training, for `rlvr eval` and `rlvr score`."""
    if chosen.algorithm is not None:
        return dict(values)
    known = {"sampler", "eval", "verify"} | {s.option_namespace for s in chosen.parts()}
    return {key: value for key, value in values.items() if key.partition(".")[0] in known}


def without_foreign(layer: Layer, specs: Mapping[str, type], registry: Registry) -> Layer:
    """
    The layer without options of installed parts that this command does not use.

    So one run file serves `rlvr run`, `rlvr eval` and `rlvr score`. Misspelt names stay, and are
    refused later.
    """
    foreign, known = set(registry.namespaces()) - set(specs), options_of(specs)
    kept = {
        key: value
        for key, value in layer.values.items()
        if key in known or not (key.partition(".")[0] in foreign or registry.owners(key))
    }
    return attrs.evolve(layer, values=kept)


def refuse_foreign(layers: Sequence[Layer], specs: Mapping[str, type], registry: Registry) -> None:
    """
    Reject options of parts that a run does not use: they would change nothing.

    Raises:
        UnknownNameError: Names the option, the parts that have it, and how to choose one.
    """
    known = options_of(specs)
    for layer in layers:
        for key in layer.values:
            owners = [] if key in known else registry.owners(key)
            if not owners:
                continue
            kind, name = owners[0].kind, owners[0].name
            choice = f"--{kind} {name}"
            if kind in ("loss", "advantage", "checkpointer"):
                choice = f"run.{kind}={name}, or an algorithm that has it"
            raise UnknownNameError(
                f"no part of this run has the option {key!r} (from {layer.place(key)}).",
                f"found: it belongs to {', '.join(f'{o.kind} {o.name}' for o in owners)}",
                f"leave it out, or choose {choice}",
            )
