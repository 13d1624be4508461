"""The other side of `rlvr eval --against`: a model, a run, answers, or a saved evaluation."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from rlvr.assembly.configure import configure
from rlvr.assembly.configured import STARTER, Configured
from rlvr.assembly.prerequisites import check_prerequisites
from rlvr.assembly.teachers import model_of
from rlvr.assembly.trained_model import options_of
from rlvr.cli.eval_sources import Evaluated, from_file, judged_before, sampled
from rlvr.concurrency import run_blocking
from rlvr.config.layers import Layer
from rlvr.errors import UnknownNameError
from rlvr.evaluation.saved import holds_verdicts
from rlvr.plugins.host import PluginHost
from rlvr.records.read_runs import is_run, trained_at

Kind = Literal["model", "run", "answers", "judged"]

NEEDS: dict[Kind, str] = {"model": "eval", "run": "trained", "answers": "score"}
OF_THE_MODEL = ("run.model", "run.backend", "run.sampler")
"""Options that belong to one of two models; all others are those of the comparison."""


def kind_of(against: str) -> Kind:
    """
    The kind of source that `--against` names.

    Raises:
        UnknownNameError: Neither a file, a run nor a model.
    """
    path = Path(against)
    if path.is_file():
        return "judged" if holds_verdicts(path) else "answers"
    if is_run(against):
        return "run"
    if against == STARTER or (":" in against and not path.is_dir()):
        return "model"
    raise UnknownNameError(
        f"a comparison with {against} was asked for (--against).",
        "found: a folder that is no run" if path.is_dir() else "found: no such file or run",
        "name a file of samples or answers, a run's directory, or a model, like gpt2:PATH",
    )


def prepare(
    args: argparse.Namespace, host: PluginHost, configured: Configured | None
) -> Callable[[], Evaluated]:
    """
    Read or configure the other side now, so that mistakes show early; calling does the work.

    It is asked the same problems with the same settings, and judged by the same reward.
    `configured` is the evaluation of this side; None if that was read from a file.
    """
    kind = kind_of(args.against)
    if kind == "judged":
        found = judged_before(Path(args.against), [])
        return lambda: found
    told = _told(args, configured, kind)
    other = configure(told, host, needs=NEEDS[kind])
    if kind == "model":
        instead = "give --against RUN, gpt2:new, gpt2:PATH or hf:PATH_OR_ID"
        model_of(args.against, other.chosen.task, instead)
    check_prerequisites(host, other.chosen.task.provider)
    work = from_file if kind == "answers" else sampled
    return lambda: run_blocking(lambda: work(other, told))


def _told(
    args: argparse.Namespace, configured: Configured | None, kind: Kind
) -> argparse.Namespace:
    """The command line of the other side, based on the options of this one."""
    told = argparse.Namespace(**vars(args))
    told.completions = told.run_dir = told.model = None
    told.overrides = [w for w in args.overrides if not w.startswith(OF_THE_MODEL)]
    told.flag_options = {k: v for k, v in args.flag_options.items() if k not in OF_THE_MODEL}
    if configured is not None:
        told.backend = told.sampler = None
    shared = {} if configured is None else _shared(configured)
    if kind == "run":
        told.run_dir = args.against
        own = options_of(trained_at(Path(args.against)).run).values
        told.model, told.backend = own.get("run.model"), own.get("run.backend")
        shared = {**own, **shared}
    elif kind == "model":
        told.model = args.against
    else:
        told.completions = args.against
        if args.samples is None:  # the file says how many there are
            shared.pop("eval.samples", None)
            told.flag_options.pop("eval.samples", None)
    told.base = Layer("the evaluation it is compared with", shared, is_typed=True)
    return told


def _shared(configured: Configured) -> dict[str, object]:
    """Options both sides share: task, reward, split, number of samples."""
    backend = configured.chosen.backend
    foreign = "sampler" if backend is None else backend.option_namespace
    return {
        key: value
        for key, value in configured.options.values.items()
        if key not in OF_THE_MODEL and key.partition(".")[0] != foreign
    }
