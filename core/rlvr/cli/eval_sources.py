"""What `rlvr eval` judges: samples of a model, or the answers of a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import attrs
from attrs import frozen

from rlvr.builtin.scoring_progress import scoring_progress
from rlvr.config.core import EvalOptions
from rlvr.errors import ConfigError, explain
from rlvr.parts import Task
from rlvr.run import trained
from rlvr.run.answers import read_answers
from rlvr.run.batches import seed_of
from rlvr.run.board import Board
from rlvr.run.breakdown import check_labels
from rlvr.run.completions import Completions, group_answers
from rlvr.run.configure import Configured
from rlvr.run.evaluate import judge_groups
from rlvr.run.recipe import build_context, open_judge, open_student
from rlvr.types import Problem, ScoredGroup

DEFAULT_SAMPLES = 4


@frozen(kw_only=True)
class Evaluated:
    """What an evaluation is reported from. `completions` is None where a model was sampled."""

    scored: list[ScoredGroup]
    samples: int
    split: str
    unsupported: dict[str, str]
    completions: Completions | None = None


async def sampled(configured: Configured, args: argparse.Namespace) -> Evaluated:
    """A model's answers, judged."""
    board = Board()
    context = build_context(configured, None)
    async with open_student(configured, context, board) as student:
        if args.run_dir:
            await trained.load_last(configured, context, Path(args.run_dir), student.backend)
        options: EvalOptions = configured.options.record("eval")
        task = student.judge.task
        problems = _problems(task, options, crossed(args))
        params = attrs.evolve(
            student.params,
            group_size=options.samples or DEFAULT_SAMPLES,
            seed=seed_of(configured.run.seed, "evaluate"),
        )
        policy = await student.backend.policy()
        groups = await student.sampler.sample(policy, task, problems, params)
        with scoring_progress(board, quiet=args.json):
            scored = await judge_groups(student.judge.scorer, groups)
        return Evaluated(
            scored=scored,
            samples=params.group_size,
            split=options.split,
            unsupported=_unsupported(task),
        )


async def from_file(configured: Configured, args: argparse.Namespace) -> Evaluated:
    """
    The answers of `--completions`, judged; what is not usable is named on standard error.

    Raises:
        ConfigError: None of them answers one of the problems.
    """
    board = Board()
    async with open_judge(configured, build_context(configured, None), board) as judge:
        options: EvalOptions = configured.options.record("eval")
        problems = _problems(judge.task, options, crossed(args))
        every = {p.id: p for p in [*judge.task.problems("all"), *problems]}
        unsupported = _unsupported(judge.task)
        answers = [
            answer
            for answer in read_answers(args.completions, every, unsupported)
            if answer.id not in unsupported
        ]
        completions = group_answers(answers, problems, _asked_samples(configured))
        for reason in completions.unusable:
            print(f"rlvr: {args.completions}: {reason}", file=sys.stderr)
        if not any(group.trajectories for group in completions.groups):
            raise ConfigError(
                explain(
                    f"the answers in {args.completions} were to be evaluated.",
                    f"found: none for any of the {len(problems)} problems of split "
                    f"'{options.split}'",
                    'a line is {"id": ..., "completion": ...} or {"id": ..., "files": {...}}; '
                    "check --dataset and --split",
                )
            )
        with scoring_progress(board, quiet=args.json):
            scored = await judge_groups(judge.scorer, completions.groups)
        return Evaluated(
            scored=scored,
            samples=completions.samples,
            split=options.split,
            unsupported=unsupported,
            completions=completions,
        )


def _asked_samples(configured: Configured) -> int:
    """`eval.samples` where a person gave it; a preset's is about sampling a model."""
    origin = configured.options.origin["eval.samples"]
    is_vetted = origin.startswith(("preset ", "algorithm "))
    return 0 if is_vetted else int(configured.options.values["eval.samples"])


def _unsupported(task: Task) -> dict[str, str]:
    found = dict(task.unsupported())
    for name, reason in found.items():
        print(f"rlvr: {name}: unsupported: {reason}", file=sys.stderr)
    return found


def crossed(args: argparse.Namespace) -> list[str]:
    """The labels of `--by`."""
    return [label for label in args.by.split(",") if label]


def _problems(task: Task, options: EvalOptions, labels: list[str]) -> list[Problem]:
    problems = list(task.problems(options.split))[: options.problems or None]
    if not problems:
        raise ConfigError(
            explain(
                f"split '{options.split}' was to be evaluated.",
                f"found: no usable problem in it; {len(task.unsupported())} rows are unsupported",
                "choose another --split or --dataset",
            )
        )
    check_labels(problems, labels)
    return problems
