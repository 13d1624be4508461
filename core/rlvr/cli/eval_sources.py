"""The three sources of `rlvr eval`: samples of a model, answers in a file, saved verdicts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from attrs import frozen

from rlvr.assembly.compatibility import check_is_judged
from rlvr.assembly.configured import Configured
from rlvr.assembly.problems import in_splits
from rlvr.assembly.recipe import (
    PolicyContext,
    Verifier,
    build_context,
    open_policy_context,
    open_verifier,
)
from rlvr.assembly.trained_model import lineage_at_start, lineage_in, load_last
from rlvr.border.promises import policy_of, problems_of, unsupported_by
from rlvr.builtin.terminal import scoring_progress
from rlvr.cli.eval_figures import Measured, measured
from rlvr.concurrency import Broken, kept
from rlvr.config.coerce import names_in
from rlvr.config.core import EvalOptions
from rlvr.errors import ConfigError, counted
from rlvr.evaluation import contamination
from rlvr.evaluation.answers_file import group_answers, none_found, read_answers, with_missing
from rlvr.evaluation.breakdown import check_labels
from rlvr.evaluation.saved import read_judged
from rlvr.heartbeat import say
from rlvr.parts import BuildContext, Policy, Task
from rlvr.progress.status import RunStatus
from rlvr.records.lineage import UNKNOWN
from rlvr.records.read_runs import trained_at
from rlvr.rollouts.group import scored_groups
from rlvr.seeds import seed_of
from rlvr.types import Problem, ScoredGroup

DEFAULT_SAMPLES = 4


@frozen(kw_only=True)
class Evaluated:
    """
    The judged answers and facts that an evaluation is reported from.

    Attributes:
        model: The model, the run or the file.
        scored: One group a problem; missing answers are in them where they count as wrong.
        samples: Samples that every problem should have (n).
        split: Split that was evaluated.
        sample_s: Seconds that sampling took, None where nothing was sampled.
        judge_s: Seconds that judging took, None where that is not recorded.
        held: Whether the problems are held-out for the model; None if a file of verdicts says it.
        max_failures: Share of verifications that may fail to run; None where none ran now.
        counts: Facts of some sources only: `missing`, `unusable`, `unsupported`, `held_out`, ...
        besides: Further figures of the task (`Task.measure`).
    """

    model: str
    scored: Sequence[ScoredGroup]
    samples: int
    split: str
    sample_s: float | None = None
    judge_s: float | None = None
    held: contamination.HeldOut | None = None
    max_failures: float | None = None
    counts: Mapping[str, Any] = attrs.field(factory=dict)
    besides: Measured = attrs.field(factory=Measured)
    unclosed: Broken = None

    @property
    def broken(self) -> Broken:
        """What is to be raised once all that was judged is reported."""
        return self.besides.broken or self.unclosed

    @property
    def facts(self) -> dict[str, Any]:
        """Facts that the breakdown does not hold."""
        return {
            "model": self.model,
            "split": self.split,
            "n": self.samples,
            "prompts_cut": sum(t.prompt_cut > 0 for g in self.scored for t in g.trajectories),
            "cut": sum(t.finish == "length" for g in self.scored for t in g.trajectories),
            "sample_s": _rounded(self.sample_s),
            "judge_s": _rounded(self.judge_s),
            "seconds": round((self.sample_s or 0.0) + (self.judge_s or 0.0), 2),
            **self.counts,
            **({} if self.held is None else contamination.facts(self.held, self.scored)),
        }

    @property
    def head(self) -> dict[str, Any]:
        """Facts of the evaluation that each line of `--out` repeats."""
        kept = ("model", "split", "sample_s", "judge_s", "held_out")
        return {key: value for key, value in self.facts.items() if key in kept}


async def sampled(configured: Configured, args: argparse.Namespace) -> Evaluated:
    """A model's answers, judged."""
    context, status = build_context(configured, None), RunStatus()
    opening = open_policy_context(configured, context, status)
    found, unclosed = await kept(opening, lambda o: _sampled(o, configured, context, status, args))
    return attrs.evolve(found, unclosed=unclosed)


async def _sampled(
    opened: PolicyContext,
    configured: Configured,
    context: BuildContext,
    status: RunStatus,
    args: argparse.Namespace,
) -> Evaluated:
    if args.run_dir:
        trained = trained_at(Path(args.run_dir))
        await load_last(configured, context, trained.run, opened.backend, trained.checkpoint)
    options: EvalOptions = configured.options.record("eval")
    task = opened.task
    check_is_judged(task, configured.chosen.task.name)
    problems = _problems(task, options, crossed(args))
    params = attrs.evolve(
        opened.params,
        group_size=options.samples or DEFAULT_SAMPLES,
        seed=seed_of(configured.run.seed, "evaluate"),
    )
    policy = await policy_of(opened.backend)
    begun = drawn = time.monotonic()

    def sampled() -> None:
        nonlocal drawn
        drawn = time.monotonic()

    with scoring_progress(status, quiet=args.json):
        scored = await scored_groups(
            opened.sampler, policy, task, problems, params, opened.runner, sampled=sampled
        )
    judged = time.monotonic()
    besides = await _measured(task, policy, configured, args)
    lineage = (
        lineage_in(trained_at(Path(args.run_dir)))
        if args.run_dir
        else lineage_at_start(configured, configured.run.model)
    )
    return Evaluated(
        model=args.run_dir or configured.run.model,
        scored=scored,
        samples=params.group_size,
        split=options.split,
        sample_s=drawn - begun,
        judge_s=judged - drawn,
        held=contamination.held_out(problems, lineage),
        max_failures=configured.options.values["verify.max_failures"],
        counts={"unsupported": _unsupported(task)},
        besides=besides,
    )


async def _measured(
    task: Task, policy: Policy, configured: Configured, args: argparse.Namespace
) -> Measured:
    """Further figures of the task; none with `--figures no`."""
    if args.figures == "no":
        return Measured()
    split: str = configured.options.values["eval.split"]
    seed = seed_of(configured.run.seed, "measure")
    return await measured(task, policy, split=split, seed=seed, quiet=args.json)


async def from_file(configured: Configured, args: argparse.Namespace) -> Evaluated:
    """
    The answers of `--completions`, judged; what is not usable is named on standard error.

    Raises:
        ConfigError: None of them answers one of the problems.
    """
    status = RunStatus()
    opening = open_verifier(configured, build_context(configured, None), status)
    found, unclosed = await kept(opening, lambda v: _from_file(v, configured, status, args))
    return attrs.evolve(found, unclosed=unclosed)


async def _from_file(
    verifier: Verifier, configured: Configured, status: RunStatus, args: argparse.Namespace
) -> Evaluated:
    source = args.completions if isinstance(args.completions, str) else "completions"
    check_is_judged(verifier.task, configured.chosen.task.name)
    options: EvalOptions = configured.options.record("eval")
    problems = _problems(verifier.task, options, crossed(args))
    every = {p.id: p for p in [*problems_of(verifier.task, "all"), *problems]}
    unsupported = _unsupported(verifier.task)
    answers = [
        answer
        for answer in read_answers(args.completions, every, unsupported)
        if answer.id not in unsupported
    ]
    completions = group_answers(answers, problems, _asked_samples(configured))
    for reason in completions.unusable:
        say(f"rlvr: {source}: {reason}")
    if not any(group.trajectories for group in completions.groups):
        raise none_found(args.completions, "evaluated", len(problems), options.split)
    begun = time.monotonic()
    with scoring_progress(status, quiet=args.json):
        scored = await verifier.runner.groups(completions.groups, is_checked=False)
    as_wrong = args.missing != "skip"
    lowest = configured.chosen.reward.bounds[0]
    counted = with_missing(scored, completions.samples, lowest, as_wrong=as_wrong)
    return Evaluated(
        model=source,
        scored=counted,
        samples=completions.samples,
        split=options.split,
        judge_s=time.monotonic() - begun,
        held=contamination.held_out([group.problem for group in counted], UNKNOWN),
        max_failures=configured.options.values["verify.max_failures"],
        counts={
            "unsupported": unsupported,
            "missing": sum(completions.missing.values()),
            "missing_counts_as": "wrong" if as_wrong else "nothing",
            "unusable": list(completions.unusable),
            "surplus": completions.surplus,
        },
    )


def judged_before(path: Path, labels: Sequence[str]) -> Evaluated:
    """
    An evaluation that `--out` wrote; lines that are no judged sample are named on standard error.

    Raises:
        ConfigError: There is none in the file.
        UnknownNameError: There is no such file, or no problem has one of the labels.
    """
    found = read_judged(path)
    for reason in found.unusable:
        say(f"rlvr: {path}: {reason}")
    check_labels([group.problem for group in found.groups], labels)
    facts = found.facts
    return Evaluated(
        model=str(path),
        scored=found.groups,
        samples=max(len(group.outcomes) for group in found.groups),
        split=str(facts.get("split", "")),
        sample_s=facts.get("sample_s"),
        judge_s=facts.get("judge_s"),
        counts={
            "evaluated": facts.get("model"),
            "unusable": list(found.unusable),
            "held_out": facts.get("held_out"),
        },
    )


def crossed(args: argparse.Namespace) -> list[str]:
    """The labels of `--by`."""
    return names_in(args.by)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 2)


def _asked_samples(configured: Configured) -> int:
    """`eval.samples` if a person set it, else 0: a preset's value is about sampling a model."""
    origin = configured.options.origin["eval.samples"]
    is_vetted = origin.startswith(("preset ", "algorithm "))
    return 0 if is_vetted else int(configured.options.values["eval.samples"])


def _unsupported(task: Task) -> dict[str, str]:
    found = unsupported_by(task)
    for name, reason in found.items():
        say(f"rlvr: {name}: unsupported: {reason}")
    return found


def _problems(task: Task, options: EvalOptions, labels: list[str]) -> list[Problem]:
    problems = problems_of(task, options.split)[: options.problems or None]
    if not problems:
        raise ConfigError(
            f"split '{options.split}' was to be evaluated.",
            f"found: no usable problem in it{in_splits(task)}; "
            + counted(len(unsupported_by(task)), "unsupported row"),
            "choose another --split or --dataset, or let Task.problems yield problems of it",
        )
    check_labels(problems, labels)
    return problems
