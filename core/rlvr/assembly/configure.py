"""Resolve options and choose part specs from flags, files and plugins. Builds nothing."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import attrs

from rlvr.assembly.compatibility import check_fit
from rlvr.assembly.configured import NO_REWARD, NO_TASK, STARTER, Chosen, Configured
from rlvr.assembly.fitted_values import fitted_layers
from rlvr.assembly.prerequisites import check_working_directory
from rlvr.assembly.teachers import choose_teachers
from rlvr.assembly.vetted_values import (
    backend_for_model,
    backend_layers,
    default_model,
    parts_of,
    preset_of,
    refuse_foreign,
    vetted_layers,
    with_weights,
    without_foreign,
    without_outranked,
)
from rlvr.config.core import CORE_OPTIONS, RunOptions
from rlvr.config.layer import COMMAND_LINE
from rlvr.config.layers import (
    DEFAULT,
    Layer,
    environment_layer,
    file_layer,
    overrides_layer,
    resolve,
)
from rlvr.config.part_flags import PartFlags, part_layer, unknown_flag
from rlvr.errors import ConfigError, PluginError, UnknownNameError
from rlvr.parts import BuildContext
from rlvr.plugins.host import PluginHost
from rlvr.plugins.known import home_of
from rlvr.plugins.registry import Registry
from rlvr.plugins.resolve import load_object
from rlvr.records.read_runs import locate
from rlvr.specs import PartSpec, TaskSpec

_PARTS = ("algo", "backend", "sampler", "reward", "advantage", "loss", "checkpointer", "callbacks")
"""Options of `run` that name parts which `rlvr config show` can do without."""
RUN_FLAGS = ("task", "algo", "model", "backend", "sampler", "reward", "dataset")


def configure(
    args: Namespace,
    host: PluginHost,
    *,
    needs: str = "run",
    reads_data: bool = True,
    is_partial: bool = False,
) -> Configured:
    """
    Resolve everything that the command line, files and the environment say.

    Args:
        args: Parsed flags; absent ones count as not given.
        host: Loaded plugins.
        needs: "run" (all parts), "eval" (task, reward, sampler, backend), "trained" (these, and
            the checkpointer that has the model), or "score" (task, reward).
        reads_data: The data set will be read: it is looked for before anything slow is imported.
        is_partial: There need be no task, and a part that nobody named may be missing
            (`Configured.missing`).

    Raises:
        UnknownNameError: The data set does not exist.
        PluginError: Parts that are missing; all of them are named at once.
        ConfigError: An option is unknown or has a value it cannot have.
        CheckpointError: The model is that of a run, which saved none.
        PrerequisiteError: The working directory was removed.
    """
    check_working_directory()
    registry = Registry(host)
    given, trained = with_weights(_given_layers(args))
    first = _first_look(given, host)
    flags: PartFlags = getattr(args, "part_flags", None) or PartFlags()
    if not (first.task or is_partial):
        if flags.given:
            raise unknown_flag(flags.given[0][0], flags.command, flags.own)
        if first.model != STARTER and ":" not in first.model:
            run = locate(first.model)  # a run's folder would have said which task it is of
            raise ConfigError(
                f"the model {first.model!r} was asked for.",
                f"found: a run of that name, {run}",
                f"name its folder: --model {run}",
            )
        tasks = registry.names("task")
        raise ConfigError(
            "no plugin was chosen.",
            f"installed: {', '.join(tasks) or 'no task plugin'}",
            f"try: rlvr run --plugin {tasks[0]} --algo grpo" if tasks else "install one: rlvr-cvdp",
        )
    base = getattr(args, "base", None)  # the options of a run that is resumed or evaluated
    said = {key.removeprefix("run.") for y in given if y is not base for key in y.values}
    optional = {*_PARTS} - said if is_partial else set[str]()
    chosen, missing = _choose(registry, first, needs, optional, said)
    if plugin := getattr(args, "plugin", None):
        _check_plugin(plugin, chosen.task, registry)
    if reads_data:
        check_dataset(first, chosen.task)
    preset = getattr(args, "preset", None) or preset_of(trained, chosen.task, first)
    if needs == "run":
        picked = parts_of(vetted_layers(chosen, first, preset), given)
        if picked:
            first = attrs.evolve(first, **picked)
            chosen, missing = _choose(registry, first, needs, optional, said | picked.keys())
    specs: dict[str, type] = dict(CORE_OPTIONS)
    declare(specs, chosen.parts())
    if flags.given:
        own = {s.option_namespace for s in (chosen.task, chosen.reward) if s.config}
        told = {s.option_namespace for s in chosen.callbacks}
        others = {s.option_namespace for s in chosen.parts() if s.config} - own
        names = (own, others - told, others & told)
        tiers = [{n: c for n, c in specs.items() if n in tier} for tier in names]
        given.append(part_layer(flags, tiers, given[-1].values))
    own_values = vetted_layers(chosen, first, preset)
    own_values = without_outranked(own_values, given, specs, chosen, registry)
    vetted = [*backend_layers(chosen, first), *own_values]
    chosen = choose_teachers(chosen, [*vetted, *given], specs, host)
    declare(specs, chosen.teachers)
    if needs == "run":
        # parts that are not those of before: the run says which
        given = [without_foreign(y, specs, registry) if y is base else y for y in given]
        refuse_foreign(given, specs, registry)
    else:
        given = [without_foreign(layer, specs, registry) for layer in given]
    options = resolve(specs, [*vetted, *given])
    if needs in ("run", "eval") and base is None:
        fitted = fitted_layers(chosen, options, given, trains=needs == "run")
        typed = len(vetted) - (preset is not None)  # a preset that a person named outranks them
        if fitted:
            options = resolve(specs, [*vetted[:typed], *fitted, *vetted[typed:], *given])
    return Configured(options=options, specs=specs, chosen=chosen, host=host, missing=missing)


def _check_plugin(plugin: str, task: TaskSpec, registry: Registry) -> None:
    """
    Reject a `--plugin` that is not that of the task which was named besides.

    Raises:
        PluginError: There is no such plugin.
        ConfigError: The task is another plugin's.
    """
    if plugin in (task.provider, task.name, task.full_name):
        return
    registry.active(plugin)
    raise ConfigError(
        f"task {task.name} of plugin {plugin} was asked for.",
        f"found: the task is one of plugin {task.provider}",
        f"leave --plugin out, or give --plugin {task.provider}",
    )


def check_dataset(run: RunOptions, task: TaskSpec) -> None:
    """
    Reject a data set that does not exist.

    Raises:
        UnknownNameError: It, or one of several, does not exist.
    """
    if not run.dataset:
        return
    given = Path(run.dataset)
    paths = BuildContext(dataset=given).datasets if task.reads_several else (given,)
    if missing := [path for path in paths if not os.path.exists(path)]:
        raise UnknownNameError(
            f"the data set {missing[0]} was asked for.",
            "found: no such file or folder",
            "check the path given with --dataset"
            + (f"; the public data: {task.data}" if task.data else ""),
        )


def declare(specs: dict[str, type], parts: Sequence[PartSpec]) -> None:
    """
    Add the parts' options.

    Raises:
        PluginError: Two parts declare different options under one namespace.
    """
    for spec in parts:
        if spec.config is None:
            continue
        cls = load_object(spec.config, spec.provider)
        other = specs.setdefault(spec.option_namespace, cls)
        if other in CORE_OPTIONS.values() and issubclass(cls, other):
            specs[spec.option_namespace] = cls  # the core's options, and the part's own
        elif other is not cls:
            raise PluginError(
                f"two parts of this run declare options under '{spec.option_namespace}'.",
                f"found: {other.__module__}.{other.__name__} and {cls.__module__}.{cls.__name__}",
                f"a part of plugin {spec.provider} needs a namespace of its own",
            )


def _given_layers(args: Namespace) -> list[Layer]:
    layers: list[Layer] = []
    if base := getattr(args, "base", None):  # the options of the run that is resumed
        layers.append(base)
    if path := getattr(args, "config", None):
        layers.append(file_layer(Path(path)))
    layers.append(environment_layer(os.environ, CORE_OPTIONS))
    names = (*RUN_FLAGS, "curriculum", "callbacks", "steps", "seed", "max_staleness")
    keys = {name: f"run.{name}" for name in names} | {"workers": "verify.workers"}
    flags = {key: getattr(args, name, None) for name, key in keys.items()}
    flags = {key: value for key, value in flags.items() if value is not None}
    if plugin := getattr(args, "plugin", None):
        flags.setdefault("run.task", plugin)
    typed = getattr(args, "origin", COMMAND_LINE)
    layers.append(Layer(typed, flags | getattr(args, "flag_options", {})))
    words = overrides_layer(getattr(args, "overrides", None) or [])
    layers.append(attrs.evolve(words, name=typed))
    return layers


def _first_look(given: Sequence[Layer], host: PluginHost) -> RunOptions:
    """The `run.*` options alone, which decide whose other options exist."""
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


def _choose(
    registry: Registry,
    run: RunOptions,
    needs: str,
    optional: Collection[str],
    said: Collection[str],
) -> tuple[Chosen, tuple[str, ...]]:
    """
    The chosen parts; and for missing parts of `optional` (options of `run`) the reason.

    A name that is not `said` is a default: of several parts called so it means rlvr's own.
    """
    errors: list[PluginError] = []
    missing: list[str] = []

    def find(kind: str, name: str, of: str = "") -> Any:
        option = {"algorithm": "algo", "callback": "callbacks"}.get(kind, kind)
        try:
            return registry.find(kind, name, of or ("" if option in said else home_of(kind, name)))
        except PluginError as error:
            if option in optional:
                missing.append(str(error))
            else:
                errors.append(error)
            return None

    task = registry.task(run.task) if run.task else NO_TASK
    wanted = run.reward or task.reward or task.name
    owner = "" if run.reward else task.provider
    reward = find("reward", wanted, owner) if run.reward or task is not NO_TASK else None
    found: dict[str, Any] = {}
    if needs == "run":
        algorithm = found["algorithm"] = find("algorithm", run.algo)
        for kind in ("sampler", "advantage", "loss", "curriculum"):
            if name := getattr(run, kind):
                found[kind] = find(kind, name)
            elif name := getattr(algorithm, kind, ""):
                found[kind] = find(kind, name, algorithm.provider)
        if (loss := found.get("loss")) is not None and loss.around:
            find("loss", loss.around, loss.provider)
        told = [find("callback", n) for n in dict.fromkeys(run.callbacks) if n.lower() != "none"]
        found["callbacks"] = tuple(spec for spec in told if spec is not None)
    if needs in ("run", "trained"):
        found["checkpointer"] = find("checkpointer", run.checkpointer)
    if needs in ("run", "eval", "trained"):
        backend = found["backend"] = find("backend", run.backend)
    if needs in ("eval", "trained"):
        own = backend.sampler if backend is not None else ""
        owner = backend.provider if own and not run.sampler else ""
        found["sampler"] = find("sampler", run.sampler or own or "group", owner)
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = dict.fromkeys(map(str, errors))
        raise PluginError("several parts of this run are missing.\n" + "\n".join(lines))
    if found.get("backend") is not None and task is not NO_TASK:
        check_fit(found["backend"], found.get("sampler"), trains=needs == "run")
    return Chosen(task=task, reward=reward or NO_REWARD, **found), tuple(missing)
