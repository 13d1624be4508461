"""The problems of a run that a policy can answer."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rlvr.border.abilities import warnings_of
from rlvr.border.calls import label
from rlvr.border.promises import problems_of, reason_of, reference_of, unsupported_by
from rlvr.config.core import EvalOptions, RunOptions
from rlvr.config.layer import COMMAND_LINE, PYTHON
from rlvr.config.layers import Options
from rlvr.errors import ConfigError, RlvrError, counted
from rlvr.log import get
from rlvr.parts import Sampler, Task, Tokenizer
from rlvr.types import Problem

log = get(__name__)

_PROBED = 32
"""Problems, spread evenly, whose reference is put through the tokenizer."""


def train_problems(task: Task, sampler: Sampler, provider: str) -> tuple[Problem, ...]:
    """
    The problems of split "train" that can be put to the policy.

    Args:
        task: Open.
        sampler: Of the run.
        provider: Plugin of the task, for messages.

    Raises:
        ConfigError: There is none.
    """
    problems = tuple(problems_of(task, "train"))
    if not problems:
        found, do = "no usable problem in split 'train'", "choose another --dataset"
        do += ", or let Task.problems('train') yield problems whose split is 'train'"
        found += in_splits(task)
        if unsupported := unsupported_by(task):
            name, reason = next(iter(unsupported.items()))
            found += f"; {counted(len(unsupported), 'unsupported row')}, the first {name}: {reason}"
            do += f"; every reason: rlvr score --plugin {provider} --dataset FILE --golden"
        found += "".join(f"; {text}" for text in warnings_of(task, "train"))
        asked = f"there is nothing to train on: {label(task, 'task')}."
        raise ConfigError(asked, f"found: {found}", do)
    kept = posed(task, sampler, problems)
    if not kept:
        first = problems[0]
        raise ConfigError(
            f"the policy was to answer {len(problems)} problems.",
            f"found: none of them can be put to it: {first.id}: {task.why_unanswerable(first)}",
            "learn from what is recorded (--sampler replay, --algo sad), or name a --dataset "
            "with prompts",
        )
    return kept


def in_splits(task: Task) -> str:
    """`, 16 in train, 4 in test`: how many problems each split of a task has; "" for none."""
    counts = Counter(problem.split for problem in problems_of(task, "all"))
    return "".join(f", {count} in {split}" for split, count in counts.items())


def problems_to_evaluate(task: Task, sampler: Sampler, options: Options) -> tuple[Problem, ...]:
    """
    The problems of a run's evaluations.

    Raises:
        ConfigError: There is none, and the split is not the default one.
    """
    evaluation: EvalOptions = options.record("eval")
    if not evaluation.samples:
        keys = ("eval.split", "eval.every", "eval.problems")
        if given := [key for key in keys if options.origin[key] in (COMMAND_LINE, PYTHON)]:
            do = "set eval.samples to 1 or more"
            log.warning("nothing_is_evaluated", given=given, found="eval.samples=0", do=do)
        return ()
    found = posed(task, sampler, problems_of(task, evaluation.split))
    if not found and evaluation.split != EvalOptions().split:
        raise ConfigError(
            f"split '{evaluation.split}' was to be evaluated (eval.split).",
            f"found: no usable problem in it{in_splits(task)}",
            "choose another split or --dataset, or let Task.problems yield problems of it",
        )
    if not found:
        log.warning("nothing_to_evaluate", split=evaluation.split)
    return found[: evaluation.problems or None]


def check_dataset_is_read(run: RunOptions, task: Task, readings: Sequence[Path]) -> None:
    """
    Reject a data set that neither task nor reward reads.

    Args:
        run: Names the data set.
        task: Open; its problems are listed if it has read no data set before.
        readings: Data sets that were read from its `BuildContext`; grows.

    Raises:
        ConfigError: It was not read.
    """
    if not run.dataset or readings:
        return
    problems_of(task, "all")  # a task may read its data only now
    if not readings:
        raise ConfigError(
            f"the data set {run.dataset} was given to {label(task, 'task')}.",
            "found: its problems are its own and read no file",
            "leave --dataset out, or choose another --plugin; a task that takes one reads "
            "context.dataset",
        )


def posed(task: Task, sampler: Sampler, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    """Drop problems that leave the policy nothing to answer; log how many, and why."""
    if not sampler.draws_from_policy:
        return tuple(problems)
    why = {p.id: reason for p in problems if (reason := reason_of(task, "why_unanswerable", p))}
    kept = tuple(p for p in problems if p.id not in why)
    if not why:
        return kept
    first, reason = next(iter(why.items()))
    log.warning("problems_left_out", problems=len(why), of=len(problems), first=first, why=reason)
    return kept


def warn_of_unwritable(task: Task, problems: Sequence[Problem], tokenizer: Tokenizer) -> None:
    """Warn of characters in references that the tokenizer loses: no policy of it can be right."""
    probed, lost = problems[:: max(1, len(problems) // _PROBED)][:_PROBED], {}
    for problem in probed:
        reference = None
        with suppress(RlvrError):  # a run that asks for no reference needs none
            reference = reference_of(task, problem)
        if reference is not None:
            text = "\n".join([*reference.completions, *(reference.files or {}).values()])
            if found := _letters(text) - _letters(_back(tokenizer, text)):
                lost[problem.id] = found
    if lost:
        log.warning(
            "references_cannot_be_written",
            characters="".join(sorted(set.union(*lost.values()))),
            problems=len(lost),
            of=len(probed),
            first=next(iter(lost)),
            do="take a --model whose tokenizer has these characters; gpt2:new has all",
        )


def _letters(text: str) -> set[str]:
    """Its characters in one form, without space, which tokenizers may change."""
    return {c for c in unicodedata.normalize("NFKC", text) if not c.isspace()}


def _back(tokenizer: Tokenizer, text: str) -> str:
    """The text after encoding and decoding; of a tokenizer that refuses it, what it takes."""
    try:
        return tokenizer.decode(tokenizer.encode(text))
    except Exception:  # the plugin border: some raise for a character outside their vocabulary
        return "".join(_back(tokenizer, c) for c in sorted(set(text))) if len(text) > 1 else ""
