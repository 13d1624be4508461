"""`rlvr eval`, `score` and `audit` as functions (see `rlvr.cli.train`)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlvr.border.calls import shown
from rlvr.cli.train import Options, arguments, called, listed, path_of
from rlvr.errors import ConfigError
from rlvr.evaluation.compare_models import Evaluation
from rlvr.log import setup
from rlvr.plugins.host import PluginHost
from rlvr.records.owner import writing_to
from rlvr.records.run_directory import write_out

if TYPE_CHECKING:
    from rlvr.cli.eval_sources import Evaluated

Answers = Path | str | Sequence[Mapping[str, Any]]
__all__ = ["audit", "evaluate", "score"]


def evaluate(
    plugin: str | None = None,
    *,
    model: Path | str | None = None,
    completions: Answers | None = None,
    report: Path | str | None = None,
    against: Path | str | None = None,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    backend: str | None = None,
    sampler: str | None = None,
    samples: int | None = None,
    split: str | None = None,
    missing: str | None = None,
    by: Sequence[str] | str = (),
    figures: str | None = None,
    workers: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    config: Path | str | None = None,
    preset: str | None = None,
    options: Options | None = None,
) -> Evaluation:
    """
    Measure how often a model, or given answers, are right, as `rlvr eval` does.

    Args:
        plugin: Domain plugin; None: the run's.
        model: A model spec, a run's directory, or one of its checkpoints.
        completions: Answers that are evaluated instead of a model's, as `score` takes them.
        report: A file that `out` wrote, which is read again; nothing is sampled or judged.
        against: A model, a run, or a file of answers or samples to compare with.
        task: Task, where a plugin has several.
        reward: Reward; None: the task's.
        dataset: Data set; None: the embedded one, or the run's.
        backend: Backend; None: the model's, else torch.
        sampler: Sampler; None: the backend's.
        samples: Samples a problem; None: 4, or as many as the answers hold.
        split: Split of the data set; None: test.
        missing: What a missing answer counts as: "wrong" or "skip"; None: wrong.
        by: Labels to slice by together as well.
        figures: "no": leave out what the task measures besides; None: yes.
        workers: Verifications at a time; None: cores.
        seed: Seed of everything random.
        out: File for every sample with its verdict.
        config: TOML or YAML file with options.
        preset: Vetted option values of the task.
        options: Further options by key.

    Raises:
        ConfigError, PluginError, PrerequisiteError: It cannot begin.
        CheckpointError: The run has no checkpoint.
    """
    from rlvr.cli import evaluate as command
    from rlvr.cli.eval_sources import crossed
    from rlvr.evaluation.breakdown import breakdown
    from rlvr.evaluation.compare_models import compare

    run = model if isinstance(model, Path) else None
    args = arguments(
        command,
        options,
        plugin=plugin,
        model=None if run else model,
        run_dir=run,
        report=report,
        against=against,
        task=task,
        reward=reward,
        dataset=dataset,
        backend=backend,
        sampler=sampler,
        samples=samples,
        split=split,
        missing=missing,
        by=listed("by", by),
        figures=figures,
        workers=workers,
        seed=seed,
        out_file=out,
        config=config,
        preset=preset,
    )
    args.completions = None if completions is None else _source(completions)

    def told(side: Evaluated, **more: Any) -> Evaluation:
        if side.broken is not None:
            raise side.broken
        found = breakdown(side.scored, crossed(args))
        measured = side.besides.figures
        more |= {"facts": side.facts, "groups": side.scored, "figures": measured}
        return Evaluation(report=found, **more)

    with called(evaluate):
        setup()
        evaluated, other = command.prepared(args, PluginHost.load())
        with writing_to(args.out_file, vars(args)):
            this = evaluated()
            command.save(this, args)
        if other is None:
            return told(this)
        that = other()
        comparison = compare(this.scored, that.scored, crossed(args))
        return told(this, against=told(that), comparison=comparison)


def _source(completions: Answers) -> str | bytes:
    """The path of answers, or what a file of them would hold."""
    if isinstance(completions, str | Path):
        return path_of("completions", completions)
    try:
        answers: list[Any] = list(completions)
        if not all(isinstance(answer, Mapping) for answer in answers):
            raise TypeError("they are no mappings")
        return b"".join(json.dumps(dict(a)).encode() + b"\n" for a in answers) or b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        raise ConfigError(
            "answers were to be judged.",
            f"found: completions={shown(completions)}: {error}",
            'give a path, or a list of {"id": ..., "completion": text}',
        ) from None


def score(
    plugin: str | None = None,
    *,
    completions: Answers | None = None,
    golden: bool = False,
    task: str | None = None,
    reward: str | None = None,
    dataset: Path | str | None = None,
    split: str = "all",
    workers: int | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
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
        out: File for the verdicts, a line each.
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
    from rlvr.cli import score as command

    args = arguments(
        command,
        options,
        plugin=plugin,
        golden=golden,
        task=task,
        reward=reward,
        dataset=dataset,
        split=split,
        workers=workers,
        seed=seed,
        out_file=out,
        config=config,
        preset=preset,
    )
    if (completions is None) != golden:
        raise ConfigError(
            "answers were to be scored.",
            "found: both completions and golden" if golden else "found: no answers",
            "give completions=, or golden=True for the data set's references",
        )
    args.completions = None if completions is None else _source(completions)
    with called(score):
        setup()
        host = PluginHost.load()
        configured = configure(args, host, needs="score")
        check_prerequisites(host, configured.chosen.task.provider)
        with writing_to(args.out_file, vars(args)):
            records, _, unclosed = command.scored(configured, args)
            if args.out_file:
                write_out(Path(args.out_file), "".join(json.dumps(r) + "\n" for r in records))
        if unclosed is not None:
            raise unclosed
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
    from rlvr.cli import audit as command

    args = arguments(
        command,
        options,
        plugin=plugin,
        task=task,
        reward=reward,
        dataset=dataset,
        split=split,
        only=listed("only", only),
        mutants=mutants,
        repeats=repeats,
        weak=weak,
        workers=workers,
        seed=seed,
        out_file=out,
        config=config,
        preset=preset,
    )
    with called(audit):
        setup()
        file, _, _ = command.audited(args, PluginHost.load())
    return file.to_json()
