"""From flags, files and plugins to resolved options and the chosen specs. Builds nothing."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layers import (
    DEFAULT,
    Layer,
    Options,
    environment_layer,
    file_layer,
    overrides_layer,
    resolve,
)
from rlvr.config.part_flags import PartFlags, part_layer, unknown_flag
from rlvr.errors import ConfigError, PluginError, explain
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.run.fitted import fitted_layers
from rlvr.run.foreign import refuse_foreign, without_foreign
from rlvr.run.model_scheme import backend_for_model, check_fit, default_model
from rlvr.run.teachers import choose_teachers
from rlvr.run.vetted import STARTER, backend_layers, parts_of, vetted_layers, without_outranked
from rlvr.specs import (
    AdvantageSpec,
    AlgorithmSpec,
    BackendSpec,
    CheckpointerSpec,
    CurriculumSpec,
    LossSpec,
    PartSpec,
    RewardSpec,
    SamplerSpec,
    TaskSpec,
    TeacherSpec,
)

RUN_FLAGS = ("plugin", "task", "algo", "model", "backend", "sampler", "reward", "dataset", "out")


@frozen(kw_only=True)
class Chosen:
    """The specs a run is made of. Parts that a command does not need are None."""

    task: TaskSpec
    reward: RewardSpec
    algorithm: AlgorithmSpec | None = None
    sampler: SamplerSpec | None = None
    advantage: AdvantageSpec | None = None
    loss: LossSpec | None = None
    backend: BackendSpec | None = None
    checkpointer: CheckpointerSpec | None = None
    curriculum: CurriculumSpec | None = None
    teachers: tuple[TeacherSpec, ...] = ()

    def parts(self) -> list[PartSpec]:
        """The chosen part specs (the algorithm is not a part)."""
        found = (
            self.task,
            self.reward,
            self.sampler,
            self.advantage,
            self.loss,
            self.backend,
            self.checkpointer,
            self.curriculum,
            *self.teachers,
        )
        return [spec for spec in found if spec is not None]


@frozen(kw_only=True)
class Configured:
    """Resolved options, where each came from, and the chosen specs."""

    options: Options
    specs: Mapping[str, type]
    chosen: Chosen
    host: PluginHost

    @property
    def run(self) -> RunOptions:
        """The `run.*` options."""
        record: RunOptions = self.options.record("run")
        return record

    @property
    def uses_starter(self) -> bool:
        """True for the embedded starter model."""
        return self.run.model == STARTER


def configure(args: Namespace, host: PluginHost, *, needs: str = "run") -> Configured:
    """
    Resolve everything that the command line, files and the environment say.

    Args:
        args: Parsed flags; absent ones count as not given.
        host: Loaded plugins.
        needs: "run" (all parts), "eval" (task, reward, sampler, backend), "trained" (these, and
            the checkpointer that has the model), or "score" (task, reward).

    Raises:
        PluginError: Parts that are missing; all of them are named at once.
        ConfigError: An option is unknown or has a value it cannot have.
    """
    registry = Registry(host)
    given = _given_layers(args)
    first = _first_look(given, host)
    flags: PartFlags = getattr(args, "part_flags", None) or PartFlags()
    if not (first.plugin or first.task):
        if flags.given:
            raise unknown_flag(flags.given[0][0], flags.command, flags.own)
        raise ConfigError(
            explain(
                "no plugin was chosen.",
                f"installed: {', '.join(registry.names('task')) or 'no task plugin'}",
                "try: rlvr run --plugin cvdp --algo grpo",
            )
        )
    chosen = _choose(registry, first, needs)
    preset = getattr(args, "preset", None)
    if needs == "run":
        picked = parts_of(vetted_layers(chosen, first, preset), given)
        chosen = _choose(registry, attrs.evolve(first, **picked), needs) if picked else chosen
    specs: dict[str, type] = dict(CORE_OPTIONS)
    for spec in chosen.parts():
        if spec.config is not None:
            _declare(specs, spec)
    if flags.given:
        own = {s.option_namespace for s in (chosen.task, chosen.reward) if s.config}
        others = {s.option_namespace for s in chosen.parts() if s.config} - own
        tiers = [{n: c for n, c in specs.items() if n in names} for names in (own, others)]
        given.append(part_layer(flags, tiers, given[-1].values))
    own_values = without_outranked(vetted_layers(chosen, first, preset), given, specs, registry)
    vetted = [*backend_layers(chosen, first), *own_values]
    chosen = choose_teachers(chosen, [*vetted, *given], specs, host)
    for teacher in chosen.teachers:
        if teacher.config is not None:
            _declare(specs, teacher)
    if needs == "run":
        refuse_foreign(given, specs, registry)
    else:
        given = [without_foreign(layer, specs, registry) for layer in given]
    options = resolve(specs, [*vetted, *given])
    if needs in ("run", "eval") and getattr(args, "base", None) is None:
        fitted = fitted_layers(chosen, options, given, trains=needs == "run")
        typed = len(vetted) - (preset is not None)  # a preset that a person named outranks them
        if fitted:
            options = resolve(specs, [*vetted[:typed], *fitted, *vetted[typed:], *given])
    return Configured(options=options, specs=specs, chosen=chosen, host=host)


def _declare(specs: dict[str, type], spec: PartSpec) -> None:
    """Add a part's options; two classes under one namespace cannot both be meant."""
    cls = load_object(str(spec.config), spec.provider)
    other = specs.setdefault(spec.option_namespace, cls)
    if other is not cls:
        raise PluginError(
            explain(
                f"two parts of this run declare options under '{spec.option_namespace}'.",
                f"found: {other.__module__}.{other.__name__} and {cls.__module__}.{cls.__name__}",
                f"a part of plugin {spec.provider} needs a namespace of its own",
            )
        )


def _given_layers(args: Namespace) -> list[Layer]:
    layers: list[Layer] = []
    if base := getattr(args, "base", None):  # the options of the run that is resumed
        layers.append(base)
    if path := getattr(args, "config", None):
        layers.append(file_layer(Path(path)))
    layers.append(environment_layer(os.environ, CORE_OPTIONS))
    flags: dict[str, Any] = {
        f"run.{name}": getattr(args, name)
        for name in (*RUN_FLAGS, "curriculum", "steps", "seed", "max_staleness")
        if getattr(args, name, None) is not None
    }
    if getattr(args, "workers", None) is not None:
        flags["verify.workers"] = args.workers
    flags |= getattr(args, "flag_options", {})
    layers.append(Layer("command line", flags))
    layers.append(overrides_layer(getattr(args, "overrides", None) or []))
    return layers


def _first_look(given: Sequence[Layer], host: PluginHost) -> RunOptions:
    """The `run.*` options alone: they say which plugins' options exist, the model its backend."""
    only_run = [
        Layer(layer.name, {k: v for k, v in layer.values.items() if k.startswith("run.")})
        for layer in given
    ]
    options = resolve({"run": RunOptions}, only_run)
    record: RunOptions = options.record("run")
    if options.origin["run.backend"] == DEFAULT and (
        backend := backend_for_model(record.model, host)
    ):
        record = attrs.evolve(record, backend=backend)
    if options.origin["run.model"] == DEFAULT and (model := default_model(record.backend, host)):
        record = attrs.evolve(record, model=model)
    return record


def _choose(registry: Registry, run: RunOptions, needs: str) -> Chosen:
    errors: list[PluginError] = []

    def find(kind: str, name: str) -> Any:
        try:
            return registry.find(kind, name)
        except PluginError as error:
            errors.append(error)
            return None

    if run.task or run.plugin in registry.names("task"):
        task = registry.find("task", run.task or run.plugin)
    else:
        task = registry.default_task(run.plugin)
    reward = find("reward", run.reward or task.reward or task.name)
    found: dict[str, Any] = {}
    if needs == "run":
        algorithm = found["algorithm"] = find("algorithm", run.algo)
        if algorithm is not None:
            found["sampler"] = find("sampler", run.sampler or algorithm.sampler)
            found["advantage"] = find("advantage", algorithm.advantage)
            found["loss"] = find("loss", algorithm.loss)
        if run.curriculum:
            found["curriculum"] = find("curriculum", run.curriculum)
    if needs in ("run", "trained"):
        found["checkpointer"] = find("checkpointer", run.checkpointer)
    if needs in ("run", "eval", "trained"):
        backend = found["backend"] = find("backend", run.backend)
    if needs in ("eval", "trained"):
        own = backend.sampler if backend is not None else ""
        found["sampler"] = find("sampler", run.sampler or own or "group")
    if errors:
        raise _joined(errors)
    if found.get("backend") is not None:
        check_fit(found["backend"], found.get("sampler"), trains=needs == "run")
    return Chosen(task=task, reward=reward, **found)


def _joined(errors: Sequence[PluginError]) -> PluginError:
    if len(errors) == 1:
        return errors[0]
    lines = dict.fromkeys(str(error) for error in errors)
    return PluginError("several parts of this run are missing.\n" + "\n".join(lines))
