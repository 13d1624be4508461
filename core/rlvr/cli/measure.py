"""`rlvr eval`, `score` and `audit` as functions (see `rlvr.cli.train`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.cli.train import Options, arguments, listed
from rlvr.errors import ConfigError
from rlvr.evaluation.breakdown import Breakdown
from rlvr.log import borrowed, setup
from rlvr.plugins.host import PluginHost
from rlvr.types import ScoredGroup

__all__ = ["Evaluation", "audit", "evaluate", "score"]


@frozen(kw_only=True)
class Evaluation:
    """
    How often a model is right.

    Attributes:
        report: Overall (`report.whole`) and by label (`report.by`). Verifications that could not
            run are in `report.whole.failed` and in no other number.
        facts: Model, split, samples a problem, seconds, and what was left out.
        groups: Every sample with its verdict, one group a problem.
    """

    report: Breakdown
    facts: Mapping[str, Any]
    groups: Sequence[ScoredGroup]

    @property
    def pass1(self) -> float | None:
        """Share of right samples, averaged over problems; None where nothing was judged."""
        return self.report.whole.pass1

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """The 95 % interval of `pass1` (bootstrap over problems)."""
        return self.report.whole.low, self.report.whole.high


def evaluate(
    plugin: str | None = None,
    *,
    model: Path | str | None = None,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    backend: str | None = None,
    sampler: str | None = None,
    samples: int | None = None,
    split: str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    config: Path | str | None = None,
    preset: str | None = None,
    options: Options | None = None,
) -> Evaluation:
    """
    Measure how often a model is right, as `rlvr eval` does.

    Args:
        plugin: Domain plugin; None: the run's.
        model: A model spec as text; a `Path`: a run's directory, or one of its checkpoints.
        task: Task, where a plugin has several.
        reward: Reward; None: the task's.
        dataset: Data set; None: the embedded one, or the run's.
        backend: Backend; None: the model's, else torch.
        sampler: Sampler; None: the backend's.
        samples: Samples a problem; None: 4.
        split: Split of the data set; None: test.
        workers: Verifications at a time; None: cores.
        seed: Seed of everything random.
        config: TOML or YAML file with options.
        preset: Vetted option values of the task.
        options: Further options by key.

    Raises:
        ConfigError, PluginError, PrerequisiteError: It cannot begin.
        CheckpointError: The run has no checkpoint.
    """
    from rlvr.assembly.trained_model import trained_at
    from rlvr.cli.evaluate import configured_for, evaluated
    from rlvr.evaluation.breakdown import breakdown

    run = model if isinstance(model, Path) else None
    if isinstance(model, str) and (trained_at(Path(model)).run / "run.json").is_file():
        raise ConfigError(
            f"a model was to be evaluated, given as the text {model!r}.",
            "found: a run in a folder of that name, and a text is a model spec",
            f"give the run as a path: model=Path({model!r})",
        )
    asked = {"eval.samples": samples, "eval.split": split}
    args = arguments(
        {k: v for k, v in asked.items() if v is not None} | dict(options or {}),
        plugin=plugin,
        model=None if run else model,
        run_dir=None if run is None else str(run),
        task=task,
        reward=reward,
        dataset=dataset,
        backend=backend,
        sampler=sampler,
        workers=workers,
        seed=seed,
        config=config,
        preset=preset,
        completions=None,
        figures="no",
        by="",
    )
    with borrowed():
        setup()
        found = evaluated(configured_for(args, PluginHost.load()), args)
    return Evaluation(report=breakdown(found.scored, []), facts=found.facts, groups=found.scored)


def score(
    plugin: str | None = None,
    *,
    completions: Path | str | Sequence[Mapping[str, Any]] | None = None,
    golden: bool = False,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    split: str = "all",
    workers: int | None = None,
    seed: int | None = None,
    config: Path | str | None = None,
    preset: str | None = None,
    options: Options | None = None,
) -> list[dict[str, Any]]:
    """
    Judge answers, as `rlvr score` does.

    Args:
        plugin: Domain plugin.
        completions: Answers, `{"id": ..., "completion": text}` or `{"id": ..., "files": {path:
            text}}` each; or the path of a file of them, one JSON object a line.
        golden: Judge the data set's own references instead.
        task: Task, where a plugin has several.
        reward: Reward; None: the task's.
        dataset: Data set; None: the embedded one.
        split: Split that is scored.
        workers: Verifications at a time; None: cores.
        seed: Seed of everything random.
        config: TOML or YAML file with options.
        preset: Vetted option values of the task.
        options: Further options by key.

    Returns:
        One verdict an answer, in order: `id`, `reward`, `score01`, `components`, ... Where an
        answer could not be judged `reward` is None and `error` says why: no failure is a reward.

    Raises:
        ConfigError, PluginError, PrerequisiteError: It cannot begin.
    """
    from rlvr.assembly.configure import configure
    from rlvr.assembly.prerequisites import check_prerequisites
    from rlvr.cli.score import scored

    if (completions is None) != golden:
        raise ConfigError(
            "answers were to be scored.",
            "found: both completions and golden" if golden else "found: no answers",
            "give completions=, or golden=True for the data set's references",
        )
    given: str | bytes | None = None
    if isinstance(completions, str | Path):
        given = str(completions)
    elif completions is not None:
        given = b"\n".join(json.dumps(dict(answer)).encode() for answer in completions)
    args = arguments(
        options,
        plugin=plugin,
        completions=given,
        golden=golden,
        task=task,
        reward=reward,
        dataset=dataset,
        split=split,
        workers=workers,
        seed=seed,
        config=config,
        preset=preset,
    )
    with borrowed():
        setup()
        host = PluginHost.load()
        configured = configure(args, host, needs="score")
        check_prerequisites(host, configured.chosen.task.provider)
        records, _ = scored(configured, args)
    return records


def audit(
    plugin: str | None = None,
    *,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    split: str = "all",
    only: Sequence[str] | str = (),
    mutants: int = 25,
    repeats: int = 3,
    weak: float = 0.9,
    workers: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    config: Path | str | None = None,
    preset: str | None = None,
    options: Options | None = None,
) -> dict[str, Any]:
    """
    Find problems whose verifier is weak, flaky or wrong, as `rlvr audit` does.

    Args:
        plugin: Domain plugin.
        task: Task, where a plugin has several.
        reward: Reward; None: the task's.
        dataset: Data set; None: the embedded one.
        split: Split that is audited.
        only: Ids of the problems, or one id; empty: all of the split.
        mutants: Wrong answers made of each problem's reference.
        repeats: Seeds that the reference is judged with.
        weak: A problem that rejects a smaller share of its mutants is weak.
        workers: Verifications at a time; None: cores.
        seed: Seed of everything random.
        out: File that keeps the result up to date.
        config: TOML or YAML file with options.
        preset: Vetted option values of the task.
        options: Further options by key.

    Returns:
        What `rlvr audit --json` prints; `problems` maps an id to what was found.

    Raises:
        ConfigError, PluginError, PrerequisiteError: It cannot begin.
        UnknownNameError: `only` names a problem that there is not.
    """
    from rlvr.cli.audit import audited

    args = arguments(
        options,
        plugin=plugin,
        task=task,
        reward=reward,
        dataset=dataset,
        split=split,
        only=listed(only),
        mutants=mutants,
        repeats=repeats,
        weak=weak,
        workers=workers,
        seed=seed,
        out_file=None if out is None else str(out),
        config=config,
        preset=preset,
    )
    with borrowed():
        setup()
        file, _, _ = audited(args, PluginHost.load())
    return file.to_json()
