"""The contracts of all parts that an installed plugin offers, made from its specs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from subprocess import DEVNULL, run
from tempfile import TemporaryDirectory
from typing import Any

from attrs import evolve, field, frozen

import rlvr.testing
from rlvr.assembly.build_part import build
from rlvr.assembly.configure import declare
from rlvr.assembly.configured import NO_REWARD, NO_TASK, STARTER, Chosen, Configured
from rlvr.assembly.recipe import sampling_of
from rlvr.assembly.teachers import model_of
from rlvr.border.promises import reference_of
from rlvr.config.core import CORE_OPTIONS
from rlvr.config.layers import Layer, overrides_layer, resolve
from rlvr.config.schema import options_of
from rlvr.errors import ConfigError, PluginError, PrerequisiteError, UnknownNameError
from rlvr.parts import BuildContext, Task
from rlvr.plugins.author_error import said
from rlvr.plugins.discovery import discover
from rlvr.plugins.host import PluginHost
from rlvr.plugins.registry import Registry
from rlvr.specs import CurriculumSpec, PartSpec, RewardSpec, TaskSpec
from rlvr.suggest import did_you_mean
from rlvr.testing.contract import Contract
from rlvr.types import Problem, Trajectory

GROUP_SIZE = 4
"""Trajectories a group, as in the contracts: advantages that compare them refuse single ones."""
IN_RUN = ("callback", "checkpointer")
"""Kinds whose factory is given the directory of a run."""
_TELL = "import sys; from rlvr.testing.offered import tell; tell(sys.argv[1])"


@frozen(kw_only=True)
class Offered:
    """
    The specs that a plugin offers, and the option values its parts are built with.

    Attributes:
        plugin: Its name.
        host: The installed plugins.
        dataset: Data set of its tasks, whose problems its curricula then order; None: the tasks'
            embedded ones.
        model: Model spec of backends and teachers; "": the toy task's starter, if they take it.
        task: Task whose problems a reward judges that no task names; "toy" by default.
        overrides: `key=value` words.
        attributes: By part name: values of the contract's class attributes.
    """

    plugin: str
    host: PluginHost = field(factory=PluginHost.load)
    dataset: Path | None = None
    model: str = ""
    task: str = "toy"
    overrides: Sequence[str] = ()
    attributes: Mapping[str, Mapping[str, Any]] = field(factory=dict)

    def parts(self) -> list[PartSpec]:
        """The specs of its parts, without those that adapt another part: they need that part."""
        own = [s for s in Registry(self.host).parts() if s.provider == self.plugin]
        return [spec for spec in own if not getattr(spec, "adapts", False)]

    def build(self, spec: PartSpec, directory: Path | None = None) -> Any:
        """
        A new part of the spec, with its defaults and what the overrides say of it.

        Raises:
            ConfigError: The part refuses its options or the model.
        """
        records: dict[str, type] = dict(CORE_OPTIONS)
        declare(records, [spec])
        own = options_of(records)
        said = overrides_layer(self.overrides)
        said = evolve(said, values={k: v for k, v in said.values.items() if k in own})
        options = resolve(records, [Layer("check", {"sampler.group_size": GROUP_SIZE}), said])
        configured = Configured(
            options=options,
            specs=records,
            chosen=Chosen(task=NO_TASK, reward=NO_REWARD),
            host=self.host,
        )
        context = BuildContext(
            model=self._model,
            dataset=self.dataset if spec.provider == self.plugin else None,
            run_dir=directory,
            train=options.record("train"),
            sampling=sampling_of(configured),
        )
        return build(configured, spec, context)

    def check_overrides(self) -> None:
        """
        Reject an option that no part of the plugin has.

        Raises:
            UnknownNameError: Suggests the nearest.
        """
        known = set(options_of(CORE_OPTIONS))
        for spec in self.parts():
            records: dict[str, type] = {}
            with suppress(PluginError):  # building the part says why it has no options
                declare(records, [spec])
                known |= set(options_of(records))
        for key in overrides_layer(self.overrides).values:
            if key not in known:
                raise UnknownNameError(
                    f"the option {key!r} was given.",
                    f"found: no part of {self.plugin} has it",
                    did_you_mean(key, known),
                )

    @property
    def _model(self) -> str:
        return self.model or model_of(STARTER, Registry(self.host).task("toy"))

    def unfit(self, spec: PartSpec, error: Exception) -> Exception | None:
        """An error of the part as a refusal of what it was given; None: a fault of its own."""
        if isinstance(error, ConfigError | PrerequisiteError):
            return error
        schemes = getattr(spec, "models", ())
        if isinstance(error, AssertionError) or not schemes:
            return None
        if self._model.partition(":")[0] in schemes:
            return None
        return ConfigError(
            f"it was given the model {self._model}.",
            f"found: it takes {', '.join(f'{s}:...' for s in schemes)}, and raised {said(error)}",
            "name one: --model SPEC",
        )

    def reward_of(self, task: TaskSpec) -> RewardSpec | None:
        """The reward that a run gives the task: the one it names, or of its own name."""
        name = task.reward or task.name
        found = [r for r in self.host.rewards() if name in (r.name, r.full_name)]
        return min(found, key=lambda one: one.provider != task.provider, default=None)

    def task_of(self, reward: RewardSpec) -> TaskSpec:
        """The task whose reward it is, the plugin's own first; else the one that was named."""
        tasks = [t for t in self.host.tasks() if self.reward_of(t) == reward]
        own = [task for task in tasks if task.provider == self.plugin]
        return (own or tasks or [Registry(self.host).task(self.task)])[0]

    @cached_property
    def module(self) -> str:
        """The module that the plugin's entry point names."""
        (module,) = {found.target for found in discover() if found.name == self.plugin}
        return module

    def contracts(self, parts: Sequence[PartSpec]) -> dict[str, type[Contract]]:
        """A class of tests for the plugin's module and one for each of the parts, by class name."""
        of_module = (rlvr.testing.PluginContract,)
        made: dict[str, type[Contract]] = {
            "TestPlugin": type("TestPlugin", of_module, {"module": self.module})
        }
        for number, spec in enumerate(parts):
            name = f"Test{spec.kind.capitalize()}{number}"
            base = getattr(rlvr.testing, f"{spec.kind.capitalize()}Contract")
            made[name] = type(name, (base,), {"spec": spec, **self._members(spec)})
        return made

    def repeatable(self, spec: PartSpec) -> Any:
        """What the part gives that a new process has to get again; None: there is nothing."""
        *_, contract = self.contracts([spec]).values()
        return contract().repeatable()

    def repeated_anew(self, parts: Sequence[str]) -> dict[str, Any]:
        """
        What parts ("task mine") give in a new process: `hash` gives other numbers there.

        Raises:
            ChildProcessError: It ended, and wrote nothing of that.
        """
        texts = {key: getattr(self, key) for key in ("plugin", "model", "task", "overrides")}
        texts["dataset"] = str(self.dataset or "")
        paths = [path for path in sys.path if path and isinstance(path, str)]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        env["PYTHONHASHSEED"] = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
        with TemporaryDirectory() as folder:
            given, errors = Path(folder, "given.json"), Path(folder, "errors.txt")
            words = [sys.executable, "-c", _TELL, json.dumps([texts, parts, str(given)])]
            with errors.open("wb") as file:  # no pipes: a plugin prints what it likes
                done = run(words, env=env, stdin=DEVNULL, stdout=DEVNULL, stderr=file)
            if given.exists():
                found: dict[str, Any] = json.loads(given.read_bytes())
                return found
            *_, last = "no word", *errors.read_text(errors="replace").splitlines()
        code = done.returncode
        raise ChildProcessError(
            f"a new process ended with exit {code} and told nothing; last: {last}"
        )

    def _members(self, spec: PartSpec) -> dict[str, Any]:
        """The factories and attributes that the contract of the part wants."""
        members: dict[str, Any] = {
            f"make_{spec.kind}": (
                (lambda _, directory: self.build(spec, directory))
                if spec.kind in IN_RUN
                else (lambda _: self.build(spec))
            )
        }
        if isinstance(spec, TaskSpec):
            found = (problem.split for problem in self.build(spec).problems("all"))
            members["splits"] = tuple(dict.fromkeys(("train", *found)))
            if (reward := self.reward_of(spec)) is not None:
                members |= {"make_reward": lambda _: self.build(reward)}
                members |= {"bottom": reward.bounds[0], "top": reward.bounds[1]}
        if isinstance(spec, RewardSpec):
            right = cache(lambda: self.right(spec))  # listing problems may be slow
            members |= {"bounds": spec.bounds, "right": lambda _: right()}
        if isinstance(spec, CurriculumSpec) and self.dataset is not None:
            tasks = [self.build(s) for s in self.host.tasks() if s.provider == self.plugin]
            members["problems"] = lambda _: [p for task in tasks for p in task.problems("all")]
        return members | dict(self.attributes.get(spec.name, {}))

    def right(self, reward: RewardSpec) -> tuple[Problem, Trajectory]:
        """
        A problem and its reference answer.

        Raises:
            ConfigError: The task has no reference.
        """
        spec = self.task_of(reward)
        task: Task = self.build(spec)
        for problem in task.problems("all"):
            if (reference := reference_of(task, problem)) is not None:
                return problem, reference
        raise ConfigError(
            f"the reward {reward.name} was to judge a right answer.",
            f"found: no problem of the task {spec.full_name} has a reference",
            "define Task.reference, or name a task that has it: --task NAME",
        )


def tell(words: str) -> None:
    """
    Write what parts give in this process into a file, as JSON.

    `words` are the JSON of an `Offered`'s fields that are texts, of the parts' kinds and names,
    and of the file's path.
    """
    texts, parts, file = json.loads(words)
    offered = Offered(**{**texts, "dataset": Path(texts["dataset"]) if texts["dataset"] else None})
    named = {f"{spec.kind} {spec.name}": spec for spec in offered.parts()}
    found = {part: offered.repeatable(named[part]) for part in parts if part in named}
    Path(file).write_text(json.dumps(found), encoding="utf-8")


def attributes_of(texts: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    """
    Attributes of contracts by part, of words `PART.NAME=VALUE` whose values are JSON.

    Raises:
        ConfigError: A word is not of that form.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in texts:
        key, _, value = text.partition("=")
        part, _, name = key.rpartition(".")
        try:
            found.setdefault(part, {})[name] = json.loads(value)
        except ValueError:
            raise ConfigError(
                f"--set {text} was given.",
                "found: no PART.NAME=VALUE whose value is JSON",
                "such as --set mine.patience=500",
            ) from None
    return found
