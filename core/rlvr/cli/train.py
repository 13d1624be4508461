"""`rlvr run` as a function, for notebooks and scripts.

Names and defaults are those of the command line; `options` takes its `key=value` words as a
mapping: `{"train.lr": 1e-4}`. Mistakes raise the errors that the command line reports
(`rlvr.RlvrError`). It may be called where an event loop runs.
"""

from __future__ import annotations

import json
import os
import re
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

from attrs import field, frozen

from rlvr.border.calls import shown
from rlvr.config.coerce import coerce, fault_of_text, unwrapped
from rlvr.config.layer import PYTHON, typed_options
from rlvr.errors import ConfigError, RlvrError, refused
from rlvr.log import borrowed
from rlvr.plugins.host import PluginHost
from rlvr.records.run_directory import RunDir
from rlvr.suggest import did_you_mean
from rlvr.types import EvalReport

__all__ = ["FinishedRun", "train"]

Options = Mapping[str, Any]
_COMMAND = r"\S*\b(?:rlvr'?|docker|pip|vllm|usage:) [a-z][^;\n]*"
"""A command, to the end of its clause: its flags stay."""
_PROSE = "again|and|away|can|in|is|or|out|that|too|was|when|which|whose|with"
"""Words that stand behind a flag and are no value of it."""
_FLAGS = re.compile(
    rf"{_COMMAND}|(?<![^\s(])--([a-z][a-z-]*)(?=$|[\s,;:)]|\.(?:\s|$))(?: (?!(?:{_PROSE})\b|\())?",
    re.M,
)
"""Commands, and flags with the space before their value."""
_OTHER_NAMES = {"run": "model", "callback": "callbacks"}
_NAMES = "parts go by name: `rlvr plugins new` writes a package that gives yours one"


@frozen(kw_only=True)
class FinishedRun:
    """
    The results of a run.

    Attributes:
        directory: The run directory, from the root.
        steps: Steps that were trained.
        reports: Evaluations by step.
        best: Step of the best evaluation that has a checkpoint; None where there is none.
    """

    directory: Path
    steps: int
    reports: Mapping[int, EvalReport] = field(repr=lambda reports: f"<at steps {[*reports]}>")
    best: int | None

    @property
    def model(self) -> Path:
        """The trained model, as `evaluate` takes it: the run's last checkpoint."""
        return self.directory

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each step, as in `metrics.jsonl`."""
        return RunDir(self.directory).read_lines("metrics.jsonl")


def train(
    plugin: str | None = None,
    *,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    model: Path | str | None = None,
    backend: str | None = None,
    algo: str | None = None,
    sampler: str | None = None,
    curriculum: str | None = None,
    callbacks: Sequence[str] | str | None = None,
    steps: int | None = None,
    max_staleness: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    resume: Path | str | None = None,
    config: Path | str | None = None,
    preset: str | None = None,
    options: Options | None = None,
    quiet: bool = False,
) -> FinishedRun:
    """
    Train a model, as `rlvr run` does.

    Args:
        plugin: Domain plugin, whose default task is trained on.
        task: Task, where a plugin has several.
        reward: Reward; None: the task's.
        dataset: Data set; None: the embedded one.
        model: Model spec, like `hf:PATH`, or the directory of a run to start from its weights.
        backend: Backend; None: the model's, else torch.
        algo: Algorithm; None: grpo.
        sampler: Sampler; None: the algorithm's.
        curriculum: Which problems a step takes; None: as the task says.
        callbacks: Names of observers, or one name; "none" or []: no observer.
        steps: Batches of problems to train on.
        max_staleness: Steps that sampling may lag behind training.
        seed: Seed of everything random.
        out: Run directory; None: `runs/TIME-PLUGIN-ALGO`.
        resume: A run directory to go on with, or "auto".
        config: TOML or YAML file with options.
        preset: Vetted option values of the task.
        options: Further options by key.
        quiet: Show warnings only on standard error.

    Raises:
        ConfigError, PluginError, PrerequisiteError: The run cannot begin.
        VerifierError, BackendError, CheckpointError: It ended early; the last good checkpoint is
            named.
        RunInterruptedError: Ctrl-C; a checkpoint was written.
    """
    from rlvr.cli import run
    from rlvr.training.best_checkpoint import best_step

    args = arguments(
        run,
        options,
        quiet=quiet,
        plugin=plugin,
        task=task,
        reward=reward,
        dataset=dataset,
        model=model,
        backend=backend,
        algo=algo,
        sampler=sampler,
        curriculum=curriculum,
        callbacks=None if callbacks is None else listed("callbacks", callbacks),
        steps=steps,
        max_staleness=max_staleness,
        seed=seed,
        out=out,
        resume=resume,
        config=config,
        preset=preset,
    )
    with called(train):
        finished, _ = run.trained(args, PluginHost.load())
    return FinishedRun(
        directory=finished.directory.absolute(),
        steps=finished.state.step,
        reports=finished.reports,
        best=best_step(finished.reports),
    )


@contextmanager
def called(function: Callable[..., Any]) -> Iterator[None]:
    """Lend the log to a function; errors name its arguments, and paths that the system refuses."""
    with borrowed():
        try:
            yield
        except RlvrError as error:
            text = in_python(before := str(error), function)
            if text != before:
                error.args = (text,)
                if isinstance(error, ImportError):  # which says this instead
                    error.msg = text
            raise
        except OSError as error:
            if (refusal := refused(error)) is not None:
                raise refusal from error
            raise


def in_python(text: str, function: Callable[..., Any]) -> str:
    """A message with the flags that are arguments of the function written so: `out=`."""

    def written(found: re.Match[str]) -> str:
        name = str(found[1]).replace("-", "_")
        name = _OTHER_NAMES.get(name, name)
        return f"{name}=" if name in signature(function).parameters else found[0]

    return _FLAGS.sub(written, text)


def listed(name: str, names: Sequence[str] | str) -> str:
    """
    Names, or what a flag says of them, as a flag takes them; "" for none.

    Raises:
        ConfigError: They are no texts.
    """
    names = unwrapped(names)
    if names is None or isinstance(names, str):
        return names or ""
    found: list[Any] = list(map(unwrapped, names if isinstance(names, Iterable) else [names]))
    if not all(isinstance(one, str) for one in found):
        of = f"; {_NAMES}" if name == "callbacks" else ""
        raise _refused(name, names, f"no names{of}", "give a text, or a list of texts")
    return json.dumps(found) if found else ""


def arguments(
    command: ModuleType, options: Options | None, *, quiet: bool = True, **flags: Any
) -> Namespace:
    """
    The namespace that the parser of the command makes of these flags.

    Raises:
        ConfigError: A value is none that its flag takes.
    """
    parser = ArgumentParser()
    command.configure(parser)
    texts = {a.dest: _taken(a, flags[a.dest]) for a in parser._actions if a.dest in flags}
    given = {"flag_options": typed_options(options), "overrides": [], "origin": PYTHON}
    is_quiet = _truth("quiet", quiet)
    return Namespace(**texts, **given, verbosity=-is_quiet, json=is_quiet)


def _taken(flag: Action, value: Any) -> Any:
    """What a flag takes of a value: a number, one of its choices, True or False, else a text."""
    name = {"out_file": "out", "run_dir": "model"}.get(flag.dest, flag.dest)
    value = unwrapped(value)
    if value is None:
        return flag.default
    if flag.type in (int, float):
        try:
            return coerce(value, flag.type)
        except ValueError as error:
            raise _refused(name, value, f"{error}; it is {flag.help}") from None
    if flag.nargs == 0:
        return _truth(name, value)
    if flag.choices and value not in (choices := list(map(str, flag.choices))):
        did = did_you_mean(str(value), choices)
        raise _refused(name, value, f"none of {', '.join(choices)}", did)
    if not isinstance(value, str | Path):
        of = f"; {_NAMES}" if flag.metavar == "NAME" and name != "preset" else ""
        do = "give its .directory" if isinstance(value, FinishedRun) else ""
        raise _refused(name, value, f"neither a text nor a Path{of}", do)
    return path_of(name, value) if value else value


def path_of(name: str, value: str | Path) -> str:
    """
    A text or a path as a command takes it: with its `~` replaced, which a shell does elsewhere.

    Raises:
        ConfigError: It can be neither an option nor the name of a file.
    """
    if not value:
        raise _refused(name, value, "an empty text")
    if fault := fault_of_text(str(value)):
        raise _refused(name, value, fault)
    return os.path.expanduser(value)


def _truth(name: str, value: Any) -> bool:
    if not isinstance(found := unwrapped(value), bool):
        raise _refused(name, value, "neither True nor False")
    return found


def _refused(name: str, value: object, why: str, do: str = "") -> ConfigError:
    return ConfigError(f"{name}={shown(value)} was given.", f"found: {why}", do)
